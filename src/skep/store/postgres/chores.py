"""The bounded passes that the engine's timers run: promoting, expiring, sweeping, compacting. Retention and sampling have files of their own.

Several servers may run the same pass at once: locks make that safe, and each finds what the others have done.
"""

from __future__ import annotations

import structlog

from skep.clock import Instant, seconds
from skep.errors import Code, SkepError
from skep.model import QUEUE_MODE_GROUP, Queue, QueueKey, scheduled
from skep.model.chores import Chore
from skep.store.postgres import queues, retain, tidy
from skep.store.postgres.connection import Connection
from skep.store.postgres.database import Database
from skep.store.postgres.leases import QueueAndGroup
from skep.store.postgres.push import open_logs
from skep.store.postgres.scheduled import enter_log
from skep.store.rules import (
    FAILURES_MOST,
    KEYFRAME_SECONDS,
    PAST_SECONDS,
    TRACE_EVENTS,
    TRACE_EVENTS_SECONDS,
    is_exhausted,
    lifetime_micros,
    may_lose_messages,
    settles_unread,
)
from skep.store.statements import load_statements

SQL = load_statements(__package__, "chores")
log = structlog.get_logger("skep.store.postgres")

LEASE_HISTORY_SECONDS = 7 * 86_400
SAMPLE_SECONDS = 2 * KEYFRAME_SECONDS
"""Twice the time after which an unchanged row is written again: so the newest row of a queue or group is never removed."""
RETENTION_HISTORY_SECONDS = 30 * 86_400
REPLAY_HISTORY_SECONDS = 90 * 86_400
EVENT_SECONDS = 86_400


async def promote(db: Database, key: QueueKey, now: Instant, limit: int) -> Chore:
    """Let scheduled messages that are due enter the log."""
    done, watched = await db.pool.piece(
        "promote", lambda c, size: _promote(c, key, now, size), limit, lambda promoted: promoted[0].more
    )
    db.news.announce(watched)
    return done


async def _promote(connection: Connection, key: QueueKey, now: Instant, limit: int) -> tuple[Chore, list[int]]:
    """Let due messages enter the log, oldest due first; also returns the queue's id when other servers watch it."""
    queue = await queues.need(connection, key)
    if not await connection.fetchval(SQL["any_due"], queue.id, now):
        return Chore(next_at=await connection.fetchval(SQL["next_due"], queue.id)), []
    log = (await open_logs(connection, [key], now)).get(key)
    if log is None:
        return Chore(), []
    due = await connection.fetch(SQL["take_due"], queue.id, now, limit, scheduled.STEP_BYTES)
    await enter_log(connection, log, due)
    next_at = await connection.fetchval(SQL["next_due"], queue.id)
    done = Chore(len(due), next_at is not None and next_at <= now, next_at)
    return done, [log.queue_id] if due and log.watched else []


async def expire(db: Database, key: QueueKey, now: Instant, limit: int) -> Chore:
    """Expire messages that are too old or no longer in the log, and bury those without attempts left."""
    return await db.pool.piece(
        "expire", lambda c, size: expire_some(c, key, now, size, db.shard), limit, lambda chore: chore.more
    )


async def expire_some(connection: Connection, key: QueueKey, now: Instant, limit: int, shard: int) -> Chore:
    """Tidy every group of a queue once."""
    queue = await queues.need(connection, key)
    lifetime = lifetime_micros(queue.settings)
    may_lose = may_lose_messages(queue.settings, queue.holds_dead_letters)
    if lifetime is None and not queue.settings.max_attempts and not may_lose:
        return Chore()
    groups = await connection.fetch(SQL["groups"], queue.id)
    settled_unread = settles_unread(key.name, queue.settings, queue.holds_dead_letters)
    if not groups and queue.settings.max_age_seconds and settled_unread and await _has_messages(connection, queue):
        # Messages that no group reads expire, too: the shared queue group stands in for one.
        await connection.execute(SQL["ensure_group"], queue.id, QUEUE_MODE_GROUP, now)
        groups = await connection.fetch(SQL["groups"], queue.id)
    groups = [group for group in groups if not group["external"]]
    # Lock all groups first: burials, below, lock a log, and a holder of a log must not wait for a group or a lease.
    for group in groups:
        await connection.execute(SQL["share_group"], group["id"])
        if lifetime is not None:
            await connection.fetchval(SQL["discover"], queue.id, group["id"], limit, shard, now)
    done = 0
    next_at: int | None = None
    for group in groups:
        account = QueueAndGroup(queue, group["id"], group["name"], shard)
        before = await connection.fetchval(SQL["given_up"], group["id"])
        await tidy.tidy_doomed(connection, account, now, limit)
        if may_lose:
            await tidy.tidy_gone(connection, account, now, limit)
        done += await connection.fetchval(SQL["given_up"], group["id"]) - before
        due = await connection.fetchrow(SQL["next_expiry"], queue.id, group["id"], now, lifetime is not None)
        assert due is not None
        times = [due["deadline"]] if may_lose or is_exhausted(queue.settings, queue.settings.max_attempts) else []
        if lifetime is not None:
            times += [at + lifetime for at in (due["oldest_at"], due["undiscovered_at"]) if at is not None]
        next_at = min([t for t in [next_at, *times] if t is not None], default=None)
    more = done > 0 and next_at is not None and next_at <= now
    return Chore(done, more, None if next_at is None else Instant(max(next_at, now)))


