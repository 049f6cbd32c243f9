"""Staged messages: stored chunk by chunk, and appended to their logs in one transaction, once (I15)."""

from __future__ import annotations

import asyncio

from skep.clock import Instant
from skep.ids import Id, id_after
from skep.model import QueueKey
from skep.model.operation import operations_ahead
from skep.model.record import Receipt
from skep.model.staging import (
    Attempt,
    EpochKey,
    Published,
    PublishTally,
    StagedChunk,
    already_published,
    check_staged,
)
from skep.store.postgres import push, receipts
from skep.store.postgres.connection import Connection
from skep.store.statements import load_statements

SQL = load_statements(__package__, "staging")


async def stage(connection: Connection, chunk: StagedChunk, now: Instant) -> None:
    """Store a chunk; EPOCH_PUBLISHED when its epoch is published already."""
    epoch = chunk.epoch
    (known,) = await receipts.receipts(connection, [epoch.receipt], now)
    if known is not None:
        raise already_published(epoch)
    await connection.execute(
        SQL["stage"], *_key(epoch), chunk.partition, chunk.attempt, chunk.number, chunk.messages, chunk.expires_at,
        chunk.queues, chunk.data,
    )  # fmt: skip


def _key(epoch: EpochKey) -> tuple[str, str, int]:
    return epoch.tenant, epoch.query, epoch.epoch


async def staged_queues(connection: Connection, epoch: EpochKey) -> list[str]:
    """The names of the queues that messages of an epoch are staged for."""
    return [row["name"] for row in await connection.fetch(SQL["queues"], *_key(epoch))]


async def staged(connection: Connection, epoch: EpochKey) -> list[tuple[Attempt, int]]:
    """The staged attempts, each with the number of its chunks."""
    rows = await connection.fetch(SQL["attempts"], *_key(epoch))
    return [(Attempt(row["partition"], row["attempt"], row["messages"]), row["chunks"]) for row in rows]


async def publish(
    connection: Connection,
    epoch: EpochKey,
    attempts: list[Attempt],
    first_id: Id,
    expires_at: Instant,
    now: Instant,
    create_queues: bool = True,
) -> tuple[Published, list[int]]:
    """Append these attempts by partition, and delete all others; also returns the ids of queues that other servers watch."""
    # The receipt first: two servers that publish one epoch wait for each other here.
    taken = await receipts.take(connection, [Receipt(epoch.receipt, b"null", expires_at)], now)
    recorded = taken.recorded(epoch.receipt)
    if recorded is not None:
        return Published(recorded, []), []
    chunks, found = [], dict[tuple[int, int], int]()
    for one in sorted(attempts):
        for row in await connection.fetch(SQL["chunks"], *_key(epoch), one.partition, one.attempt):
            chunks.append((one, row))
            at = one.partition, one.attempt
            found[at] = found.get(at, 0) + row["messages"]
    check_staged(epoch, attempts, found)
    keys = [QueueKey(name, epoch.tenant) for name in {name for _, row in chunks for name in row["queues"]}]
    if keys:
        # All logs at once, in the order of their locks: chunk by chunk two publishers might deadlock.
        await push.open_or_make_logs(connection, keys, now, create_queues)
    tally, watched = PublishTally(epoch), set[int]()
    for one, row in chunks:
        data = await connection.fetchval(SQL["data"], *_key(epoch), one.partition, one.attempt, row["number"])
        watched |= set(await _append(connection, epoch, data, first_id, tally, now, create_queues))
        first_id = id_after(first_id, row["messages"])
    published = tally.published()
    taken.keep(Receipt(epoch.receipt, published.answer, expires_at))
    await taken.write(connection)
    await connection.execute(SQL["drop_epoch"], *_key(epoch))
    return published, sorted(watched)


async def _append(
    connection: Connection,
    epoch: EpochKey,
    data: bytes,
    first_id: Id,
    tally: PublishTally,
    now: Instant,
    create_queues: bool,
) -> list[int]:
    """Append one chunk, so that no more than one is in memory."""
    from skep.arrow.staged import Unpacked
    from skep.store.postgres import bulk

    chunk = await asyncio.to_thread(Unpacked, data, epoch.tenant)
    if chunk.queue is not None:
        rows = chunk.rows(first_id)
        appended, watched = await bulk.append(connection, chunk.queue, rows, now, create_queues)
        tally.appended(chunk.queue.name, len(rows), appended)
        return watched
    batch = await asyncio.to_thread(chunk.batch, first_id)
    (outcome,), watched = await push.push_batches(connection, [batch], now, create_queues, holds_logs=True)
    if outcome.held:
        raise operations_ahead()
    tally.pushed([m.queue.name for m in batch.messages], outcome)
    return watched


async def abort(
    connection: Connection, epoch: EpochKey, partition: int | None = None, attempt: int | None = None
) -> int:
    """Delete the staged chunks of an epoch, or of one attempt; returns their number."""
    if partition is None or attempt is None:
        return int(await connection.fetchval(SQL["drop_epoch"], *_key(epoch)))
    return int(await connection.fetchval(SQL["drop_attempt"], *_key(epoch), partition, attempt))
