"""Retention: deleting messages from the head of the log, as far as its settings and earlier clearing allow."""

from __future__ import annotations

import structlog
from msgspec import Struct

from skep.clock import Instant, seconds
from skep.model import Queue, QueueKey
from skep.model.chores import Chore
from skep.store.postgres import queues
from skep.store.postgres.connection import Connection
from skep.store.postgres.database import Database
from skep.store.postgres.groups import take_all
from skep.store.rules import (
    LOOK_AGAIN_SECONDS,
    LOOK_FOR_IDLE_MICROS,
    dead_letter_target,
    idle_micros,
    may_lose_messages,
    removal_age,
)
from skep.store.statements import load_statements

SQL = load_statements(__package__, "retain")
DEAD = load_statements(__package__, "dead_letters")

log = structlog.get_logger("skep.store.postgres")


async def retain(db: Database, key: QueueKey, now: Instant, limit: int) -> Chore:
    """Delete messages from the head of the log, as far as retention and clearing allow."""
    idle_too = db.attendance.may_mark_idle(now)
    await db.pool.transaction(_mark_idle, key, now, idle_too)
    return await db.pool.piece(
        "retain", lambda c, size: _retain(c, key, now, size, db.shard), limit, lambda chore: chore.more
    )


async def _retain(connection: Connection, key: QueueKey, now: Instant, limit: int, shard: int) -> Chore:
    """Delete one piece of the messages that may go."""
    queue = await queues.need(connection, key)
    settings = queue.settings
    takes = await _is_ahead(connection, queue, now)
    if takes:
        await take_all(connection, queue.id)
    else:
        await connection.execute(SQL["lock_log"], queue.id)
    may_go = await _may_go(connection, queue, now)
    upper = may_go.upper if takes else min(may_go.upper, may_go.safe)
    upper, more = await _bounded(connection, queue.id, upper, limit)
    if upper > may_go.safe:
        gone = [row["seq"] for row in await connection.fetch(SQL["doomed"], queue.id, upper)]
        if gone:
            await connection.execute(DEAD["withdraw"], queue.id, gone, now, shard)
    deleted = await connection.fetchval(SQL["delete_head"], queue.id, upper) if upper else 0
    if settings.retention_seconds or settings.completed_retention_seconds or removal_age_of(queue):
        await connection.execute(SQL["note_retention"], queue.id, now, deleted, may_go.settled or 0)
    return Chore(deleted, more, await _next_pass(connection, queue, now))


class MayGo(Struct, frozen=True):
    """Seqs: ``upper`` is the last one that may be deleted, ``safe`` the last settled by all groups, ``settled`` by all groups in use."""

    upper: int
    safe: int
    settled: int | None


async def _may_go(connection: Connection, queue: Queue, now: Instant) -> MayGo:
    settings = queue.settings
    head = await connection.fetchrow(SQL["log_head"], queue.id)
    assert head is not None
    settled: int | None = head["settled_seq"]
    aged = await _seq_before(connection, queue, seconds(settings.retention_seconds), now)
    completed = await _completed_until(connection, queue, now)
    allowed = head["last_seq"] if settled is None else settled
    upper = max(min(aged, settled or 0), min(completed, settled or 0), await _past_age(connection, queue, now))
    if settings.retention_ignores_groups:
        upper = max(upper, aged)
    if head["retention_requires_archive"]:
        upper = min(upper, head["archived_seq"] or 0)
    by_all = head["last_seq"] if head["settled_by_all"] is None else head["settled_by_all"]
    # Whoever clears a queue wants its messages gone, archived or not.
    return MayGo(max(upper, min(head["first_seq"] - 1, allowed)), by_all, settled)


async def _completed_until(connection: Connection, queue: Queue, now: Instant) -> int:
    """The last seq that all groups had settled at a pass completed_retention_seconds ago; 0 when this setting does not apply."""
    settings = queue.settings
    if not settings.completed_retention_seconds or settings.retention_ignores_groups:
        return 0
    before = now - seconds(settings.completed_retention_seconds)
    return await connection.fetchval(SQL["settled_since"], queue.id, before) or 0


async def _is_ahead(connection: Connection, queue: Queue, now: Instant) -> bool:
    """Whether this pass will delete messages that some group has not settled. Then it must lock all groups.

    This read takes no locks, as most passes need none. The next pass finds messages that it missed.
    """
    if not may_lose_messages(queue.settings, queue.holds_dead_letters):
        return False
    may_go = await _may_go(connection, queue, now)
    return may_go.upper > may_go.safe


async def _mark_idle(connection: Connection, key: QueueKey, now: Instant, idle_too: bool) -> None:
    """Mark groups as idle that were not used for too long, and others as no longer idle; without ``idle_too`` only the latter.

    This is a transaction of its own, as a holder of a log's lock must not wait for a group.
    """
    queue = await queues.need(connection, key)
    limit = idle_micros(queue.settings)
    since = None if limit is None else now - limit
    for row in await connection.fetch(SQL["mark_idle"], queue.id, since, now, idle_too):
        if row["idle"]:
            log.warning(
                "group is idle: retention and max_depth no longer wait for it",
                queue=queue.key.name, group=row["name"], last_active_at=row["active_at"],
            )  # fmt: skip


def removal_age_of(queue: Queue) -> int | None:
    """The age at which a queue's messages leave its log, also unread."""
    return removal_age(queue.settings, queue.holds_dead_letters)


async def _seq_before(connection: Connection, queue: Queue, age: int, now: Instant) -> int:
    """The last seq whose message has this age; 0 when the age is 0 (off)."""
    return int(await connection.fetchval(SQL["seq_before"], queue.id, now - age)) if age else 0


async def _past_age(connection: Connection, queue: Queue, now: Instant) -> int:
    """The last seq past its removal age. If the queue buries such messages, all popping groups must have settled them first."""
    old = await _seq_before(connection, queue, removal_age_of(queue) or 0, now)
    if old and dead_letter_target(queue.key.name, queue.settings, queue.holds_dead_letters) is not None:
        return min(old, await connection.fetchval(SQL["settled_by_poppers"], queue.id) or 0)
    return old


async def _next_pass(connection: Connection, queue: Queue, now: Instant) -> Instant | None:
    settings = queue.settings
    times: list[int] = []
    kept = [s for s in (settings.retention_seconds, settings.completed_retention_seconds) if s]
    if kept:
        times.append(now + seconds(min(max(min(kept) / 10, 1.0), LOOK_AGAIN_SECONDS)))
    age = removal_age_of(queue)
    if age is not None:
        # New dead letters are not announced to this chore. The next letter is not older than this one, so its pass is in time.
        oldest_at = await connection.fetchval(SQL["oldest_at"], queue.id)
        due = age + (now if oldest_at is None else oldest_at)
        times.append(due if due > now else now + seconds(LOOK_AGAIN_SECONDS))
    limit = idle_micros(settings)
    if limit is not None:
        times.append(now + min(limit, LOOK_FOR_IDLE_MICROS))
    return Instant(min(times)) if times else None


async def _bounded(connection: Connection, queue_id: int, upper: int, limit: int) -> tuple[int, bool]:
    """The greatest seq up to ``upper`` within the first ``limit`` messages of the log, and whether more are left."""
    last: int | None = await connection.fetchval(SQL["nth_from_head"], queue_id, limit)
    return (upper, False) if last is None or last >= upper else (last, True)
