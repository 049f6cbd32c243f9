"""Positions in the log by time or by size. created_at never falls along the log, so a binary search finds a time."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from skep.clock import Instant
from skep.model import Seq
from skep.store.sqlite.database import Database
from skep.store.sqlite.session import MAX_SEQ, QueueRow, Row, Session
from skep.store.statements import load_statements

SQL = load_statements(__package__, "log_position")


def message_at_or_after(session: Session, queue: QueueRow, seq: int) -> tuple[int, int] | None:
    """Seq and created_at of the first message at or after ``seq``."""
    row = session.row(SQL["at_or_after"], (queue.base | seq, queue.base | MAX_SEQ))
    return None if row is None else (row[0] & MAX_SEQ, row[1])


def unarchived_at(session: Session, queue: QueueRow) -> int | None:
    """The time of the first message of the log that no archive has reported as safe in its lake; None when there is none."""
    first = max(queue.first_seq, (session.archived_seq(queue) or 0) + 1)
    found = message_at_or_after(session, queue, first)
    return None if found is None else found[1]


def first_since(look: Callable[[int], Row | None], low: int, high: int, at: int) -> int:
    """The first position whose row is not older than ``at``, by binary search; ``high`` when there is none below it.

    ``look`` finds the first row at or after a position: its position and its time. Times never fall along the rows.
    """
    while low < high:
        middle = (low + high) // 2
        row = look(middle)
        if row is None or row[1] >= at:
            high = middle
        else:
            low = row[0] + 1
    return low


def find_seq_at(session: Session, queue: QueueRow, at: int) -> int:
    """The seq of the first message created at or after ``at``; last seq + 1 when there is none."""
    low, high = queue.first_seq, queue.last_seq + 1
    beginning = message_at_or_after(session, queue, 1)
    if beginning is not None:
        low = min(low, beginning[0])
    low = first_since(lambda seq: message_at_or_after(session, queue, seq), low, high, at)
    found = message_at_or_after(session, queue, low) if low <= queue.last_seq else None
    return queue.last_seq + 1 if found is None else found[0]


def first_seqs_at(session: Session, tenant: str, queues: Sequence[str], at: Instant) -> dict[str, Seq]:
    """Like `find_seq_at` in each log, without messages before the log's first seq."""
    found = session.find_queues(tenant, queues)
    return {name: Seq(max(find_seq_at(session, queue, at), queue.first_seq)) for name, queue in found.items()}


async def last_seqs_within(
    db: Database, tenant: str, firsts: Mapping[str, Seq], max_bytes: int, max_rows: int
) -> dict[str, Seq]:
    """The last seq of each range whose payloads fit into ``max_bytes``. A bulk reader walks the ranges."""
    return await db.read_bulk(_last_seqs_within, tenant, firsts, max_bytes, max_rows)


def _last_seqs_within(
    session: Session, tenant: str, firsts: Mapping[str, Seq], max_bytes: int, max_rows: int
) -> dict[str, Seq]:
    found = session.find_queues(tenant, firsts)
    return {name: _last_seq_within(session, queue, firsts[name], max_bytes, max_rows) for name, queue in found.items()}


def _last_seq_within(session: Session, queue: QueueRow, first: Seq, max_bytes: int, max_rows: int) -> Seq:
    low, high = max(first, queue.first_seq), min(queue.last_seq, max(first, queue.first_seq) + max_rows - 1)
    if low > high:
        return Seq(queue.last_seq)
    beyond = session.row(SQL["beyond"], (queue.base | low, queue.base | high, max_bytes))
    if beyond is None:
        return Seq(high)
    seq, is_first = beyond[0] & MAX_SEQ, beyond[1]
    return Seq(seq if is_first else seq - 1)
