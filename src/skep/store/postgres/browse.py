"""Looking at messages: pages of the log with filters and a group's view of each, single messages. Reads only.

Nothing here runs in the hot path, and nothing walks the log without a bound.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import asyncpg
import msgspec

from skep.clock import Instant
from skep.ids import Id, minted_at
from skep.model import (
    QUEUE_MODE_GROUP,
    LogBounds,
    MessageFilter,
    MessagePage,
    MessageState,
    Queue,
    QueueKey,
    Seq,
    StoredMessage,
)
from skep.model.group import no_group
from skep.store.postgres import queues
from skep.store.postgres.connection import Connection
from skep.store.postgres.rows import struct_of
from skep.store.rules import SEQ_MAX, TRACE_SLACK_MICROS, is_seq
from skep.store.statements import load_statements

SQL = load_statements(__package__, "browse")
WALK_ROWS = 2_000
"""About how many messages a page with a state looks at, at most."""
FIRST_STEP_ROWS = 200
"""How many messages it looks at first."""


class LogSpan(NamedTuple):
    """A range of the log, or of one partition in it, and the direction of the walk."""

    low: int = 0
    high: int = SEQ_MAX
    partition: str | None = None
    descending: bool = False


async def log_bounds(connection: Connection, key: QueueKey) -> LogBounds:
    """The bounds of a log."""
    queue = await queues.need(connection, key)
    row = await connection.fetchrow(SQL["log_bounds"], queue.id)
    assert row is not None
    return struct_of(LogBounds, row)


async def bounds_of_logs(connection: Connection, tenant: str, queues: Sequence[str]) -> dict[str, LogBounds]:
    """The bounds of logs, by queue."""
    rows = await connection.fetch(SQL["bounds_of_logs"], tenant, list(queues))
    return {row["name"]: struct_of(LogBounds, row) for row in rows}


async def messages(connection: Connection, wanted: MessageFilter, now: Instant) -> MessagePage:
    """A page of the log. The walk is bounded, so a page may be short and still have a next one."""
    queue = await queues.need(connection, wanted.queue)
    group_id = None
    group = QUEUE_MODE_GROUP if wanted.group is None and wanted.state is not None else wanted.group
    if group is not None:
        group_id = await connection.fetchval(SQL["group_id"], queue.id, group)
        if group_id is None:
            raise no_group(wanted.queue.name, group)
    bounds = await connection.fetchrow(
        SQL["bounds"], queue.id, wanted.since, wanted.until, wanted.state is not None or wanted.cleared
    )
    assert bounds is not None
    low, high = bounds["low"], bounds["high"]
    if wanted.after is not None:
        low, high = (low, min(high, wanted.after - 1)) if wanted.descending else (max(low, wanted.after + 1), high)
    if low > high:
        return MessagePage([], None)
    if wanted.state is not None:
        return await _in_state(connection, queue, wanted, group_id, LogSpan(low, high), now)
    rows = await _candidates(connection, queue, wanted, LogSpan(low, high), wanted.limit)
    states = await _states(connection, queue, group_id, rows, now)
    found = [stored(row, wanted.queue, state) for row, state in zip(rows, states, strict=True)]
    return MessagePage(found, rows[-1]["seq"] if len(rows) >= wanted.limit else None)


async def _in_state(
    connection: Connection, queue: Queue, wanted: MessageFilter, group_id: int | None, span: LogSpan, now: Instant
) -> MessagePage:
    """A page of the messages that are in a state, found in steps that grow; their payloads are read once they are found."""
    lean = msgspec.structs.replace(wanted, preview_bytes=0)
    fitting: list[Seq] = []
    after: Seq | None = None
    step, left = max(wanted.limit, FIRST_STEP_ROWS), WALK_ROWS
    while True:
        rows = await _candidates(connection, queue, lean, span, step)
        states = await _states(connection, queue, group_id, rows, now)
        fitting += [row["seq"] for row, state in zip(rows, states, strict=True) if state is wanted.state]
        left -= len(rows)
        after = rows[-1]["seq"] if len(rows) == step else None
        if after is None or left <= 0 or len(fitting) >= wanted.limit:
            break
        span = LogSpan(span.low, after - 1) if wanted.descending else LogSpan(after + 1, span.high)
        step = min(step * 3, left)
    if len(fitting) >= wanted.limit:
        fitting = fitting[: wanted.limit]
        after = fitting[-1]
    shown = await connection.fetch(SQL["by_seqs"], queue.id, fitting, wanted.preview_bytes)
    return MessagePage([stored(row, wanted.queue, wanted.state) for row in shown], after)


async def _candidates(
    connection: Connection, queue: Queue, wanted: MessageFilter, span: LogSpan, limit: int
) -> Sequence[asyncpg.Record]:
    (low, high, *_), preview = span, wanted.preview_bytes
    way = "_down" if wanted.descending else ""
    if wanted.transaction_id is not None:
        rows = await connection.fetch(
            SQL["by_transaction_id" + way], queue.id, wanted.transaction_id, low, high, wanted.partition, limit, preview,
            wanted.trace_id,
        )  # fmt: skip
    elif wanted.trace_id is not None:
        span = LogSpan(low, high, wanted.partition, wanted.descending)
        rows = (await _trace_rows(connection, queue.id, wanted.trace_id, limit, preview, span))[:limit]
    else:
        name = ("by_partition" if wanted.partition is not None else "by_seq") + way
        arguments = (queue.id, low, high, limit, preview)
        rows = await connection.fetch(SQL[name], *arguments, *(() if wanted.partition is None else (wanted.partition,)))
    return rows


async def _states(
    connection: Connection, queue: Queue, group_id: int | None, rows: Sequence[asyncpg.Record], now: Instant
) -> list[MessageState | None]:
    """A group's view of each message; None without a group, or when the message is for another one."""
    if group_id is None or not rows:
        return [None] * len(rows)
    found = await connection.fetch(
        SQL["states"], queue.id, group_id, now, [row["seq"] for row in rows], [row["partition"] for row in rows],
        [row["audience"] for row in rows], [row["id"] for row in rows],
    )  # fmt: skip
    return [None if row["state"] is None else MessageState(row["state"]) for row in found]


