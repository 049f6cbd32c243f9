"""Finding seqs in the log: by a time, and by the bytes of payloads."""

from __future__ import annotations

from skep.clock import Instant
from skep.model import QueueKey, Seq
from skep.store.postgres import queues
from skep.store.postgres.browse import log_bounds
from skep.store.postgres.connection import Connection
from skep.store.statements import load_statements

SQL = load_statements(__package__, "log_position")


async def first_seq_at(connection: Connection, key: QueueKey, at: Instant) -> Seq:
    """The first seq at or after an instant."""
    queue = await queues.need(connection, key)
    return Seq(await connection.fetchval(SQL["first_seq_at"], queue.id, at))


async def last_seq_within(connection: Connection, key: QueueKey, first: Seq, max_bytes: int, max_rows: int) -> Seq:
    """The last seq up to which payloads from ``first`` on fit into ``max_bytes``, at least one and at most ``max_rows`` seqs on."""
    bounds = await log_bounds(connection, key)
    queue = await queues.need(connection, key)
    low = max(first, bounds.first_seq)
    high = min(bounds.last_seq, low + max_rows - 1)
    if low > high:
        return bounds.last_seq
    beyond = await connection.fetchrow(SQL["beyond"], queue.id, low, high, max_bytes)
    if beyond is None:
        return Seq(high)
    return Seq(beyond["seq"] if beyond["is_first"] else beyond["seq"] - 1)
