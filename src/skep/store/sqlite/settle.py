"""Settling and renewing, fenced by the lease's token (I6): a stale one changes nothing and is told so.

A call's settlements are taken together per lease: first all acks and rejects, then the nacks. Each message is settled
on its own merits; a refused one does not hinder the others.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from msgspec import Struct

from skep.clock import Instant, seconds
from skep.errors import Code
from skep.model import (
    DeadReason,
    Outcome,
    QueueKey,
    Renewal,
    RenewResult,
    Settlement,
    SettleResult,
    SettleStatus,
)
from skep.store.rules import is_exhausted, retry_time
from skep.store.sqlite.bury import Burial, bury
from skep.store.sqlite.leases import (
    Lease,
    add_history,
    find_lease,
    save,
    set_head,
    set_leased_head,
    settle_down,
)
from skep.store.sqlite.session import GroupRow, QueueRow, Session
from skep.store.sqlite.settle_sets import renew_sets, settle_sets

_COMPLETED = SettleResult(SettleStatus.COMPLETED)
_STALE = SettleResult(SettleStatus.REFUSED, Code.STALE_LEASE)
_NOT_IN_LEASE = SettleResult(SettleStatus.REFUSED, Code.NOT_IN_LEASE)

Results = list[SettleResult]


class LeaseKey(NamedTuple):
    """What a lease is found by."""

    queue: QueueKey
    group: str
    partition: str
    token: bytes


class Item(NamedTuple):
    """One settlement and its place in the call's results."""

    place: int
    settlement: Settlement


class Sorted(Struct):
    """The settlements of one lease by what they ask for, those refused left out."""

    acks: list[Item]
    rejects: list[Item]
    nacks: list[Item]


def settle(session: Session, settlements: Sequence[Settlement], now: Instant) -> Results:
    """Settle each message; one result for each, in order."""
    results: Results = [_STALE] * len(settlements)
    for (key, group_name, partition, token), items in _by_row(session, settlements).items():
        queue = session.find_queue(key)
        group = None if queue is None else session.find_group(queue, group_name)
        if queue is None or group is None:
            continue
        if queue.is_ordered:
            _settle_partition(session, queue, group, partition, token, items, results, now)
        else:
            settle_sets(session, queue, group, token, [(i.place, i.settlement) for i in items], results, now)
    return results


def _by_row(session: Session, settlements: Sequence[Settlement]) -> dict[LeaseKey, list[Item]]:
    """Settlements by what one lease is kept under: all of a fifo queue's are one lease, whatever their partitions."""
    leases = _by_lease(settlements)
    if len(leases) <= 1:
        return leases
    merged: dict[LeaseKey, list[Item]] = {}
    for key, items in leases.items():
        queue = session.find_queue(key.queue)
        partition = key.partition if queue is None else settle_partition(queue, key.partition)
        merged.setdefault(key._replace(partition=partition), []).extend(items)
    for items in merged.values():
        items.sort(key=lambda item: item.place)
    return merged


def settle_partition(queue: QueueRow, partition: str) -> str:
    """The partition that settlements are taken together by: in an unordered queue the token alone finds its rows."""
    return queue.stored_partition(partition) if queue.is_ordered else ""


def _by_lease(settlements: Sequence[Settlement]) -> dict[LeaseKey, list[Item]]:
    """Settlements by lease. Those of one lease mostly come in a row, which saves most look-ups."""
    leases: dict[LeaseKey, list[Item]] = {}
    previous: Settlement | None = None
    items: list[Item] = []
    for index, s in enumerate(settlements):
        if (
            previous is None
            or s.token != previous.token
            or s.partition != previous.partition
            or s.group != previous.group
            or s.queue != previous.queue
        ):
            items = leases.setdefault(LeaseKey(s.queue, s.group, s.partition, s.token), [])
        items.append(Item(index, s))
        previous = s
    return leases


def sort_items(items: list[Item], leased: set[int], results: Results) -> Sorted:
    """Sort by outcome; a message that is not in the lease, or named a second time, is refused."""
    found = Sorted([], [], [])
    for item in items:
        seq = item.settlement.seq
        if seq not in leased:
            results[item.place] = _NOT_IN_LEASE
            continue
        leased.discard(seq)
        match item.settlement.outcome:
            case Outcome.ACK:
                found.acks.append(item)
            case Outcome.REJECT:
                found.rejects.append(item)
            case Outcome.NACK:
                found.nacks.append(item)
    return found


def _settle_partition(
    session: Session,
    queue: QueueRow,
    group: GroupRow,
    partition: str,
    token: bytes,
    items: list[Item],
    results: Results,
    now: Instant,
) -> None:
    lease = find_lease(session, group, queue.stored_partition(partition))
    if lease is None or lease.token != token:
        return
    unsettled = set(lease.open[: lease.leased])
    found = sort_items(items, unsettled, results)
    head = lease.open[0]
    for item in found.acks:
        results[item.place] = _COMPLETED
    if found.acks:
        group.completed += len(found.acks)
        session.touch_group(group)
    settled: set[int] = {item.settlement.seq for item in found.acks}
    retried = _bury_hopeless(session, queue, group, lease, found, settled, results, now)
    if not settled and not retried:
        return
    buried = len(settled) > len(found.acks)
    given_back = lease.open[: lease.leased] if retried else list(settled)
    outcome = "dead" if buried else "retried" if retried else "completed"
    add_history(session, queue, group, lease, given_back, len(found.acks), outcome, now)
    if settled:
        lease.open = [seq for seq in lease.open if seq not in settled]
        lease.leased -= len(settled)
    if retried:
        _end_by_nack(session, queue, group, lease, head, retried, results, now)
    elif lease.leased == 0:
        settle_down(session, queue, group, lease)
    elif lease.open[0] != head:
        set_leased_head(session, queue, lease)
    save(session, lease)


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
        burial = Burial(item.settlement.seq, reason, item.settlement.error, lease.attempts)
        results[item.place] = burial_result(bury(session, queue, group, [burial], now))
        settled.add(item.settlement.seq)
    return [] if exhausted else found.nacks


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
    times = [retry_time(queue.settings, item.settlement, lease.attempts, now) for item in nacks]
    attempts = lease.attempts if lease.open[0] == head else 1
    lease.token = None
    lease.leased = 0
    lease.attempts = attempts
    lease.ready_at = max(times)
    errors: dict[int, str | None] = {item.settlement.seq: item.settlement.error for item in nacks}
    lease.last_error = errors.get(lease.open[0])
    if lease.open[0] != head:
        set_head(session, queue, group, lease)
    for item in nacks:
        results[item.place] = SettleResult(SettleStatus.RETRYING, retry_at=Instant(lease.ready_at))
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
        renewed = renew_sets(session, group, renewal.partition, renewal.token, deadline)
        return RenewResult(deadline) if renewed else RenewResult(None, Code.STALE_LEASE)
    lease = find_lease(session, group, queue.stored_partition(renewal.partition))
    if lease is None or lease.token != renewal.token:
        return RenewResult(None, Code.STALE_LEASE)
    lease.ready_at = deadline
    save(session, lease)
    return RenewResult(deadline)