async def message(connection: Connection, key: QueueKey, seq: Seq) -> StoredMessage | None:
    """One message with its whole payload."""
    queue = await queues.need(connection, key)
    if not is_seq(seq):
        return None
    rows = await connection.fetch(SQL["by_seq"], queue.id, seq, seq, 1, None)
    return stored(rows[0], key, None) if rows else None


async def _trace_rows(
    connection: Connection, queue_id: int, trace_id: Id, limit: int, preview: int | None, span: LogSpan
) -> list[asyncpg.Record]:
    """Messages of a trace: by the index where the trace id is stored, else by the time in the message's id, which then equals it."""
    name = "by_trace_down" if span.descending else "by_trace"
    low, high, partition, descending = span
    rows = list(await connection.fetch(SQL[name], queue_id, trace_id, limit, preview, low, high, partition))
    minted = minted_at(trace_id)
    if minted is not None:
        since, until = minted - TRACE_SLACK_MICROS, minted + 2 * TRACE_SLACK_MICROS
        implied = await connection.fetch(SQL["by_implied_trace"], queue_id, trace_id, since, until, preview)
        rows += [row for row in implied if low <= row["seq"] <= high and partition in (None, row["partition"])]
    return sorted(rows, key=lambda row: row["seq"], reverse=descending)


def stored(row: asyncpg.Record, key: QueueKey, state: MessageState | None) -> StoredMessage:
    """The message that a row holds."""
    return struct_of(StoredMessage, row, queue=key, trace_id=row["trace_id"] or row["id"], state=state)
