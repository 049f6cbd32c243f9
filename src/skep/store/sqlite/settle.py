"""Settling and renewing, fenced by the lease's token (I6): a stale one changes nothing and is told so.

A call's settlements are taken together per lease: first all acks and rejects, then the nacks. Each message is settled
on its own merits; a refused one does not hinder the others. An ack of the whole lease is about those that the call does not name; alone
it goes the short way (`sweep`). What a lease's settlements were answered goes with its row of the history.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from msgspec import Struct, structs

from skep.clock import Instant, seconds
from skep.errors import Code
from skep.model import (
    DeadReason,
    Outcome,
    Renewal,
    RenewResult,
    Retry,
    Settlement,
    SettleResult,
    SettleStatus,
)
from skep.store.outcomes import Mark, Swept, kept_acks, kept_answers
from skep.store.rules import is_exhausted, retry_time
from skep.store.sqlite.bury import Burial, bury
from skep.store.sqlite.leases import SQL as LEASES_SQL
from skep.store.sqlite.leases import (
    Lease,
    count_expired,
    drop_gone,
    find_lease,
    save,
    save_all,
    set_leased_head,
    settle_down,
)
from skep.store.sqlite.outcomes import recall
from skep.store.sqlite.session import MAX_SEQ, GroupRow, QueueRow, Row, Session
from skep.store.sqlite.settle_sets import renew_sets, settle_sets
from skep.store.sqlite.sweep import NOT_IN_LEASE, STALE, sweep_partition, sweep_sets

_COMPLETED = SettleResult(SettleStatus.COMPLETED)
_COMPLETED_FREES_NONE = SettleResult(SettleStatus.COMPLETED, frees=False)

Results = list[SettleResult]


class Item(NamedTuple):
    """One settlement and its place in the call's results."""

    place: int
    settlement: Settlement


class Sorted(Struct):
    """The settlements of one lease by what they ask for, those refused left out; and what acks of the whole lease take."""

    acks: list[Item]
    rejects: list[Item]
    nacks: list[Item]
    releases: list[Item]
    swept: Swept


class Held(Struct):
    """The settlements of one call that concern one lease: of messages, and of the whole of it."""

    queue: QueueRow
    group: GroupRow
    partition: str
    token: bytes
    items: list[Item]
    whole: list[Item]


def settle(session: Session, settlements: Sequence[Settlement], now: Instant) -> Results:
    """Settle each message; one result for each, in order. What was settled before gets its first answer."""
    results, ended = settle_new(session, settlements, now)
    for row in ended:
        session.add_history(row)
    return recall(session, settlements, results, now)


def settle_new(session: Session, settlements: Sequence[Settlement], now: Instant) -> tuple[Results, list[Row]]:
    """Settle what is under a lease and refuse the rest; also the rows that the lease history is to get."""
    results: Results = [STALE] * len(settlements)
    changed: list[Lease] = []
    ended: list[Row] = []
    for held in _by_lease(session, settlements, now):
        if held.queue.is_ordered:
            lease = _settle_partition(session, held, results, ended, now)
            if lease is not None:
                changed.append(lease)
        else:
            ended += _settle_sets(session, held, results, now)
    save_all(session, changed)
    return results, ended


def _settle_sets(session: Session, held: Held, results: Results, now: Instant) -> list[Row]:
    """Settle what one call says of one token of an unordered queue; the rows for the lease history."""
    queue, group, token, whole = held.queue, held.group, held.token, held.whole
    ended: list[Row] = []
    if whole and not held.items:
        whole = sweep_sets(session, queue, group, token, whole, results, ended, now)
        if not whole:
            return ended
    return ended + settle_sets(session, queue, group, token, held.items, whole, results, now)


def _by_lease(session: Session, settlements: Sequence[Settlement], now: Instant) -> Iterable[Held]:
    """Settlements by lease, those of unknown queues and groups left out. One lease's mostly come in a row."""
    leases: dict[tuple[int, str, bytes], Held] = {}
    previous: Settlement | None = None
    held: Held | None = None
    for place, s in enumerate(settlements):
        if (
            previous is None
            or s.token != previous.token
            or s.partition != previous.partition
            or s.group != previous.group
            or s.queue != previous.queue
        ):
            held = _held_by(session, s, leases, now)
        if held is not None:
            (held.whole if s.outcome is Outcome.ACK_THROUGH else held.items).append(Item(place, s))
        previous = s
    return leases.values()


def _held_by(session: Session, s: Settlement, leases: dict[tuple[int, str, bytes], Held], now: Instant) -> Held | None:
    """What the settlements of this one's lease are gathered in."""
    queue = session.find_queue(s.queue)
    group = None if queue is None else session.find_group(queue, s.group)
    if queue is None or group is None:
        return None
    # In an unordered queue the token alone finds its rows.
    partition = s.partition if queue.is_ordered else ""
    key = (group.id, partition, s.token)
    held = leases.get(key)
    if held is None:
        session.mark_active(group, now)
        held = leases[key] = Held(queue, group, partition, s.token, [], [])
    return held


