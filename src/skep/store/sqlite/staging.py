"""Staged messages: stored chunk by chunk, then appended to their logs in one transaction, once (I15)."""

from __future__ import annotations

from collections.abc import Generator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from typing import TYPE_CHECKING, TypeAlias

import msgspec

from skep.clock import Instant
from skep.ids import Id, id_after
from skep.model import PushBatch, QueueKey
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
from skep.store.sqlite import order, receipts
from skep.store.sqlite.push import push_batch
from skep.store.sqlite.session import Session
from skep.store.statements import load_statements

if TYPE_CHECKING:  # the extra `arrow` need not be installed
    from skep.store.sqlite.bulk import Packed

SQL = load_statements(__package__, "staging")

_Prepared: TypeAlias = "tuple[QueueKey, Packed] | PushBatch"
"""A chunk that is ready to append: columns of one queue, or messages of several."""


def stage(session: Session, chunk: StagedChunk, now: Instant) -> None:
    """Store a chunk; EPOCH_PUBLISHED when its epoch was published already."""
    epoch = chunk.epoch
    if receipts.find(session, epoch.receipt, now) is not None:
        raise already_published(epoch)
    session.db.execute(
        SQL["stage"],
        (*_key(epoch), chunk.partition, chunk.attempt, chunk.number, chunk.messages, chunk.expires_at,
         msgspec.json.encode(chunk.queues).decode(), chunk.data),
    )  # fmt: skip


def _key(epoch: EpochKey) -> tuple[str, str, int]:
    return epoch.tenant, epoch.query, epoch.epoch


def staged_queues(session: Session, epoch: EpochKey) -> list[str]:
    """The names of the target queues of an epoch's staged messages."""
    return [row[0] for row in session.rows(SQL["queues"], _key(epoch))]


def staged(session: Session, epoch: EpochKey) -> list[tuple[Attempt, int]]:
    """The staged attempts, each with its number of chunks."""
    rows = session.rows(SQL["attempts"], _key(epoch))
    return [(Attempt(partition, attempt, messages), chunks) for partition, attempt, messages, chunks in rows]


def publish(
    session: Session,
    epoch: EpochKey,
    attempts: list[Attempt],
    first_id: Id,
    expires_at: Instant,
    now: Instant,
    create_queues: bool = True,
) -> Published:
    """Append the attempts in the order of their partitions, and delete all others."""
    known = receipts.find(session, epoch.receipt, now)
    if known is not None:
        return Published(known.answer, [])
    check_staged(epoch, attempts, {(a.partition, a.attempt): a.messages for a, _ in staged(session, epoch)})
    tally = PublishTally(epoch)
    with closing(_prepared(session, epoch, attempts, first_id)) as chunks:
        for chunk in chunks:
            _append(session, chunk, tally, now, create_queues)
            del chunk  # frees its memory before another chunk is read
    published = tally.published()
    receipts.take(session, Receipt(epoch.receipt, published.answer, expires_at), now)
    session.db.execute(SQL["drop_epoch"], _key(epoch))
    return published


def _prepared(
    session: Session, epoch: EpochKey, wanted: list[Attempt], first_id: Id
) -> Generator[_Prepared, None, None]:
    """The chunks, in order. Another thread prepares the next while one is appended; no more than these two are in memory."""
    ahead: Future[_Prepared] | None = None
    with ThreadPoolExecutor(1, "skep-sqlite-publish") as thread:
        for one in sorted(wanted):
            for rowid, messages in session.rows(SQL["chunks"], (*_key(epoch), one.partition, one.attempt)):
                ready = [] if ahead is None else [ahead.result()]
                data = session.one(SQL["data"], (rowid,))[0]
                ahead = thread.submit(_prepare, data, epoch.tenant, first_id)
                first_id = id_after(first_id, messages)
                if ready:
                    yield ready.pop()
        if ahead is not None:
            yield ahead.result()


def _prepare(data: bytes, tenant: str, first_id: Id) -> _Prepared:
    from skep.arrow.staged import Unpacked
    from skep.store.sqlite import bulk

    chunk = Unpacked(data, tenant)
    if chunk.queue is not None:
        return chunk.queue, bulk.pack(chunk.rows(first_id))
    return chunk.batch(first_id)


def _append(session: Session, chunk: _Prepared, tally: PublishTally, now: Instant, create_queues: bool) -> None:
    from skep.store.sqlite import bulk

    if isinstance(chunk, PushBatch):
        order.check_batch(session, chunk)
        tally.pushed([m.queue.name for m in chunk.messages], push_batch(session, chunk, now, create_queues))
    else:
        queue, packed = chunk
        tally.appended(queue.name, packed.count, bulk.append(session, queue, packed, now, create_queues))


def abort(session: Session, epoch: EpochKey, partition: int | None = None, attempt: int | None = None) -> int:
    """Delete the staged chunks of an epoch, or of one attempt; returns how many."""
    if partition is None or attempt is None:
        session.db.execute(SQL["drop_epoch"], _key(epoch))
    else:
        session.db.execute(SQL["drop_attempt"], (*_key(epoch), partition, attempt))
    return session.db.changes()
