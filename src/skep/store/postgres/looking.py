"""Looking around: accounts of queues and groups, leases, messages, traces and histories. Reads only.

Nothing here runs in the hot path, and nothing walks the log without a bound: figures come from counters and from the rows
of unsettled partitions, messages page by page.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import asyncpg
import msgspec

from skep.clock import MICROS_PER_SECOND, Instant
from skep.errors import Code, SkepError
from skep.ids import Id, minted_at
from skep.model import (
    QUEUE_MODE_GROUP,
    GroupStats,
    LeaseInfo,
    LogBounds,
    MessageFilter,
    MessagePage,
    MessageState,
    PartitionStats,
    Queue,
    QueueKey,
    QueueStats,
    Rates,
    Seq,
    StoredMessage,
)
from skep.model.history import RetentionPass
from skep.store.postgres import queues
from skep.store.postgres.connection import Connection
from skep.store.rates import rate, rates_since
from skep.store.rules import SEQ_MAX, TRACE_SLACK_MICROS, is_seq
from skep.store.statements import load_statements

SQL = load_statements(__package__, "looking")

WALK_ROWS = 2_000
"""How many messages one page of browsing looks at, at most."""
FIRST_STEP_ROWS = 200
"""How many it looks at first, for those in a state."""


class Span(NamedTuple):
    """A stretch of the log, or of one partition in it, and which way it is walked."""

    low: int = 0
    high: int = SEQ_MAX
    partition: str | None = None
    descending: bool = False


async def queue_stats(connection: Connection, key: QueueKey, now: Instant) -> QueueStats:
    """A queue's figures, with every group's account."""
    [found] = await stats_of(connection, [await queues.need(connection, key)], now)
    if found is None:
        raise SkepError(Code.QUEUE_NOT_FOUND, f"there is no queue {key.name!r}", queue=key.name)
    return found


async def stats_of(connection: Connection, wanted: Sequence[Queue], now: Instant) -> list[QueueStats | None]:
    """The figures of queues, in two statements; None for one that is gone."""
    ids, since = [queue.id for queue in wanted], rates_since(now)
    heads = {row["id"]: row for row in await connection.fetch(SQL["queue_figures"], ids, since)}
    groups: dict[int, list[asyncpg.Record]] = {}
    for row in await connection.fetch(SQL["group_figures"], ids, now, since, None):
        groups.setdefault(row["queue_id"], []).append(row)
    return [
        None if queue.id not in heads else _queue_stats(queue, heads[queue.id], groups.get(queue.id, []), now)
        for queue in wanted
    ]


def _queue_stats(queue: Queue, head: asyncpg.Record, rows: Sequence[asyncpg.Record], now: Instant) -> QueueStats:
    groups = [_group_stats(row, queue, head["last_seq"], now) for row in rows]
    ages = [now - group.oldest_at for group in groups if group.oldest_at is not None]
    if not groups and head["first_at"] is not None:
        ages = [now - head["first_at"]]
    return QueueStats(
        queue=queue.key,
        first_seq=head["first_seq"],
        last_seq=head["last_seq"],
        depth=head["depth"],
        scheduled=head["scheduled_count"],
        dead_letters=head["dead_letters"],
        in_flight=sum(group.in_flight for group in groups),
        oldest_age_seconds=max(ages, default=0) / MICROS_PER_SECOND,
        rates=Rates(
            pushed=_rate(head, "seq", head["last_seq"], now),
            completed=sum(group.rates.completed for group in groups),
            retried=sum(group.rates.retried for group in groups),
            dead=sum(group.rates.dead for group in groups),
        ),
        groups=groups,
        gaps=head["gaps"],
    )


async def group_stats(connection: Connection, key: QueueKey, group: str, now: Instant) -> GroupStats:
    """One group's account."""
    queue = await queues.need(connection, key)
    last_seq = await connection.fetchval(SQL["last_seq"], queue.id)
    row = await connection.fetchrow(SQL["group_figures"], [queue.id], now, rates_since(now), group)
    if row is None:
        raise SkepError(Code.GROUP_NOT_FOUND, f"queue {key.name!r} has no group {group!r}", queue=key.name, group=group)
    return _group_stats(row, queue, last_seq, now)


