"""Settling and renewing, fenced by the lease's token (I6): a settlement with a stale token is refused and changes nothing.

The settlements of a call are grouped by lease. Each message is settled by itself; a refused one does not affect the others. Acks of
the whole lease come last, for the messages that the call does not name. Calls that only ack a whole lease take a shortcut
(`whole_leases`). The answers are kept in the lease's row of the history.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from msgspec import Struct, structs

from skep.clock import Instant, seconds
from skep.errors import Code
from skep.model import Outcome, Renewal, RenewResult, Settlement, SettleResult
from skep.store.lease import REFUSED_STALE, Effects, is_whole_release, settle_lease, still_there, undo_delivery
from skep.store.lease import renew as renew_lease
from skep.store.outcomes import kept_answers
from skep.store.sqlite.bury import apply_settled
from skep.store.sqlite.leases import SQL as LEASES_SQL
from skep.store.sqlite.leases import (
    TOKEN,
    LeaseRow,
    find_lease,
    history_row,
    lease_of_row,
    put_in_order,
    save,
    save_all,
)
from skep.store.sqlite.outcomes import recall
from skep.store.sqlite.session import MAX_SEQ, GroupRow, QueueRow, Row, Session
from skep.store.sqlite.settle_sets import renew_sets, settle_held_sets
from skep.store.sqlite.whole_leases import complete_named, sweep_partition, sweep_sets

Results = list[SettleResult]


class Held(Struct):
    """The settlements of one call that concern one lease, and their places in the call's results."""

    queue: QueueRow
    group: GroupRow
    partition: str
    token: bytes
    said: list[Settlement]
    places: list[int]


def settle(session: Session, settlements: Sequence[Settlement], now: Instant) -> Results:
    """Settle each message; returns a result for each, in order. A repeated settlement gets its first answer."""
    results, ended = settle_new(session, settlements, now)
    for row in ended:
        session.add_history(row)
    return recall(session, settlements, results, now)


def settle_new(session: Session, settlements: Sequence[Settlement], now: Instant) -> tuple[Results, list[Row]]:
    """Settle messages under a lease and refuse the others; also returns the new rows of the lease history."""
    results: Results = [REFUSED_STALE] * len(settlements)
    changed: list[LeaseRow] = []
    ended: list[Row] = []
    for held in _by_lease(session, settlements, now):
        if held.queue.is_ordered:
            lease = _settle_partition(session, held, results, ended, now)
            if lease is not None:
                changed.append(lease)
        else:
            _settle_sets(session, held, results, ended, now)
    save_all(session, changed)
    return results, ended


def _settle_sets(session: Session, held: Held, results: Results, ended: list[Row], now: Instant) -> None:
    """Apply the settlements of one token of an unordered queue, and set their results."""
    if all(said.outcome is Outcome.ACK_THROUGH for said in held.said):
        left = sweep_sets(session, held.queue, held.group, held.token, held.said, held.places, results, ended, now)
        if not left:
            return
        held = structs.replace(held, said=[held.said[i] for i in left], places=[held.places[i] for i in left])
    answers, endings = settle_held_sets(session, held.queue, held.group, held.token, held.said, now)
    ended += [history_row(held.queue, held.group, ending, now) for ending in endings]
    for place, answer in zip(held.places, answers, strict=True):
        results[place] = answer


def _settle_partition(
    session: Session, held: Held, results: Results, ended: list[Row], now: Instant
) -> LeaseRow | None:
    """Apply the settlements of one lease, and set their results; returns the changed row, None when nothing changed."""
    queue, group, said = held.queue, held.group, held.said
    row = session.row(LEASES_SQL["lease_of_partition"], (group.id, held.partition))
    if row is None or row[TOKEN] != held.token:
        return None
    if len(said) == 1 and said[0].outcome is Outcome.ACK_THROUGH:
        results[held.places[0]], changed = sweep_partition(session, queue, group, row, said[0], ended, now)
        return changed
    if (completed := complete_named(session, queue, group, row, said, ended, now)) is not None:
        answer, changed = completed
        for place in held.places:
            results[place] = answer
        return changed
    lease = lease_of_row(row)
    head = lease.open[0]
    effects = Effects()
    there = _undoable(session, queue, group, lease) if is_whole_release(lease, said) else None
    if there is not None:
        answers = undo_delivery(lease, said, there, now, effects)
    else:
        answers = settle_lease(lease, said, queue.settings, now, effects)
    answers, endings = apply_settled(session, queue, group, answers, effects, now)
    for ending in endings:
        kept = kept_answers(zip(said, answers, strict=True), ending.swept)
        ended.append(history_row(queue, group, structs.replace(ending, answer=kept), now))
    for place, answer in zip(held.places, answers, strict=True):
        results[place] = answer
    if not endings:
        return None
    put_in_order(session, queue, group, lease, head, now)
    return lease


def _by_lease(session: Session, settlements: Sequence[Settlement], now: Instant) -> Iterable[Held]:
    """Settlements by lease, without unknown queues and groups. The settlements of one lease mostly follow each other."""
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
            held.said.append(s)
            held.places.append(place)
        previous = s
    return leases.values()


def _held_by(session: Session, s: Settlement, leases: dict[tuple[int, str, bytes], Held], now: Instant) -> Held | None:
    """The group of settlements for the lease of this settlement; None when its queue or group is unknown."""
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


def _undoable(session: Session, queue: QueueRow, group: GroupRow, lease: LeaseRow) -> int | None:
    """How many of a lease's messages are still in the log; None when a message behind its first was settled (an extra row shows it)."""
    if lease.attempts > 1:
        return len(lease.open)
    first, until = queue.base | lease.open[0], queue.base | lease.delivered_seq
    values = (queue.id, lease.partition, first, until, group.id, len(lease.open) + 1)
    delivered = session.rows(LEASES_SQL["delivered_of_partition"], values)
    return still_there(lease, [position & MAX_SEQ for (position,) in delivered])


def renew(session: Session, renewals: Sequence[Renewal], now: Instant) -> list[RenewResult]:
    """Move the deadline of each lease whose token is still valid."""
    return [_renew_one(session, renewal, now) for renewal in renewals]


def _renew_one(session: Session, renewal: Renewal, now: Instant) -> RenewResult:
    queue = session.find_queue(renewal.queue)
    group = None if queue is None else session.find_group(queue, renewal.group)
    if queue is None or group is None:
        return RenewResult(None, Code.STALE_LEASE)
    deadline = Instant(now + seconds(renewal.lease_seconds))
    if not queue.is_ordered:
        renewed = renew_sets(session, queue, group, renewal, deadline, now)
        return RenewResult(deadline) if renewed else RenewResult(None, Code.STALE_LEASE)
    lease = find_lease(session, group, renewal.partition)
    if lease is None or lease.token != renewal.token or not (renewal.seq is None or renewal.seq in lease.held):
        return RenewResult(None, Code.STALE_LEASE)
    renew_lease(lease, deadline, now)
    save(session, lease)
    return RenewResult(deadline)
