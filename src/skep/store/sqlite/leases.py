"""Rows of `partition_lease` as structs, and their invariants.

A row exists only while its partition has unsettled messages for its group. After a change call `save`: it writes the row, or deletes a
row without open and pending messages. `settle_down` frees a row, and takes its head, its age and its ready time from the log, so that
no other code computes them.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable

from skep.clock import Instant
from skep.ids import Id
from skep.model import Delivery, PopRequest, Seq, Token
from skep.store.lease import Effects, Ending, Lease, lose, release
from skep.store.rules import ready_at
from skep.store.sqlite.session import MAX_SEQ, GroupRow, QueueRow, Row, Session
from skep.store.statements import load_statements

SQL = load_statements(__package__, "leases")


class LeaseRow(Lease):
    """A row of `partition_lease`, in the order of its columns as they are read; ``open`` is unpacked."""

    group_id: int
    head_seq: int
    expires_at: int | None


PARTITION, OPEN, LEASED, ATTEMPTS, TOKEN, LEASED_AT = 0, 3, 4, 5, 6, 7
"""Indexes of columns in a row of `partition_lease`, before it is unpacked."""


def pack(seqs: Iterable[int]) -> bytes | None:
    """Seqs as 8 bytes each; None when there are none."""
    return array("q", seqs).tobytes() or None


def unpack(packed: bytes | None) -> list[int]:
    """The seqs that `pack` packed."""
    return array("q", packed).tolist() if packed else []


def lease_of_row(row: Row) -> LeaseRow:
    """A row of a `partition_lease` statement as a struct."""
    values = list(row)
    values[OPEN] = unpack(row[OPEN])
    return LeaseRow(*values)


def find_lease(session: Session, group: GroupRow, partition: str) -> LeaseRow | None:
    """The row of a partition, or None."""
    row = session.row(SQL["lease_of_partition"], (group.id, partition))
    return None if row is None else lease_of_row(row)


def save(session: Session, lease: LeaseRow) -> None:
    """Write the row, or delete it when it has no open or pending messages."""
    save_all(session, [lease])


def save_all(session: Session, leases: list[LeaseRow]) -> None:
    """Write or delete rows; no row may be in the list twice."""
    over = [(lease.group_id, lease.partition) for lease in leases if lease.is_empty]
    if over:
        session.db.executemany(SQL["delete_lease"], over)
    if len(over) < len(leases):
        kept = [_columns(lease) for lease in leases if not lease.is_empty]
        session.db.executemany(SQL["save_lease"], kept)


def _columns(lease: LeaseRow) -> Row:
    return (
        lease.partition, lease.delivered_seq, lease.pending, pack(lease.open), lease.leased, lease.attempts, lease.token,
        lease.leased_at, lease.ready_at, lease.oldest_at, lease.newest_at, lease.last_error, lease.consumer, lease.group_id,
        lease.head_seq, lease.expires_at,
    )  # fmt: skip


def read_next(session: Session, queue: QueueRow, group: GroupRow, lease: LeaseRow, limit: int) -> Iterable[Row]:
    """The next discovered messages beyond ``delivered_seq``, in order. They are read lazily."""
    if limit == 1:
        # The row knows its head, and a look-up by position costs a fraction of one by partition.
        head = session.row(SQL["message_at"], (queue.base | lease.head_seq,))
        if head is not None:
            return [head]
    after, until = queue.base | lease.delivered_seq, queue.base | group.scan_seq
    found: Iterable[Row] = session.db.execute(
        SQL["next_of_partition"], (queue.id, lease.partition, after, until, group.id, limit)
    )
    return found


def settle_down(session: Session, queue: QueueRow, group: GroupRow, lease: LeaseRow, now: Instant) -> None:
    """Free the row, with head, age and ready_at from its next message. Messages that are no longer in the log count as expired.

    If the clock was put back, a message from the future counts as created now.
    """
    release(lease, head_stays=False)
    lease.last_error = None
    set_head(session, queue, group, lease)
    if lease.open:
        lease.ready_at = min(lease.oldest_at, now)
    elif lease.pending:
        lease.ready_at = ready_at(queue.settings, min(lease.oldest_at, now), min(lease.newest_at, now))


def put_in_order(session: Session, queue: QueueRow, group: GroupRow, lease: LeaseRow, head: int, now: Instant) -> None:
    """Take head, age and ready time of a settled row from the log; ``head`` is the first open message before the settlement."""
    if lease.token is None and not lease.is_resting:
        settle_down(session, queue, group, lease, now)
        return
    if lease.open[0] != head:
        set_leased_head(session, queue, lease)
    if lease.token is None and queue.may_lose:
        drop_gone(session, queue, group, lease, now)


def set_head(session: Session, queue: QueueRow, group: GroupRow, lease: LeaseRow) -> None:
    """Take head and age from the first unsettled message, and drop messages that are no longer in the log."""
    while lease.open:
        found = session.row(SQL["created_at"], (queue.base | lease.open[0],))
        if found is not None:
            _set_age(queue, lease, lease.open[0], found[0])
            return
        del lease.open[0]
        lease.leased = max(0, lease.leased - 1)
        lease.attempts = 1 if lease.open else 0
        count_expired(session, group, 1)
    if lease.pending <= 0:
        return
    after, until = queue.base | lease.delivered_seq, queue.base | group.scan_seq
    found = session.row(SQL["head_of_partition"], (queue.id, lease.partition, after, until, group.id))
    if found is None:
        count_expired(session, group, lease.pending)
        lease.pending = 0
    else:
        _set_age(queue, lease, found[0] & MAX_SEQ, found[1])


def lose_head(session: Session, queue: QueueRow, group: GroupRow, lease: LeaseRow, now: Instant) -> None:
    """Free a row whose head is gone. The messages that were delivered with it wait for the same retry."""
    retry_at, said_at = lease.ready_at, lease.leased_at
    settle_down(session, queue, group, lease, now)
    if lease.open:
        lease.ready_at, lease.leased_at = retry_at, said_at


def drop_gone(session: Session, queue: QueueRow, group: GroupRow, lease: LeaseRow, now: Instant) -> None:
    """Remove messages that are no longer in the log from a row whose lease has ended."""
    there = {seq for seq in lease.open if session.row(SQL["created_at"], (queue.base | seq,)) is not None}
    if len(there) < len(lease.open):
        effects = Effects()
        if lose(lease, there, effects):
            lose_head(session, queue, group, lease, now)
        count_expired(session, group, effects.expired)


def set_leased_head(session: Session, queue: QueueRow, lease: LeaseRow) -> None:
    """Take head and age from the first open message. A purged message stays in the row until its next delivery."""
    found = session.row(SQL["created_at"], (queue.base | lease.open[0],))
    _set_age(queue, lease, lease.open[0], lease.oldest_at if found is None else found[0])


def _set_age(queue: QueueRow, lease: LeaseRow, seq: int, created_at: int) -> None:
    lifetime = queue.lifetime_micros
    lease.head_seq = seq
    lease.oldest_at = created_at
    lease.expires_at = None if lifetime is None else created_at + lifetime


def count_expired(session: Session, group: GroupRow, count: int) -> None:
    """Note that the group will never see ``count`` messages."""
    if count:
        group.expired += count
        session.touch_group(group)


def history_row(queue: QueueRow, group: GroupRow, e: Ending, now: Instant) -> Row:
    """A row of the lease history."""
    return (
        queue.id, group.name, e.partition, e.first_seq, e.last_seq, e.messages, e.completed, e.attempt, e.leased_at, now,
        e.outcome, e.token, e.answer,
    )  # fmt: skip


def deliveries_of(rows: list[Row], request: PopRequest, attempt: int, deadline: Instant) -> list[Delivery]:
    """Message rows as deliveries."""
    queue, group, token = request.queue, request.group, Token(request.token)
    return [
        Delivery(
            queue, group, partition, Seq(position & MAX_SEQ), Id(id_), transaction_id, Id(trace_id or id_), headers,
            content_type, payload, priority, created_at, attempt, token, deadline,
        )
        for position, created_at, priority, id_, partition, transaction_id, trace_id, content_type, headers, payload in rows
    ]  # fmt: skip