def sort_items(held: Held, leased: set[int], results: Results) -> Sorted:
    """Sort by outcome; a message that is not in the lease, or named a second time, is refused."""
    found = Sorted([], [], [], [], Swept())
    for item in held.items:
        seq = item.settlement.seq
        if seq not in leased:
            results[item.place] = NOT_IN_LEASE
            continue
        leased.discard(seq)
        match item.settlement.outcome:
            case Outcome.ACK:
                found.acks.append(item)
            case Outcome.REJECT:
                found.rejects.append(item)
            case Outcome.NACK:
                found.nacks.append(item)
            case Outcome.RELEASE:
                found.releases.append(item)
    for place, said in held.whole:
        done = sorted(seq for seq in leased if seq <= said.seq)
        results[place] = SettleResult(SettleStatus.COMPLETED, messages=len(done)) if done else NOT_IN_LEASE
        if done:
            leased.difference_update(done)
            found.swept.seqs += done
            found.swept.marks.append(Mark(said.seq, len(done)))
    return found


def _settle_partition(session: Session, held: Held, results: Results, ended: list[Row], now: Instant) -> Lease | None:
    """Settle what one call says of one lease; the row as it has become, or None when nothing changed."""
    queue, group = held.queue, held.group
    if not held.items and len(held.whole) == 1:
        ((place, said),) = held.whole
        results[place], changed = sweep_partition(session, queue, group, said, ended, now)
        return changed
    lease = find_lease(session, group, held.partition)
    if lease is None or lease.token != held.token:
        return None
    unsettled = set(lease.open[: lease.leased])
    found = sort_items(held, unsettled, results)
    if found.releases and len(found.releases) == lease.leased:
        there = _undoable(session, queue, group, lease)
        if there is not None:
            given_back, before = lease.open[: lease.leased], (lease.attempts, lease.leased_at)
            _undo_delivery(session, queue, group, lease, there, found.releases, results, now)
            ended.append(_ended(held, given_back, 0, *before, now, "released", _kept(held, results, found.swept)))
            return lease
    # A release of part of a lease is a nack: somebody got that lease.
    found.nacks += [_counted(item) for item in found.releases]
    head = lease.open[0]
    settled: set[int] = {item.settlement.seq for item in found.acks}.union(found.swept.seqs)
    completed = len(settled)
    if completed:
        group.completed += completed
        session.touch_group(group)
    retried = _bury_hopeless(session, queue, group, lease, found, settled, results, now)
    if not settled and not retried:
        return None
    buried = len(settled) > completed
    given_back = lease.open[: lease.leased] if retried else sorted(settled)
    outcome = "retried" if retried else "dead" if buried else "completed"
    before = (lease.attempts, lease.leased_at)
    if settled:
        lease.open = [seq for seq in lease.open if seq not in settled]
        lease.leased -= len(settled)
    if retried:
        _end_by_nack(session, queue, group, lease, head, retried, results, now)
    elif lease.leased == 0:
        settle_down(session, queue, group, lease, now)
    elif lease.open[0] != head:
        set_leased_head(session, queue, lease)
    _tell_completed(held, found, results, frees=lease.leased == 0 and bool(lease.open or lease.pending))
    kept = _kept(held, results, found.swept) if retried or buried else kept_acks(given_back, found.swept.marks)
    ended.append(_ended(held, given_back, completed, *before, now, outcome, kept))
    return lease


def _tell_completed(held: Held, found: Sorted, results: Results, frees: bool) -> None:
    """Answer acks, of messages and of the lease; ``frees`` when the next of the partition may be had for them."""
    for item in found.acks:
        results[item.place] = _COMPLETED if frees else _COMPLETED_FREES_NONE
    for item in held.whole:
        if results[item.place].code is None:
            results[item.place] = structs.replace(results[item.place], frees=frees)


def _kept(held: Held, results: Results, swept: Swept) -> bytes | None:
    return kept_answers(((item.settlement, results[item.place]) for item in held.items), swept)


def _ended(
    held: Held,
    seqs: list[int],
    completed: int,
    attempt: int,
    leased_at: int,
    now: Instant,
    outcome: str,
    kept: bytes | None,
) -> Row:
    """The row of the lease history for what one call did to a lease."""
    figures = (seqs[0], seqs[-1], len(seqs), completed, attempt, leased_at, now, outcome)
    return (held.queue.id, held.group.name, held.partition, *figures, held.token, kept)


