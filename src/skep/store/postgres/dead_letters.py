"""Dead letters: browsing, replaying and purging them.

Each step of a replay or purge is one transaction, so a message is in exactly one place at every instant (I11).
"""

from __future__ import annotations

from collections.abc import Sequence

import asyncpg
from msgspec import Struct

from skep.clock import Instant
from skep.errors import Code, SkepError
from skep.ids import Id
from skep.model import (
    NO_GROUP,
    DeadLetter,
    DeadLetterFilter,
    DeadReason,
    Edited,
    PurgeStep,
    Queue,
    QueueKey,
    Replayed,
    ReplayStep,
    Seq,
)
from skep.model.history import ReplayRecord
from skep.model.operation import operations_ahead
from skep.model.record import MAX_BYTES
from skep.store.postgres import queues
from skep.store.postgres.connection import Connection
from skep.store.postgres.database import Database
from skep.store.postgres.push import OpenLog, live_operations, open_logs
from skep.store.postgres.rows import struct_of
from skep.store.replay_steps import LOOKED_PER_STEP, span
from skep.store.rules import SEQ_MAX, check_sealed, is_seq
from skep.store.statements import load_statements

SQL = load_statements(__package__, "dead_letters")


async def dead_letter_queue(connection: Connection, key: QueueKey) -> Queue:
    """The dead-letter queue of that name; NOT_A_DEAD_LETTER_QUEUE for any other queue."""
    queue = await queues.need(connection, key)
    if not queue.holds_dead_letters:
        raise SkepError(Code.NOT_A_DEAD_LETTER_QUEUE, f"queue {key.name!r} is not a dead-letter queue", queue=key.name)
    return queue


async def dead_letters(
    connection: Connection, wanted: DeadLetterFilter, after: Seq | None, limit: int, max_bytes: int = MAX_BYTES
) -> list[DeadLetter]:
    """Matching dead letters in the order of their queue, up to the one that reaches ``max_bytes``."""
    queue = await dead_letter_queue(connection, wanted.queue)
    rows = await connection.fetch(
        SQL["browse"], *_arguments(queue, wanted), min(after or 0, SEQ_MAX), limit, wanted.up_to, max_bytes
    )
    return [_letter(row, wanted.queue) for row in rows]


async def count_dead_letters(connection: Connection, wanted: DeadLetterFilter) -> int:
    """How many match."""
    queue = await dead_letter_queue(connection, wanted.queue)
    return int(await connection.fetchval(SQL["count"], *_arguments(queue, wanted), wanted.up_to))


async def replay(
    db: Database,
    wanted: DeadLetterFilter,
    ids: Sequence[Id],
    until: Seq,
    now: Instant,
    edited: Edited | None = None,
    after: Seq | None = None,
) -> ReplayStep:
    """Move the oldest matches back to their source queues."""
    step, watched = await db.pool.piece(
        "replay",
        lambda c, size: _replay(c, wanted, ids[:size], until, now, db.shard, edited, after),
        len(ids),
        lambda done: done[0].after is not None,
    )
    db.news.announce(watched)
    return step


async def _replay(
    connection: Connection,
    wanted: DeadLetterFilter,
    ids: Sequence[Id],
    until: Seq,
    now: Instant,
    shard: int,
    edited: Edited | None,
    after: Seq | None,
) -> tuple[ReplayStep, list[int]]:
    """Move one match per given id, in order; also returns the ids of queues that other servers watch."""
    queue = await dead_letter_queue(connection, wanted.queue)
    look = _look(queue, wanted, after, until)
    # A read without locks tells which logs to open: all at once, in the common order of locks, with the log of the dead letters.
    seen = await look.pick(connection, len(ids))
    if not seen:
        return ReplayStep([], await look.next_start(connection, seen, len(ids))), []
    await connection.execute(SQL["take_groups"], queue.id, True)
    logs = await open_logs(connection, [queue.key, *_sources(queue, seen)], now)
    rows = await look.pick(connection, len(ids))
    later = [key for key in _sources(queue, rows) if key not in logs]
    logs |= await open_logs(connection, later, now) if later else {}
    for key in (queue.key, *_sources(queue, rows)):
        if key not in logs:
            raise SkepError(
                Code.QUEUE_NOT_FOUND,
                f"the queue {key.name!r} is gone, so its dead letters cannot be replayed",
                queue=key.name,
            )
    await _check_order(connection, queue, logs, rows)
    replayed = []
    audiences: dict[tuple[QueueKey, str], int] = {}
    for row, id_ in zip(rows, ids, strict=False):
        key = QueueKey(row["source_queue"], queue.key.tenant)
        source = logs[key]
        group = row["group_name"]
        if group != NO_GROUP and (key, group) not in audiences:
            found = await connection.fetchval(SQL["audience"], source.queue_id, group, now)
            audiences[key, group] = found
        if edited is not None:
            check_sealed(key.name, source.encrypted, edited.content_type)
        source.last_seq += 1
        await connection.execute(
            SQL["replay"], queue.id, row["seq"], source.queue_id, source.last_seq, source.created_at, id_, audiences.get((key, group)), now,
            source.only_partition,
            *((None, None, None) if edited is None else (edited.payload, edited.content_type, edited.headers)),
        )  # fmt: skip
        replayed.append(Replayed(row["seq"], key, id_, Seq(source.last_seq)))
    await remove(connection, queue.id, [row["seq"] for row in rows], now, shard)
    sources = [logs[key] for key in {one.queue for one in replayed}]
    step = ReplayStep(replayed, await look.next_start(connection, rows, len(ids)))
    return step, [source.queue_id for source in sources if source.watched]


