"""Deleting one message that some group has not settled: from the log, and from the counters of every group.

The leases that hold the message are fenced and end first, so no settlement ever finds that its message is gone.
"""

from __future__ import annotations

import asyncpg

from skep.clock import Instant
from skep.ids import Id
from skep.model import DeletedMessage, Queue, QueueKey, Seq, Token
from skep.store.postgres import dead_letters, groups, queues
from skep.store.postgres.connection import Connection
from skep.store.postgres.database import Database
from skep.store.rules import is_seq, message_not_found, message_settled
from skep.store.statements import load_statements

SQL = load_statements(__package__, "delete")
FORGET = load_statements(__package__, "forget")


async def delete_message(
    db: Database, key: QueueKey, seq: Seq, id_: Id | None, now: Instant, dry_run: bool = False
) -> DeletedMessage:
    """Delete one message that is not settled, for all groups."""
    deleted, changed = await db.pool.transaction(_delete, key, seq, id_, now, db.shard, dry_run)
    await db.tell_waiting(changed, now)
    return deleted


async def _delete(
    connection: Connection, key: QueueKey, seq: Seq, id_: Id | None, now: Instant, shard: int, dry_run: bool
) -> tuple[DeletedMessage, list[int]]:
    """Delete a message, or with ``dry_run`` only look; also returns the queue's id when messages may be ready now."""
    queue = await queues.need(connection, key)
    await groups.take_all(connection, queue.id)
    row = await connection.fetchrow(SQL["message"], queue.id, seq) if is_seq(seq) else None
    if row is None or id_ not in (None, row["id"]):
        raise message_not_found(key.name, seq)
    known = await connection.fetch(SQL["lock_groups"], queue.id)
    waiting = await _unsettled(connection, queue, seq, row, known)
    if not waiting and (known or seq < row["first_seq"]):
        raise message_settled(key.name, seq)
    names = [group["name"] for group in known if group["id"] in waiting]
    found = DeletedMessage(
        seq,
        row["id"],
        row["partition"],
        row["transaction_id"],
        names,
        sum(token is not None for token in waiting.values()),
    )
    if dry_run:
        return found, []
    await connection.execute(FORGET["fence"], queue.id, [seq], [row["partition"]], now)
    await dead_letters.remove(connection, queue.id, [seq], now, shard)
    await connection.execute(SQL["forget_failures"], queue.id, seq)
    return found, [queue.id]


async def _unsettled(
    connection: Connection, queue: Queue, seq: Seq, message: asyncpg.Record, known: list[asyncpg.Record]
) -> dict[int, Token | None]:
    """The groups that have not settled a message, each with the token that it is held under, if any.

    Lease rows are locked first, so that an ack under way counts.
    """
    meant = [g for g in known if g["external"] or message["audience"] in (None, g["id"])]
    waiting: dict[int, Token | None] = {g["id"]: None for g in meant if seq > g["scan_seq"]}
    ids = [g["id"] for g in meant if not g["external"] and seq <= g["scan_seq"]]
    for lease in await connection.fetch(SQL["lock_leases"], ids, message["partition"]):
        if seq in lease["open"] or seq > lease["delivered_seq"]:
            waiting[lease["group_id"]] = lease["token"] if seq in lease["open"][: lease["leased"]] else None
    for held in await connection.fetch(SQL["lock_sets"], ids, queue.id, message["partition"], seq):
        waiting[held["group_id"]] = held["token"]
    return waiting