def _bury_hopeless(
    session: Session,
    queue: QueueRow,
    group: GroupRow,
    lease: Lease,
    found: Sorted,
    settled: set[int],
    results: Results,
    now: Instant,
) -> list[Item]:
    """Bury the rejected and those nacked once too often, in the order of seq; the nacks that may try again."""
    exhausted = is_exhausted(queue.settings, lease.attempts)
    hopeless = [(item, DeadReason.REJECTED) for item in found.rejects]
    if exhausted:
        hopeless += [(item, DeadReason.MAX_ATTEMPTS) for item in found.nacks]
    for item, reason in sorted(hopeless, key=lambda pair: pair[0].settlement.seq):
        said = item.settlement
        session.add_failures(queue, group, lease, [said.seq], "dead", said.error, now)
        burial = Burial(said.seq, reason, said.error, lease.attempts)
        results[item.place] = burial_result(bury(session, queue, group, [burial], now))
        settled.add(item.settlement.seq)
    return [] if exhausted else found.nacks


def _counted(release: Item) -> Item:
    return Item(release.place, structs.replace(release.settlement, outcome=Outcome.NACK, retry=Retry.NOW))


def _undoable(session: Session, queue: QueueRow, group: GroupRow, lease: Lease) -> int | None:
    """How many of a lease's messages are still in the log; None when one behind its first was settled.

    Only without such a gap can it be as if they had not been delivered. One row more than are open would show it.
    """
    if lease.attempts > 1:
        return len(lease.open)
    first, until = queue.base | lease.open[0], queue.base | lease.delivered_seq
    values = (queue.id, lease.partition, first, until, group.id, len(lease.open) + 1)
    delivered = session.rows(LEASES_SQL["delivered_of_partition"], values)
    return len(delivered) if {position & MAX_SEQ for (position,) in delivered}.issubset(lease.open) else None


def _undo_delivery(
    session: Session,
    queue: QueueRow,
    group: GroupRow,
    lease: Lease,
    there: int,
    releases: list[Item],
    results: Results,
    now: Instant,
) -> None:
    """Give a lease back that reached nobody: what it delivered for the first time, and is still there, is pending again."""
    held = lease.open[: lease.leased]
    if lease.attempts == 1:
        lease.delivered_seq = held[0] - 1
        lease.pending += there
        lease.open = []
        count_expired(session, group, len(held) - there)
        settle_down(session, queue, group, lease, now)
    else:
        lease.token = None
        lease.leased = 0
        lease.attempts -= 1
        lease.ready_at = lease.leased_at = now
        if queue.may_lose:
            drop_gone(session, queue, group, lease, now)
    for item in releases:
        results[item.place] = SettleResult(SettleStatus.RETRYING, retry_at=now)


def burial_result(dead_letter_queue: str | None) -> SettleResult:
    """What a caller is told of a message that was given up on."""
    status = SettleStatus.DISCARDED if dead_letter_queue is None else SettleStatus.DEAD
    return SettleResult(status, dead_letter_queue=dead_letter_queue)


def _end_by_nack(
    session: Session,
    queue: QueueRow,
    group: GroupRow,
    lease: Lease,
    head: int,
    nacks: list[Item],
    results: Results,
    now: Instant,
) -> None:
    """End the lease: all that is left comes again from its first, one at a time, once the latest retry is due."""
    for item in nacks:
        session.add_failures(queue, group, lease, [item.settlement.seq], "retried", item.settlement.error, now)
    times = [retry_time(queue.settings, item.settlement, lease.attempts, now) for item in nacks]
    attempts = lease.attempts if lease.open[0] == head else 1
    lease.token = None
    lease.leased = 0
    lease.attempts = attempts
    lease.ready_at = max(times)
    lease.leased_at = now
    errors: dict[int, str | None] = {item.settlement.seq: item.settlement.error for item in nacks}
    lease.last_error = errors.get(lease.open[0])
    if lease.open[0] != head:
        set_leased_head(session, queue, lease)
    for item in nacks:
        results[item.place] = SettleResult(SettleStatus.RETRYING, retry_at=Instant(lease.ready_at))
    if queue.may_lose:
        drop_gone(session, queue, group, lease, now)
    group.retried += len(nacks)
    session.touch_group(group)


def renew(session: Session, renewals: Sequence[Renewal], now: Instant) -> list[RenewResult]:
    """Move the deadline of each lease whose token is still good."""
    return [_renew_one(session, renewal, now) for renewal in renewals]


def _renew_one(session: Session, renewal: Renewal, now: Instant) -> RenewResult:
    queue = session.find_queue(renewal.queue)
    group = None if queue is None else session.find_group(queue, renewal.group)
    if queue is None or group is None:
        return RenewResult(None, Code.STALE_LEASE)
    deadline = Instant(now + seconds(renewal.lease_seconds))
    if not queue.is_ordered:
        renewed = renew_sets(session, group, renewal.partition, renewal.token, deadline, now)
        return RenewResult(deadline) if renewed else RenewResult(None, Code.STALE_LEASE)
    lease = find_lease(session, group, renewal.partition)
    if lease is None or lease.token != renewal.token:
        return RenewResult(None, Code.STALE_LEASE)
    # One that had run out begins anew, and none begins ahead of its renewal: put_right goes by that.
    lease.leased_at = now if lease.ready_at <= now else min(lease.leased_at, now)
    lease.ready_at = deadline
    save(session, lease)
    return RenewResult(deadline)
