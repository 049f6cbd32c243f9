"""Rows of `partition_lease` as structs, and what must hold of them whoever changes them.

A row exists only while its partition has something unsettled for its group. Whoever changes one calls `save`, which
writes it or, when nothing is open and nothing pending, deletes it. `settle_down` makes a row free with its head, its
age and its time to be ready taken from the log, so that no other code computes them.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable

from msgspec import Struct

from skep.clock import Instant
from skep.ids import Id
from skep.model import Delivery, PopRequest, Seq, Token
from skep.store.rules import ready_at
from skep.store.sqlite.session import MAX_SEQ, GroupRow, QueueRow, Row, Session
from skep.store.statements import load_statements

SQL = load_statements(__package__, "leases")


class Lease(Struct):
    """A row of `partition_lease`, in the order of its columns; ``open`` is unpacked."""

    group_id: int
    partition: str
    delivered_seq: int
    head_seq: int
    pending: int
    open: list[int]
    leased: int
    attempts: int
    token: bytes | None
    leased_at: int
    ready_at: int
    oldest_at: int
    newest_at: int
    expires_at: int | None
    last_error: str | None
    consumer: str | None

    def is_live(self, now: Instant) -> bool:
        """Whether a consumer holds it and its deadline has not passed."""
        return self.token is not None and self.ready_at > now


def pack(seqs: Iterable[int]) -> bytes | None:
    """Seqs as 8 bytes each; None when there are none."""
    return array("q", seqs).tobytes() or None


def unpack(packed: bytes | None) -> list[int]:
    """What `pack` packed."""
    return array("q", packed).tolist() if packed else []


def lease_of_row(row: Row) -> Lease:
    """A row of a `partition_lease` statement as a struct."""
    values = list(row)
    values[5] = unpack(row[5])
    return Lease(*values)


def find_lease(session: Session, group: GroupRow, partition: str) -> Lease | None:
    """The row of a partition, or None."""
    row = session.row(SQL["lease_of_partition"], (group.id, partition))
    return None if row is None else lease_of_row(row)


def save(session: Session, lease: Lease) -> None:
    """Write the row, or delete it when it has nothing left to do."""
    save_all(session, [lease])


def save_all(session: Session, leases: list[Lease]) -> None:
    """Write or delete rows, each of which is in the list once."""
    over = [(lease.group_id, lease.partition) for lease in leases if not lease.open and lease.pending <= 0]
    if over:
        session.db.executemany(SQL["delete_lease"], over)
    if len(over) < len(leases):
        kept = [_columns(lease) for lease in leases if lease.open or lease.pending > 0]
        session.db.executemany(SQL["save_lease"], kept)


def _columns(lease: Lease) -> Row:
    return (
        lease.group_id,
        lease.partition,
        lease.delivered_seq,
        lease.head_seq,
        lease.pending,
        pack(lease.open),
        lease.leased,
        lease.attempts,
        lease.token,
        lease.leased_at,
        lease.ready_at,
        lease.oldest_at,
        lease.newest_at,
        lease.expires_at,
        lease.last_error,
        lease.consumer,
    )


def read_next(session: Session, queue: QueueRow, group: GroupRow, lease: Lease, limit: int) -> Iterable[Row]:
    """The next discovered messages beyond ``delivered_seq``, in order; those that nobody takes are not read."""
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


def settle_down(session: Session, queue: QueueRow, group: GroupRow, lease: Lease, now: Instant) -> None:
    """Make the row free, with head, age and ready_at from its next message. What cannot be read counts as expired.

    It does not wait for a time that lies ahead since the clock was put back: such a message counts as created now.
    """
    free(lease)
    lease.leased_at = 0
    set_head(session, queue, group, lease)
    if lease.open:
        lease.ready_at = min(lease.oldest_at, now)
    elif lease.pending:
        lease.ready_at = ready_at(queue.settings, min(lease.oldest_at, now), min(lease.newest_at, now))


def free(lease: Lease) -> None:
    """End the lease; what is open stays open, and has been delivered once."""
    lease.token = None
    lease.leased = 0
    lease.attempts = 1 if lease.open else 0
    lease.last_error = None


def set_head(session: Session, queue: QueueRow, group: GroupRow, lease: Lease) -> None:
    """Take head and age from the first unsettled message, dropping what is no longer in the log."""
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


def lose_head(session: Session, queue: QueueRow, group: GroupRow, lease: Lease, now: Instant) -> None:
    """Make the row free without its head, which has gone: what was delivered with it waits for the same retry."""
    retry_at, said_at = lease.ready_at, lease.leased_at
    settle_down(session, queue, group, lease, now)
    if lease.open:
        lease.ready_at, lease.leased_at = retry_at, said_at


def drop_gone(session: Session, queue: QueueRow, group: GroupRow, lease: Lease, now: Instant) -> bool:
    """Take what is no longer in the log out of a row whose lease is over; whether anything was. It counts as expired."""
    gone = [seq for seq in lease.open if session.row(SQL["created_at"], (queue.base | seq,)) is None]
    if not gone:
        return False
    head = lease.open[0]
    lease.open = [seq for seq in lease.open if seq not in gone]
    count_expired(session, group, len(gone))
    if not lease.open or lease.open[0] != head:
        lose_head(session, queue, group, lease, now)
    return True


def set_leased_head(session: Session, queue: QueueRow, lease: Lease) -> None:
    """Take head and age from the first open message. One that was purged stays, until it is to be handed out again."""
    found = session.row(SQL["created_at"], (queue.base | lease.open[0],))
    _set_age(queue, lease, lease.open[0], lease.oldest_at if found is None else found[0])


def _set_age(queue: QueueRow, lease: Lease, seq: int, created_at: int) -> None:
    lifetime = queue.lifetime_micros
    lease.head_seq = seq
    lease.oldest_at = created_at
    lease.expires_at = None if lifetime is None else created_at + lifetime


def count_expired(session: Session, group: GroupRow, count: int) -> None:
    """Note that the group will never see ``count`` messages."""
    if count:
        group.expired += count
        session.touch_group(group)


def add_history(
    session: Session,
    queue: QueueRow,
    group: GroupRow,
    lease: Lease,
    seqs: list[int],
    completed: int,
    outcome: str,
    now: Instant,
) -> None:
    """Write down what became of ``seqs`` of a lease in one call."""
    record(session, queue, group, lease.partition, seqs, completed, lease.attempts, lease.leased_at, now, outcome)


def record(
    session: Session,
    queue: QueueRow,
    group: GroupRow,
    partition: str,
    seqs: list[int],
    completed: int,
    attempt: int,
    leased_at: int,
    now: Instant,
    outcome: str,
) -> None:
    """Add a row to the lease history, of something that nobody was answered."""
    values = (min(seqs), max(seqs), len(seqs), completed, attempt, leased_at, now, outcome, None, None)
    session.add_history((queue.id, group.name, partition, *values))


def deliveries_of(rows: list[Row], request: PopRequest, attempt: int, deadline: Instant) -> list[Delivery]:
    """Messages as they are handed out."""
    queue, group, token = request.queue, request.group, Token(request.token)
    return [
        Delivery(
            queue, group, partition, Seq(position & MAX_SEQ), Id(id_), transaction_id, Id(trace_id or id_), headers,
            content_type, payload, priority, created_at, attempt, token, deadline,
        )
        for position, created_at, priority, id_, partition, transaction_id, trace_id, content_type, headers, payload in rows
    ]  # fmt: skip