class LetterRange(Struct, frozen=True):
    """The range of one step of a replay or purge: ``arguments`` of the filter, and the seqs after ``after`` up to ``last``."""

    queue_id: int
    arguments: tuple[object, ...]
    after: int
    last: int

    async def pick(self, connection: Connection, limit: int) -> list[asyncpg.Record]:
        """The oldest matches."""
        return await connection.fetch(SQL["pick"], *self.arguments, self.last, limit, self.after, LOOKED_PER_STEP)

    async def next_start(self, connection: Connection, rows: Sequence[asyncpg.Record], limit: int) -> Seq | None:
        """The seq after which the next step looks, when this one found ``rows``; None when all were looked at."""
        if rows and len(rows) >= limit:
            return Seq(rows[-1]["seq"])
        cut = await connection.fetchval(SQL["nth"], self.queue_id, self.after, self.last, LOOKED_PER_STEP - 1)
        return None if cut is None else Seq(cut)


def _look(queue: Queue, wanted: DeadLetterFilter, after: Seq | None, until: int) -> LetterRange:
    first, last = span(wanted, after, min(until, SEQ_MAX))
    return LetterRange(queue.id, _arguments(queue, wanted), min(first, SEQ_MAX) - 1, max(0, last))


async def _check_order(
    connection: Connection, queue: Queue, logs: dict[QueueKey, OpenLog], rows: Sequence[asyncpg.Record]
) -> None:
    """Raise OPERATIONS_AHEAD when replayed messages would overtake a queued push."""
    places = set()
    for row in rows:
        key = QueueKey(row["source_queue"], queue.key.tenant)
        if logs[key].operations:
            places.add((key, logs[key].only_partition or row["partition"]))
    if places and await live_operations(connection, places):
        raise operations_ahead()


def _sources(queue: Queue, rows: Sequence[asyncpg.Record]) -> list[QueueKey]:
    return [QueueKey(name, queue.key.tenant) for name in dict.fromkeys(row["source_queue"] for row in rows)]


async def replays(
    connection: Connection, key: QueueKey, source_queue: str | None, before: Seq | None, limit: int
) -> list[ReplayRecord]:
    """The dead letters that were replayed from a queue, newest first."""
    queue = await dead_letter_queue(connection, key)
    end = SEQ_MAX if before is None else min(before, SEQ_MAX)
    return [
        struct_of(ReplayRecord, row, queue=row["name"], group=row["group_name"], reason=DeadReason(row["reason"]))
        for row in await connection.fetch(SQL["replays"], queue.id, end, source_queue, limit)
    ]


async def purge(
    db: Database, wanted: DeadLetterFilter, limit: int, now: Instant, after: Seq | None = None
) -> PurgeStep:
    """Delete at most ``limit`` matches."""
    return await db.pool.piece(
        "purge",
        lambda c, size: _purge(c, wanted, size, now, db.shard, after),
        limit,
        lambda step: step.after is not None,
    )


async def _purge(
    connection: Connection, wanted: DeadLetterFilter, limit: int, now: Instant, shard: int, after: Seq | None
) -> PurgeStep:
    queue = await dead_letter_queue(connection, wanted.queue)
    await connection.execute(SQL["take_groups"], queue.id, True)
    await connection.execute(SQL["lock_log"], queue.id)
    look = _look(queue, wanted, after, SEQ_MAX)
    rows = await look.pick(connection, limit)
    await remove(connection, queue.id, [row["seq"] for row in rows], now, shard)
    return PurgeStep(len(rows), await look.next_start(connection, rows, limit))


async def remove(connection: Connection, queue_id: int, seqs: list[int], now: Instant, shard: int) -> None:
    """Delete messages from a queue, and the dead letters that they may be, and correct the counters of the queue's groups.

    The caller holds the locks of the log and of the groups. Groups that were made before the log was locked are locked here.
    """
    if not seqs:
        return
    await connection.execute(SQL["take_groups"], queue_id, False)
    await connection.execute(SQL["withdraw"], queue_id, seqs, now, shard)
    await connection.execute(SQL["leave_gaps"], queue_id, seqs)
    await connection.execute(SQL["delete"], queue_id, seqs)


def _arguments(queue: Queue, wanted: DeadLetterFilter) -> tuple[object, ...]:
    seqs = None if wanted.seqs is None else [seq for seq in wanted.seqs if is_seq(seq)]
    return (
        queue.id, wanted.ids, seqs, wanted.source_queue, wanted.partition, wanted.group,
        wanted.reason.value if wanted.reason else None, wanted.error_contains, wanted.since, wanted.until,
    )  # fmt: skip


def _letter(row: asyncpg.Record, key: QueueKey) -> DeadLetter:
    reason, trace_id = DeadReason(row["reason"]), row["trace_id"] or row["id"]
    return struct_of(DeadLetter, row, queue=key, group=row["group_name"], reason=reason, trace_id=trace_id)
