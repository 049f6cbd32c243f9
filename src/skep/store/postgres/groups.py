"""Consumer groups: moving and deleting them, ending their leases, and clearing queues.

Functions that make messages ready also return the queue's id, so that other servers can be notified.
"""

from __future__ import annotations

from collections.abc import Mapping

from skep.clock import Instant
from skep.errors import Code, SkepError
from skep.model import Cleared, ClearScope, GroupStats, QueueKey, Seq, Start, Token
from skep.model.queue import no_queue
from skep.store.postgres import queues, stats
from skep.store.postgres.connection import Connection
from skep.store.postgres.database import Database
from skep.store.rules import check_reported, group_is_not_external
from skep.store.statements import load_statements

SQL = load_statements(__package__, "groups")


async def seek(db: Database, key: QueueKey, group: str, start: Start, now: Instant) -> GroupStats:
    """Move a group, making it when there is none."""
    queue_id, moved = await db.pool.transaction(_seek, key, group, start, now)
    await db.tell_waiting([queue_id], now)
    return moved


async def _seek(
    connection: Connection, key: QueueKey, group: str, start: Start, now: Instant
) -> tuple[int, GroupStats]:
    """Move a group: its leases end and its counters start anew. Returns the queue's id, and the group as it is then."""
    queue = await queues.need(connection, key)
    group_id = await connection.fetchval(SQL["take_group"], queue.id, group, True)
    if group_id is None:
        if await connection.fetchval(SQL["ensure"], queue.id, group, start.mode.value, start.value, now) is None:
            raise no_queue(key.name)
        # Making the group has locked the log, so this must not wait for the group's lock.
        group_id = await connection.fetchval(SQL["take_group"], queue.id, group, False)
    await _forget_leases(connection, queue.id, group_id)
    await connection.execute(SQL["reset_counters"], group_id)
    await connection.execute(SQL["move"], group_id, queue.id, start.mode.value, start.value, now)
    await connection.execute(SQL["pass_over_gaps"], queue.id, group_id)
    return queue.id, await stats.group_stats(connection, key, group, now)


async def report_progress(
    db: Database, key: QueueKey, group: str, seq: Seq, now: Instant, archived: bool = False
) -> GroupStats:
    """Move an external group forward, making it when there is none."""
    return await db.pool.transaction(_report_progress, key, group, seq, now, db.shard, archived)


async def _report_progress(
    connection: Connection, key: QueueKey, group: str, seq: Seq, now: Instant, shard: int, archived: bool
) -> GroupStats:
    queue = await queues.need(connection, key)
    row = await connection.fetchrow(SQL["report_progress"], queue.id, group, seq, now, shard, archived)
    assert row is not None
    if row["state"] == "missing":
        raise no_queue(key.name)
    check_reported(key.name, seq, row["last"])
    if row["state"] == "popping":
        raise group_is_not_external(key.name, group)
    return await stats.group_stats(connection, key, group, now)


async def report_progress_of_logs(
    db: Database, tenant: str, group: str, seqs: Mapping[str, Seq], now: Instant, archived: bool = False
) -> dict[str, Seq]:
    """Move an external group forward in many logs: where it is known, in one transaction; where it is new, one by one, since each log is locked."""
    done, new = await db.pool.transaction(_report_where_known, tenant, group, seqs, now, db.shard, archived)
    for name in new:
        try:
            stats = await db.pool.transaction(
                _report_progress, QueueKey(name, tenant), group, seqs[name], now, db.shard, archived
            )
        except SkepError as error:
            if error.code is not Code.QUEUE_NOT_FOUND:
                raise
            continue
        done[name] = stats.progress_seq
    return done


async def _report_where_known(
    connection: Connection, tenant: str, group: str, seqs: Mapping[str, Seq], now: Instant, shard: int, archived: bool
) -> tuple[dict[str, Seq], list[str]]:
    """Move a group forward where it exists. Also returns the queues in which it does not."""
    rows = await connection.fetch(
        SQL["report_progress_of_logs"], tenant, list(seqs), list(seqs.values()), group, now, shard, archived
    )
    for row in rows:
        name = row["queue"]
        if row["state"] == "beyond":
            check_reported(name, seqs[name], row["last"])
        if row["state"] == "popping":
            raise group_is_not_external(name, group)
    done = {row["queue"]: Seq(row["progress"]) for row in rows if row["state"] == "ok"}
    return done, [row["queue"] for row in rows if row["state"] == "new"]