async def _has_messages(connection: Connection, queue: Queue) -> bool:
    return await connection.fetchval(retain.SQL["oldest_at"], queue.id) is not None


async def sweep(db: Database, now: Instant, limit: int) -> Chore:
    """Remove data that has aged out, and the data of deleted queues."""
    return await db.pool.piece("sweep", lambda c, size: _sweep(c, now, size), limit, lambda chore: chore.more)


async def _sweep(connection: Connection, now: Instant, limit: int) -> Chore:
    done = 0
    more = False
    for name, age in (
        ("sweep_dedup", 0),
        ("sweep_receipts", 0),
        ("sweep_staged", 0),
        ("sweep_access_keys", 0),
        ("sweep_sessions", 0),
        ("sweep_audit", 0),
        ("sweep_samples", SAMPLE_SECONDS),
        ("sweep_replays", REPLAY_HISTORY_SECONDS),
        ("sweep_retention", RETENTION_HISTORY_SECONDS),
        ("sweep_leases", LEASE_HISTORY_SECONDS),
        ("sweep_watchers", 0),
        ("sweep_events", EVENT_SECONDS),
    ):
        count = await connection.fetchval(SQL[name], now - seconds(age), limit)
        done += count
        more = more or count >= limit
    count = await connection.fetchval(
        SQL["sweep_past"], (now - seconds(PAST_SECONDS + KEYFRAME_SECONDS)) // seconds(60), limit
    )
    count += await connection.fetchval(SQL["sweep_traces"], now - seconds(TRACE_EVENTS_SECONDS), limit, TRACE_EVENTS)
    count += await connection.fetchval(
        SQL["sweep_failures"], now - seconds(LEASE_HISTORY_SECONDS), limit, FAILURES_MOST
    )
    done += count
    more = more or count >= limit
    await connection.execute(SQL["sum_dead_letters"], limit)
    queue_id = await connection.fetchval(SQL["deleted_queue"])
    if queue_id is not None and await connection.fetchval(SQL["take_groups"], queue_id):
        count = 0
        for table in (
            "message",
            "dedup",
            "scheduled",
            "dead_letter",
            "lease",
            "set",
            "history",
            "failures",
            "forgotten",
        ):
            count += await connection.fetchval(SQL[f"sweep_deleted_{table}"], queue_id, limit)
            if count >= limit:
                break
        done += count
        if count < limit:
            await connection.execute(SQL["forget_queue_groups"], queue_id)
            await connection.execute(SQL["forget_queue"], queue_id)
            done += 1
        more = True
    return Chore(done, more)


async def compact_if_wanted(db: Database) -> None:
    """Compact the state tables when they have far more dead row versions than live ones."""
    async with db.pool.connection() as connection:
        if not await connection.fetchval("SELECT wants_compaction()"):
            return
    try:
        await db.pool.transaction(compact)
    except SkepError as error:
        if error.code is not Code.STORE_BUSY:
            raise
        log.info("compaction postponed", reason=error.message)


async def compact(connection: Connection) -> None:
    """Compact the state tables now, unless somebody else has them."""
    # A dump or a long statement may hold these tables: better to try again later than to make every popper wait behind us.
    await connection.execute("SET LOCAL lock_timeout = '100ms'")
    await connection.execute("SELECT compact()")
