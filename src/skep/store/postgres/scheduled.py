"""Scheduled (delayed) messages: listing, cancelling and moving them, and letting them enter the log.

A change of a schedule holds the lock of its queue's log until commit. So only one server promotes, cancels or moves a message, and a
mark that was taken under that lock divides the present messages from later ones.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

import asyncpg

from skep.clock import Instant
from skep.ids import Id
from skep.model import QueueKey, Seq, scheduled
from skep.model.scheduled import (
    WALK_ROWS,
    Change,
    Changed,
    ScheduledChange,
    ScheduledCount,
    ScheduledFilter,
    ScheduledMessage,
    ScheduledPage,
    ScheduledPosition,
    ScheduledRow,
    Walk,
    walk_rows,
)
from skep.store.postgres import queues
from skep.store.postgres.connection import Connection, Pool
from skep.store.postgres.copy_format import append_rows
from skep.store.postgres.push import OpenLog, open_logs
from skep.store.statements import load_statements

SQL = load_statements(__package__, "scheduled")
FORGET = load_statements(__package__, "forget")


class PostgresScheduled:
    """Implements `skep.store.protocol.scheduled.ScheduledStore`. ``announce`` tells other servers of queues that got messages."""

    def __init__(self, pool: Pool, announce: Callable[[Sequence[int]], None]) -> None:
        self._pool = pool
        self._announce = announce

    async def page(
        self, wanted: ScheduledFilter, after: ScheduledPosition | None, limit: int, preview_bytes: int | None
    ) -> ScheduledPage:
        """A page in the order of time."""
        async with self._pool.connection() as connection:
            fitting, next_after = await _fitting(connection, wanted, after, limit)
            return ScheduledPage(await _show(connection, wanted.tenant, fitting, preview_bytes), next_after)

    async def count(self, wanted: ScheduledFilter, after: ScheduledPosition | None) -> ScheduledCount:
        """How many messages of one bounded walk match."""
        async with self._pool.connection() as connection:
            fitting, next_after = await _fitting(connection, wanted, after, WALK_ROWS)
            return ScheduledCount(len(fitting), next_after)

    async def mark(self, key: QueueKey) -> int:
        """The greatest arrival number so far."""
        return await self._pool.transaction(lambda connection: _mark(connection, key))

    async def change(
        self,
        wanted: ScheduledFilter,
        what: Change,
        deliver_at: Instant | None,
        after: ScheduledPosition | None,
        limit: int,
        now: Instant,
    ) -> ScheduledChange:
        """Change at most ``limit`` matching messages."""
        done, watched = await self._pool.piece(
            f"{what} scheduled",
            lambda connection, size: _change(connection, wanted, what, deliver_at, after, size, now),
            limit,
            lambda changed: changed[0].after is not None,
        )
        self._announce(watched)
        return done


async def _mark(connection: Connection, key: QueueKey) -> int:
    queue = await queues.need(connection, key)
    await connection.execute(SQL["lock_log"], queue.id)
    return int(await connection.fetchval(SQL["mark"]))


async def _change(
    connection: Connection,
    wanted: ScheduledFilter,
    what: Change,
    deliver_at: Instant | None,
    after: ScheduledPosition | None,
    limit: int,
    now: Instant,
) -> tuple[ScheduledChange, list[int]]:
    log = (await open_logs(connection, [wanted.key], now)).get(wanted.key)
    if log is None:
        await queues.need(connection, wanted.key)
        return ScheduledChange([], None), []
    walk = await _walk(connection, wanted, after, walk_rows(wanted, limit))
    fitting, next_after = walk.step(wanted, limit)
    places = [one.due_at for one in fitting], [one.arrival for one in fitting]
    changed = [Changed(one.id) for one in fitting]
    if what is Change.RUN:
        rows = await connection.fetch(SQL["take"], log.queue_id, *places)
        first = await enter_log(connection, log, rows)
        changed = [Changed(row["id"], Seq(first + number)) for number, row in enumerate(rows)]
    elif what is not Change.MOVE:
        if what is Change.FORGET:
            named = [one for one in fitting if one.transaction_id is not None]
            await connection.execute(
                FORGET["forget_keys"], log.queue_id, [one.transaction_id for one in named], [one.partition for one in named],
                [one.id for one in named],
            )  # fmt: skip
        await connection.execute(SQL["cancel"], log.queue_id, *places)
        await connection.execute(SQL["count_down"], log.queue_id, len(fitting))
    elif fitting:
        await connection.execute(SQL["move"], log.queue_id, *places, deliver_at)
    watched = [log.queue_id] if what is Change.RUN and changed and log.watched else []
    return ScheduledChange(changed, next_after), watched


async def enter_log(connection: Connection, log: OpenLog, taken: Sequence[asyncpg.Record]) -> int:
    """Append messages that were taken out of the schedule, in the given order; returns the first seq. The log is locked."""
    first, only = log.last_seq + 1, log.only_partition
    rows = [
        (seq, log.created_at, row["id"], row["trace_id"], log.queue_id, None, row["priority"], only or row["partition"],
         row["transaction_id"], row["content_type"], row["headers"], row["payload"])
        for seq, row in enumerate(taken, start=first)
    ]  # fmt: skip
    if rows:
        await append_rows(connection, rows)
        await connection.execute(SQL["count_down"], log.queue_id, len(rows))
        await connection.execute(
            SQL["key_seqs"], log.queue_id, [row["transaction_id"] for row in taken], [row["partition"] for row in taken],
            [row[0] for row in rows], [row["id"] for row in taken],
        )  # fmt: skip
    return first


async def _fitting(
    connection: Connection, wanted: ScheduledFilter, after: ScheduledPosition | None, limit: int
) -> tuple[list[ScheduledRow], ScheduledPosition | None]:
    return (await _walk(connection, wanted, after, walk_rows(wanted, limit))).page(wanted, limit)


async def _walk(connection: Connection, wanted: ScheduledFilter, after: ScheduledPosition | None, most: int) -> Walk:
    """The next messages that may match, by the index that narrows most, in the order of time."""
    queue = None if wanted.queue is None else await queues.need(connection, wanted.key)
    start = wanted.start(after)
    span = (*start, wanted.end, most)
    if wanted.ids is not None:
        return await _named(connection, wanted.tenant, await _with_ids(connection, wanted.ids, start), None)
    if wanted.transaction_id is not None:
        rows = await connection.fetch(SQL["with_transaction_id"], wanted.transaction_id, *span)
        return await _named(connection, wanted.tenant, rows, _end(rows, most))
    if wanted.trace_id is not None:
        rows = await connection.fetch(SQL["with_trace_id"], wanted.trace_id, *span)
        end = _end(rows, most)
        own = await _with_ids(connection, [wanted.trace_id], start)
        rows = sorted([*rows, *(row for row in own if end is None or _place(row) <= end)], key=_place)
        return await _named(connection, wanted.tenant, rows, end)
    if queue is not None:
        rows = await connection.fetch(SQL["walk"], queue.id, *span)
        return Walk([ScheduledRow(queue.key.name, *row) for row in rows], _end(rows, most))
    return await _walk_all(connection, wanted, start, most)


async def _walk_all(connection: Connection, wanted: ScheduledFilter, start: ScheduledPosition, most: int) -> Walk:
    """A walk over all queues of a tenant. One bound holds for all of them together, and each gets its share."""
    names = {row["id"]: row["name"] for row in await connection.fetch(SQL["queues_with_schedule"], wanted.tenant)}
    share = min(most, max(1, scheduled.WALK_ROWS // max(1, len(names))))
    rows = await connection.fetch(SQL["walk_all"], list(names), *start, wanted.end, share)
    read = Counter[int]()
    for number, row in enumerate(rows, 1):
        read[row["queue_id"]] += 1
        # The queue may have more messages, which come before some that were read of other queues.
        if read[row["queue_id"]] == share or number == most:
            return Walk([ScheduledRow(names[row["queue_id"]], *row) for row in rows[:number]], _place(row))
    return Walk([ScheduledRow(names[row["queue_id"]], *row) for row in rows], None)


async def _with_ids(connection: Connection, ids: Sequence[Id], start: ScheduledPosition) -> list[asyncpg.Record]:
    rows = await connection.fetch(SQL["with_ids"], list(dict.fromkeys(ids)))
    return sorted((row for row in rows if _place(row) > start), key=_place)


def _place(row: asyncpg.Record) -> ScheduledPosition:
    return ScheduledPosition(row["due_at"], row["arrival"])


def _end(rows: Sequence[asyncpg.Record], most: int) -> ScheduledPosition | None:
    return _place(rows[-1]) if len(rows) == most else None


async def _named(
    connection: Connection, tenant: str, rows: Sequence[asyncpg.Record], end: ScheduledPosition | None
) -> Walk:
    """The rows of this tenant, with the names of their queues."""
    if not rows:
        return Walk([], end)
    found = await connection.fetch(SQL["queue_names"], list({row["queue_id"] for row in rows}), tenant)
    names = {row["id"]: row["name"] for row in found}
    return Walk([ScheduledRow(names[row["queue_id"]], *row) for row in rows if row["queue_id"] in names], end)


async def _show(
    connection: Connection, tenant: str, wanted: Sequence[ScheduledRow], preview_bytes: int | None
) -> list[ScheduledMessage]:
    """The messages with their payloads, without those that are gone meanwhile."""
    if not wanted:
        return []
    columns = [one.queue_id for one in wanted], [one.due_at for one in wanted], [one.arrival for one in wanted]
    rows = {row["arrival"]: row for row in await connection.fetch(SQL["show"], *columns, preview_bytes)}
    return [
        ScheduledMessage(
            queue=QueueKey(one.queue, tenant), place=one.place, id=one.id, partition=one.partition,
            transaction_id=one.transaction_id, trace_id=one.trace_id, headers=row["headers"], content_type=row["content_type"],
            payload=row["payload"], payload_bytes=row["payload_bytes"], priority=row["priority"],
        )
        for one in wanted
        if (row := rows.get(one.arrival)) is not None
    ]  # fmt: skip
