"""Correcting groups when messages leave the log unsettled: by purge, replay, deletion, forgetting, or retention that does not wait.

An unsettled message counts as expired at once, discovered or not. A discovered message leaves its lease row. A message under a live
lease stays in that lease, and its settlement counts as usual.
"""

from __future__ import annotations

from typing import NamedTuple

from skep.clock import Instant
from skep.model import Token
from skep.store.sqlite.groups import release
from skep.store.sqlite.leases import LeaseRow, count_expired, find_lease, lose_head, save, set_head
from skep.store.sqlite.session import GroupRow, QueueRow, Session
from skep.store.sqlite.sets import refresh_age, save_set, sets_of


class Gone(NamedTuple):
    """A message that was deleted from the log."""

    seq: int
    partition: str
    audience: int | None


def fence(session: Session, queue: QueueRow, gone: list[Gone], now: Instant) -> None:
    """End the leases that hold some of these messages, as `release_lease` does: so no settlement meets a message that is deleted."""
    by_partition: dict[str, set[int]] = {}
    for one in gone:
        by_partition.setdefault(one.partition, set()).add(one.seq)
    for group in session.groups(queue).values():
        for partition, seqs in by_partition.items():
            for token in tokens_of(session, queue, group, partition, seqs):
                release(session, queue, group, partition, token, now)


def tokens_of(session: Session, queue: QueueRow, group: GroupRow, partition: str, seqs: set[int]) -> set[Token]:
    """The tokens under which a group holds some of these messages."""
    if not queue.is_ordered:
        held = sets_of(session, group, partition)
        return {Token(one.token) for one in held if one.token is not None and not seqs.isdisjoint(one.seqs)}
    lease = find_lease(session, group, queue.stored_partition(partition))
    if lease is None or lease.token is None or seqs.isdisjoint(lease.held):
        return set()
    return {Token(lease.token)}


def forget_messages(session: Session, queue: QueueRow, gone: list[Gone], now: Instant) -> None:
    """Correct every group of the queue, after the messages were deleted."""
    for group in session.groups(queue).values():
        by_partition: dict[str, set[int]] = {}
        ahead = others = 0
        for seq, partition, audience in gone:
            is_meant = audience in (None, group.id) or group.external
            if seq > group.scan_seq:
                ahead += 1
                others += not is_meant
            elif group.start_seq < seq and is_meant:
                name = queue.stored_partition(partition) if queue.is_ordered else partition
                by_partition.setdefault(name, set()).add(seq)
        if ahead:
            group.gaps += ahead
            group.skipped += others
            group.expired += ahead - others
            session.touch_group(group)
        for partition, seqs in by_partition.items():
            if queue.is_ordered:
                _forget_in_partition(session, queue, group, partition, seqs, now)
            else:
                _forget_in_sets(session, queue, group, partition, seqs, now)


def _forget_in_partition(
    session: Session, queue: QueueRow, group: GroupRow, partition: str, seqs: set[int], now: Instant
) -> None:
    lease = find_lease(session, group, partition)
    if lease is None:
        return
    kept = set(lease.open[: lease.leased]) if lease.is_live(now) else set()
    dropped = {seq for seq in lease.open if seq in seqs and seq not in kept}
    waiting = sum(seq > lease.delivered_seq for seq in seqs)
    if not dropped and not waiting:
        return
    count_expired(session, group, len(dropped) + waiting)
    lease.pending -= waiting
    _drop_open(session, queue, group, lease, dropped, now)
    save(session, lease)


def _drop_open(
    session: Session, queue: QueueRow, group: GroupRow, lease: LeaseRow, dropped: set[int], now: Instant
) -> None:
    """Remove seqs from ``open``, and correct the row in whatever state it is."""
    head = lease.open[0] if lease.open else None
    left = sum(seq not in dropped for seq in lease.open[: lease.leased])
    lease.open = [seq for seq in lease.open if seq not in dropped]
    if lease.is_live(now):
        return
    if lease.token is not None and left > 0:
        # The lease ran out, but its token is valid until the next claim.
        lease.leased = left
        if lease.open[0] != head:
            lease.attempts = 1
            set_head(session, queue, group, lease)
    elif not lease.open or lease.open[0] != head:
        lose_head(session, queue, group, lease, now)


def _forget_in_sets(
    session: Session, queue: QueueRow, group: GroupRow, partition: str, seqs: set[int], now: Instant
) -> None:
    for held in sets_of(session, group, partition):
        dropped = seqs.intersection(held.seqs)
        if not dropped or held.is_live(now):
            continue
        count_expired(session, group, len(dropped))
        held.seqs = [seq for seq in held.seqs if seq not in dropped]
        refresh_age(session, queue, held)
        save_set(session, held)