def _group_stats(row: asyncpg.Record, queue: Queue, last_seq: int, now: Instant) -> GroupStats:
    in_flight = row["in_flight"]
    oldest_at = min((at for at in (row["oldest_at"], row["undiscovered_at"]) if at is not None), default=None)
    return GroupStats(
        queue=queue.key,
        group=row["name"],
        progress_seq=row["progress_seq"],
        pushed=last_seq - row["start_seq"] - row["skipped"],
        completed=row["completed"],
        pending=last_seq - row["scan_seq"] - row["gaps"] + row["unsettled"] - in_flight,
        in_flight=in_flight,
        dead=row["dead"],
        expired=row["expired"],
        retried=row["retried"],
        partitions_pending=row["partitions"],
        partitions_leased=row["leased_partitions"],
        oldest_at=oldest_at,
        lag_seconds=0.0 if oldest_at is None else max(0, now - oldest_at) / MICROS_PER_SECOND,
        rates=Rates(
            pushed=_rate(row, "seq", last_seq, now),
            completed=_rate(row, "completed", row["completed"], now),
            retried=_rate(row, "retried", row["retried"], now),
            dead=_rate(row, "dead", row["dead"], now),
        ),
        created_at=row["created_at"],
        external=row["external"],
        active_at=row["active_at"],
        inactive_seconds=max(0, now - row["active_at"]) / MICROS_PER_SECOND,
        idle=row["idle"],
    )


def _rate(row: asyncpg.Record, counter: str, value: int, now: Instant) -> float:
    """The growth of a counter over the last minute, by the samples around its beginning."""
    before, after = (
        None if row[f"{which}_at"] is None else (row[f"{which}_at"], row[f"{which}_{counter}"])
        for which in ("before", "after")
    )
    return rate(value, now, before, after)


async def partition_stats(
    connection: Connection, key: QueueKey, group: str, now: Instant, after: str, limit: int
) -> list[PartitionStats]:
    """Partitions with unsettled messages that the group has discovered, by name."""
    queue = await queues.need(connection, key)
    rows = await connection.fetch(SQL["partitions"], queue.id, group, now, after, limit)
    return [
        PartitionStats(
            queue=key, group=group, partition=row["partition"], pending=row["unsettled"] - row["in_flight"],
            in_flight=row["in_flight"], attempts=row["attempts"], oldest_at=row["oldest_at"], ready_at=row["ready_at"],
            lease_deadline=row["lease_deadline"], last_error=row["last_error"],
        )
        for row in rows
    ]  # fmt: skip


async def leases(
    connection: Connection, tenant: str, now: Instant, key: QueueKey | None, expiring_before: Instant | None, limit: int
) -> list[LeaseInfo]:
    """Live leases by deadline."""
    rows = await connection.fetch(SQL["leases"], tenant, now, None if key is None else key.name, expiring_before, limit)
    return [
        LeaseInfo(
            queue=QueueKey(row["queue_name"], tenant), group=row["group_name"], partition=row["partition"],
            messages=row["messages"], first_seq=row["first_seq"], last_seq=row["last_seq"], leased_at=row["leased_at"], deadline=row["ready_at"],
            attempts=row["attempts"], consumer=row["consumer"],
        )
        for row in rows
    ]  # fmt: skip


async def log_bounds(connection: Connection, key: QueueKey) -> LogBounds:
    """Which seqs the log holds."""
    queue = await queues.need(connection, key)
    row = await connection.fetchrow(SQL["log_bounds"], queue.id)
    assert row is not None
    return LogBounds(row["first_seq"], row["last_seq"], row["last_at"], row["created_at"])


async def bounds_of_logs(connection: Connection, tenant: str, queues: Sequence[str]) -> dict[str, LogBounds]:
    """Which seqs some logs hold."""
    rows = await connection.fetch(SQL["bounds_of_logs"], tenant, list(queues))
    return {
        row["name"]: LogBounds(row["first_seq"], row["last_seq"], row["last_at"], row["created_at"]) for row in rows
    }


async def first_seq_at(connection: Connection, key: QueueKey, at: Instant) -> Seq:
    """The first seq at or after an instant."""
    queue = await queues.need(connection, key)
    return Seq(await connection.fetchval(SQL["first_seq_at"], queue.id, at))


