"""Giving up on messages: they move to the dead-letter queue in the transaction that settles them (I11)."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import structlog

from skep.clock import Instant
from skep.errors import Code, SkepError
from skep.ids import Id
from skep.model import (
    NO_GROUP,
    DeadLetterOrigin,
    DeadReason,
    NewMessage,
    PushBatch,
    PushOutcome,
    PushResult,
    PushStatus,
    Queue,
    QueueKey,
    Seq,
)
from skep.model.record import Buried, Receipt, ReceiptKey, Unfit
from skep.store.lease import Burial
from skep.store.postgres import queues, receipts
from skep.store.postgres.connection import Connection
from skep.store.postgres.copy_format import append_rows
from skep.store.postgres.push import OpenLog, depth_of, open_logs
from skep.store.rules import check_sealed, not_quarantined, queue_full_reason
from skep.store.statements import load_statements

SQL = load_statements(__package__, "bury")
log = structlog.get_logger("skep.store.postgres")


async def bury(
    connection: Connection, queue: Queue, group: str, burials: Sequence[Burial], now: Instant
) -> tuple[QueueKey | None, int]:
    """Move messages to the dead-letter queue. Returns that (None: they are discarded), and how many count as expired after all.

    Those were purged while a consumer held them: nothing is left to bury.
    """
    target = await queues.dead_letter_queue_of(connection, queue, now)
    if target is None:
        for burial in burials:
            log.warning(
                "message discarded",
                queue=queue.key.name,
                seq=burial.seq,
                group=group,
                reason=burial.reason,
                error=burial.error,
            )
        return None, 0
    to = await _open_grave(connection, target.key, now)
    rows = await connection.fetch(
        SQL["bury"], queue.id, queue.key.name, to.queue_id, to.last_seq, to.created_at, now, group,
        [b.seq for b in burials], [b.reason.value for b in burials], [b.error for b in burials], [b.attempts for b in burials],
        to.only_partition,
    )  # fmt: skip
    buried = {row["source_seq"] for row in rows}
    return target.key, sum(b.seq not in buried and b.reason is not DeadReason.EXPIRED for b in burials)


async def open_graves(connection: Connection, doomed: Sequence[Queue], now: Instant) -> None:
    """Lock the logs that messages of several queues will be buried in, in the common order of locks."""
    targets = [await queues.dead_letter_queue_of(connection, queue, now) for queue in doomed]
    await open_logs(connection, [target.key for target in targets if target is not None], now)


async def quarantine(
    connection: Connection, message: NewMessage, id_: Id, error: str, receipt: Receipt | None, now: Instant
) -> tuple[PushOutcome, list[int]]:
    """Store a message that does not fit its queue as a dead letter; also returns the ids of queues that other servers watch."""
    taken = await receipts.take(connection, [] if receipt is None else [receipt], now)
    if receipt is not None and (recorded := taken.recorded(receipt.key)) is not None:
        return PushOutcome([], {}, recorded), []
    queue = await queues.get_queue(connection, message.queue)
    if queue is None:
        await queues.ensure(connection, message.queue, now)
        queue = await queues.need(connection, message.queue)
    check_sealed(queue.key.name, queue.settings.encryption_enabled, message.content_type)
    target = await queues.dead_letter_queue_of(connection, queue, now)
    if target is None:
        await taken.write(connection)
        return not_quarantined(message, id_), []
    to = await _open_grave(connection, target.key, now)
    if to.max_depth and to.depth >= to.max_depth:
        await taken.write(connection)
        return not_quarantined(message, id_, queue_full_reason(target.key.name, to.depth, to.max_depth, 1)), []
    seq, trace_id = to.last_seq + 1, message.trace_id or id_
    await append_rows(connection, [(
        seq, to.created_at, id_, trace_id, to.queue_id, None, message.priority, to.only_partition or message.partition,
        message.transaction_id, message.content_type, message.headers, message.payload,
    )])  # fmt: skip
    await connection.execute(
        SQL["quarantine"], to.queue_id, seq, id_, queue.key.name, NO_GROUP, DeadReason.INVALID.value, error, message.partition, now
    )  # fmt: skip
    result = PushResult(PushStatus.STORED, id_, Seq(seq), message.transaction_id, trace_id)
    to.depth += 1
    return PushOutcome([result], {target.key: depth_of(to)}), [to.queue_id] if to.watched else []


async def bury_unfit(
    connection: Connection,
    key: QueueKey,
    unfit: Sequence[Unfit],
    receipt: ReceiptKey,
    expires_at: Instant,
    now: Instant,
) -> Buried:
    """Copy messages of a log to the dead-letter queue, once."""
    # The receipt first: two servers with the same request wait for each other here.
    taken = await receipts.take(connection, [Receipt(receipt, b"null", expires_at)], now)
    if (known := taken.recorded(receipt)) is not None:
        return msgspec.json.decode(known, type=Buried)
    queue = await queues.need(connection, key)
    if (grave := await queues.dead_letter_queue_of(connection, queue, now)) is not None:
        # No group is involved here: only the lock of the log keeps a message from being forgotten while it is copied.
        await open_logs(connection, [key, grave.key], now)
    burials = [Burial(one.seq, DeadReason.INVALID, one.error, 0) for one in unfit]
    target, gone = await bury(connection, queue, NO_GROUP, burials, now)
    told = Buried(key.name, None, 0, 0) if target is None else Buried(key.name, target.name, len(unfit) - gone, gone)
    taken.keep(Receipt(receipt, msgspec.json.encode(told), expires_at))
    await taken.write(connection)
    return told


async def bury_new(
    connection: Connection, key: QueueKey, batch: PushBatch, error: str | None, attempts: int, now: Instant
) -> str | None:
    """Store messages that could not be pushed as dead letters, in order; returns the name of the dead-letter queue.

    None when there is no queue, or it keeps no dead letters. The messages were accepted, so max_depth does not refuse them.
    NOT_ENCRYPTED when the queue is encrypted and one of them is not.
    """
    queue = await queues.get_queue(connection, key)
    target = None if queue is None else await queues.dead_letter_queue_of(connection, queue, now)
    if queue is None or target is None:
        return None
    for message in batch.messages:
        check_sealed(key.name, queue.settings.encryption_enabled, message.content_type)
    to = await _open_grave(connection, target.key, now)
    first, only = to.last_seq + 1, to.only_partition
    numbered = list(zip(range(first, first + len(batch.ids)), batch.messages, batch.ids, strict=True))
    await append_rows(connection, [
        (seq, to.created_at, id_, m.trace_id or id_, to.queue_id, None, m.priority, only or m.partition, m.transaction_id,
         m.content_type, m.headers, m.payload)
        for seq, m, id_ in numbered
    ])  # fmt: skip
    await connection.execute(
        SQL["bury_new"], to.queue_id, [seq for seq, _, _ in numbered], batch.ids, [m.partition for m in batch.messages],
        key.name, NO_GROUP, DeadReason.OPERATION_FAILED.value, error, attempts, now,
    )  # fmt: skip
    return target.key.name


async def _open_grave(connection: Connection, key: QueueKey, now: Instant) -> OpenLog:
    log = (await open_logs(connection, [key], now)).get(key)
    if log is None:
        raise SkepError(Code.STORE_BUSY, f"the dead-letter queue {key.name!r} was deleted at this very moment")
    return log


async def origins(connection: Connection, queue_id: int, seqs: Sequence[int]) -> dict[int, DeadLetterOrigin]:
    """The origins of dead letters by seq. A message that was pushed to the dead-letter queue has none."""
    return {
        seq: DeadLetterOrigin(source, source_seq, partition, group, DeadReason(reason), error, attempts, failed_at)
        for seq, source, source_seq, partition, group, reason, error, attempts, failed_at in await connection.fetch(
            SQL["origins"], queue_id, seqs
        )
    }