async def delete_group(connection: Connection, key: QueueKey, group: str, now: Instant) -> bool:  # noqa: ARG001 - of the protocol
    """Delete a group and its leases."""
    queue = await queues.need(connection, key)
    group_id = await connection.fetchval(SQL["take_group"], queue.id, group, True)
    if group_id is None:
        return False
    await _forget_leases(connection, queue.id, group_id)
    await connection.execute(SQL["reset_counters"], group_id)
    await connection.execute(SQL["delete"], group_id)
    return True


async def end_leases(db: Database, key: QueueKey, group: str, partition: str, now: Instant) -> int:
    """Let the leases of a partition run out now."""
    ended, queue = await db.pool.transaction(_end_leases, key, group, partition, now)
    await db.tell_waiting(queue, now)
    return ended


async def _end_leases(
    connection: Connection, key: QueueKey, group: str, partition: str, now: Instant
) -> tuple[int, list[int]]:
    """The next pop finds the leases like any that ran out. Also returns the queue's id."""
    queue = await queues.need(connection, key)
    group_id = await connection.fetchval(SQL["group_id"], queue.id, group)
    if group_id is None:
        return 0, []
    ended = int(await connection.fetchval(SQL["end_lease"], queue.id, group_id, partition, now))
    ended += int(await connection.fetchval(SQL["end_sets"], queue.id, group_id, partition, now))
    return ended, [queue.id]


async def release_lease(db: Database, key: QueueKey, group: str, partition: str, token: Token, now: Instant) -> int:
    """Let the leases under a token run out now, and fence it."""
    released, queue = await db.pool.transaction(_release_lease, key, group, partition, token, now)
    await db.tell_waiting(queue, now)
    return released


async def _release_lease(
    connection: Connection, key: QueueKey, group: str, partition: str, token: Token, now: Instant
) -> tuple[int, list[int]]:
    """Also returns the queue's id, when there was such a lease."""
    queue = await queues.need(connection, key)
    group_id = await connection.fetchval(SQL["group_id"], queue.id, group)
    if group_id is None:
        return 0, []
    released = await release(connection, queue.id, group_id, partition, token, now)
    return released, [queue.id] if released else []


async def release(
    connection: Connection, queue_id: int, group_id: int, partition: str, token: Token, now: Instant
) -> int:
    """Let the leases under a token run out now, in a group that was found already; returns how many rows."""
    released = int(await connection.fetchval(SQL["release_lease"], queue_id, group_id, partition, token, now))
    return released + int(await connection.fetchval(SQL["release_sets"], queue_id, group_id, partition, token, now))


async def _forget_leases(connection: Connection, queue_id: int, group_id: int) -> None:
    await connection.execute(SQL["delete_leases"], queue_id, group_id)
    await connection.execute(SQL["delete_sets"], queue_id, group_id)


async def take_all(connection: Connection, queue_id: int) -> None:
    """Lock all groups of a queue, and its log: until the transaction ends, nobody else pops, settles or pushes."""
    await connection.execute(SQL["take_groups"], queue_id, True)
    await connection.execute(SQL["lock_log"], queue_id)
    # Also the groups that were made before the log was locked.
    await connection.execute(SQL["take_groups"], queue_id, False)


async def clear(db: Database, key: QueueKey, scope: ClearScope, now: Instant) -> Cleared:
    """Settle unsettled messages as expired, and delete scheduled ones, as far as the scope goes."""
    return await db.pool.transaction(_clear, key, scope, now, db.shard)


async def _clear(connection: Connection, key: QueueKey, scope: ClearScope, now: Instant, shard: int) -> Cleared:
    queue = await queues.need(connection, key)
    if scope is ClearScope.SCHEDULED:
        await connection.execute(SQL["lock_log"], queue.id)
    else:
        await take_all(connection, queue.id)
    scheduled = pending = 0
    if scope is not ClearScope.PENDING:
        scheduled = await connection.fetchval(SQL["clear_scheduled"], queue.id)
    if scope is not ClearScope.SCHEDULED:
        pending = await connection.fetchval(SQL["clear_log"], queue.id, now, scope is ClearScope.ALL, shard)
    return Cleared(pending, scheduled)