async def last_seq_within(connection: Connection, key: QueueKey, first: Seq, max_bytes: int, max_rows: int) -> Seq:
    """How far payloads fit, as far as the walk goes."""
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


# --- messages -------------------------------------------------------------------------------------------------


async def messages(connection: Connection, wanted: MessageFilter, now: Instant) -> MessagePage:
    """A page of the log. The walk is bounded, so a page may be short and still have a next one."""
    queue = await queues.need(connection, wanted.queue)
    group_id = None
    group = QUEUE_MODE_GROUP if wanted.group is None and wanted.state is not None else wanted.group
    if group is not None:
        group_id = await connection.fetchval(SQL["group_id"], queue.id, group)
        if group_id is None:
            raise SkepError(Code.GROUP_NOT_FOUND, f"queue {wanted.queue.name!r} has no group {group!r}")
    bounds = await connection.fetchrow(SQL["bounds"], queue.id, wanted.since, wanted.until, wanted.state is not None)
    assert bounds is not None
    low, high = bounds["low"], bounds["high"]
    if wanted.after is not None:
        low, high = (low, min(high, wanted.after - 1)) if wanted.descending else (max(low, wanted.after + 1), high)
    if low > high:
        return MessagePage([], None)
    if wanted.state is not None:
        return await _in_state(connection, queue, wanted, group_id, Span(low, high), now)
    rows = await _candidates(connection, queue, wanted, Span(low, high), wanted.limit)
    states = await _states(connection, queue, group_id, rows, now)
    found = [stored(row, wanted.queue, state) for row, state in zip(rows, states, strict=True)]
    return MessagePage(found, rows[-1]["seq"] if len(rows) >= wanted.limit else None)


async def _in_state(
    connection: Connection, queue: Queue, wanted: MessageFilter, group_id: int | None, span: Span, now: Instant
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
        span = Span(span.low, after - 1) if wanted.descending else Span(after + 1, span.high)
        step = min(step * 3, left)
    if len(fitting) >= wanted.limit:
        fitting = fitting[: wanted.limit]
        after = fitting[-1]
    shown = await connection.fetch(SQL["by_seqs"], queue.id, fitting, wanted.preview_bytes)
    return MessagePage([stored(row, wanted.queue, wanted.state) for row in shown], after)


async def _candidates(
    connection: Connection, queue: Queue, wanted: MessageFilter, span: Span, limit: int
) -> Sequence[asyncpg.Record]:
    (low, high, *_), preview = span, wanted.preview_bytes
    way = "_down" if wanted.descending else ""
    if wanted.transaction_id is not None:
        rows = await connection.fetch(
            SQL["by_transaction_id" + way], queue.id, wanted.transaction_id, low, high, wanted.partition, limit, preview,
            wanted.trace_id,
        )  # fmt: skip
    elif wanted.trace_id is not None:
        span = Span(low, high, wanted.partition, wanted.descending)
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
    connection: Connection, queue_id: int, trace_id: Id, limit: int, preview: int | None, span: Span
) -> list[asyncpg.Record]:
    """By the index where the trace id is written out; else by the millisecond in the id that it then equals."""
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
    """The message that a row is."""
    return StoredMessage(
        queue=key,
        seq=row["seq"],
        partition=row["partition"],
        id=row["id"],
        transaction_id=row["transaction_id"],
        trace_id=row["trace_id"] or row["id"],
        headers=row["headers"],
        content_type=row["content_type"],
        payload=row["payload"],
        payload_bytes=row["payload_bytes"],
        priority=row["priority"],
        created_at=row["created_at"],
        state=state,
    )


# --- histories ------------------------------------------------------------------------------------------------


async def retention_history(connection: Connection, key: QueueKey, limit: int) -> list[RetentionPass]:
    """The latest passes, newest first."""
    queue = await queues.need(connection, key)
    rows = await connection.fetch(SQL["retention_history"], queue.id, limit)
    return [
        RetentionPass(
            queue=key, at=r["at"], deleted=r["deleted"], first_seq=r["first_seq"], settled_seq=r["settled_seq"]
        )
        for r in rows
    ]
