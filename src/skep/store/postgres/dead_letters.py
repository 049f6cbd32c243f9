"""Dead letters: burying, browsing, replaying and purging them.

A burial happens in the transaction that settles the message, a replay or purge in one of its own, so a message is in
exactly one place at every instant (I11).
"""

from __future__ import annotations

from collections.abc import Sequence

import asyncpg
import msgspec
import structlog
from msgspec import Struct

from skep.clock import Instant
from skep.errors import Code, SkepError
from skep.ids import Id
from skep.model import (
    DEFAULT_PARTITION,
    NO_GROUP,
    DeadLetter,
    DeadLetterFilter,
    DeadLetterOrigin,
    DeadReason,
    Edited,
    NewMessage,
    Ordering,
    PurgeStep,
    PushBatch,
    PushOutcome,
    PushResult,
    PushStatus,
    Queue,
    QueueKey,
    Replayed,
    ReplayStep,
    Seq,
)
from skep.model.history import ReplayRecord
from skep.model.operation import operations_ahead
from skep.model.record import Buried, Receipt, ReceiptKey, Unfit
from skep.store.lease import Burial
from skep.store.letters import LOOKED_PER_STEP, span
from skep.store.postgres import queues, receipts
from skep.store.postgres.connection import Connection
from skep.store.postgres.copying import append_rows
from skep.store.postgres.push import OpenLog, depth_of, live_operations, open_logs
from skep.store.rules import SEQ_MAX, check_sealed, is_seq, not_quarantined, queue_full_reason
from skep.store.statements import load_statements

SQL = load_statements(__package__, "dead_letters")

log = structlog.get_logger("skep.store.postgres")


async def bury(
    connection: Connection, queue: Queue, group: str, burials: Sequence[Burial], now: Instant
) -> tuple[QueueKey | None, int]:
    """Move messages to the dead-letter queue, None when this queue discards them; also how many count as expired after all.

    Those are messages that were purged while a consumer held them: nothing is left of them to bury.
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
    to = (await open_logs(connection, [target.key], now)).get(target.key)
    if to is None:
        raise _deleted_meanwhile(target.key)
    rows = await connection.fetch(
        SQL["bury"], queue.id, queue.key.name, to.queue_id, to.last_seq, to.created_at, now, group,
        [b.seq for b in burials], [b.reason.value for b in burials], [b.error for b in burials], [b.attempts for b in burials],
        DEFAULT_PARTITION if to.ordering == Ordering.FIFO else None,
    )  # fmt: skip
    buried = {row["source_seq"] for row in rows}
    return target.key, sum(b.seq not in buried and b.reason is not DeadReason.EXPIRED for b in burials)


async def open_graves(connection: Connection, doomed: Sequence[Queue], now: Instant) -> None:
    """Lock the logs that messages of several queues will be buried in, in the order of everyone."""
    targets = [await queues.dead_letter_queue_of(connection, queue, now) for queue in doomed]
    await open_logs(connection, [target.key for target in targets if target is not None], now)


async def quarantine(
    connection: Connection, message: NewMessage, id_: Id, error: str, receipt: Receipt | None, now: Instant
) -> tuple[PushOutcome, list[int]]:
    """Put a message that its queue may not take straight among the dead letters; also whom to tell, as `push` does."""
    taken = await receipts.take(connection, [] if receipt is None else [receipt], now)
    if receipt is not None and (recorded := taken.recorded(receipt.key)) is not None:
        return PushOutcome([], {}, recorded), []
    queue = await queues.find(connection, message.queue)
    if queue is None:
        await queues.ensure(connection, message.queue, now)
        queue = await queues.need(connection, message.queue)
    check_sealed(queue.key.name, queue.settings.encryption_enabled, message.content_type)
    target = await queues.dead_letter_queue_of(connection, queue, now)
    if target is None:
        await taken.write(connection)
        return not_quarantined(message, id_), []
    to = (await open_logs(connection, [target.key], now)).get(target.key)
    if to is None:
        raise _deleted_meanwhile(target.key)
    if to.max_depth and to.depth >= to.max_depth:
        await taken.write(connection)
        return not_quarantined(message, id_, queue_full_reason(target.key.name, to.depth, to.max_depth, 1)), []
    seq, trace_id = to.last_seq + 1, message.trace_id or id_
    only = DEFAULT_PARTITION if to.ordering == Ordering.FIFO else None
    await append_rows(connection, [(
        seq, to.created_at, id_, trace_id, to.queue_id, None, message.priority, only or message.partition,
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
    """Copy messages of a log among the dead letters of their queue, once."""
    # The receipt first: two servers that are told the same wait for each other here.
    taken = await receipts.take(connection, [Receipt(receipt, b"null", expires_at)], now)
    if (known := taken.recorded(receipt)) is not None:
        return msgspec.json.decode(known, type=Buried)
    queue = await queues.need(connection, key)
    burials = [Burial(one.seq, DeadReason.INVALID, one.error, 0) for one in unfit]
    target, gone = await bury(connection, queue, NO_GROUP, burials, now)
    told = Buried(key.name, None, 0, 0) if target is None else Buried(key.name, target.name, len(unfit) - gone, gone)
    taken.keep(Receipt(receipt, msgspec.json.encode(told), expires_at))
    await taken.write(connection)
    return told


async def bury_new(
    connection: Connection, key: QueueKey, batch: PushBatch, error: str | None, attempts: int, now: Instant
) -> str | None:
    """Put messages that could not be pushed among the dead letters of their queue, in order; the name of where they are.

    None when there is no queue, or it keeps no dead letters. They were accepted, so max_depth does not turn them away.
    NOT_ENCRYPTED when the queue is encrypted and one of them is not.
    """
    queue = await queues.find(connection, key)
    target = None if queue is None else await queues.dead_letter_queue_of(connection, queue, now)
    if queue is None or target is None:
        return None
    for message in batch.messages:
        check_sealed(key.name, queue.settings.encryption_enabled, message.content_type)
    to = (await open_logs(connection, [target.key], now)).get(target.key)
    if to is None:
        raise _deleted_meanwhile(target.key)
    only = DEFAULT_PARTITION if to.ordering == Ordering.FIFO else None
    first = to.last_seq + 1
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


def _deleted_meanwhile(key: QueueKey) -> SkepError:
    return SkepError(Code.STORE_BUSY, f"the dead-letter queue {key.name!r} was deleted at this very moment")


async def _dead_letter_queue(connection: Connection, key: QueueKey) -> Queue:
    queue = await queues.need(connection, key)
    if not queue.holds_dead_letters:
        raise SkepError(Code.NOT_A_DEAD_LETTER_QUEUE, f"queue {key.name!r} is not a dead-letter queue", queue=key.name)
    return queue


async def browse(
    connection: Connection, wanted: DeadLetterFilter, after: Seq | None, limit: int, max_bytes: int
) -> list[DeadLetter]:
    """Matching dead letters in the order of their queue, up to the one that reaches ``max_bytes``."""
    queue = await _dead_letter_queue(connection, wanted.queue)
    rows = await connection.fetch(
        SQL["browse"], *_arguments(queue, wanted), min(after or 0, SEQ_MAX), limit, wanted.up_to, max_bytes
    )
    return [dead_letter_of(row, wanted.queue) for row in rows]


async def origins(connection: Connection, queue_id: int, seqs: Sequence[int]) -> dict[int, DeadLetterOrigin]:
    """Where dead letters come from, by their seqs; what was pushed to their queue as any message is comes from nowhere."""
    return {
        seq: DeadLetterOrigin(source, source_seq, partition, group, DeadReason(reason), error, attempts, failed_at)
        for seq, source, source_seq, partition, group, reason, error, attempts, failed_at in await connection.fetch(
            SQL["origins"], queue_id, seqs
        )
    }


async def count(connection: Connection, wanted: DeadLetterFilter) -> int:
    """How many match."""
    queue = await _dead_letter_queue(connection, wanted.queue)
    return int(await connection.fetchval(SQL["count"], *_arguments(queue, wanted), wanted.up_to))


async def replay(
    connection: Connection,
    wanted: DeadLetterFilter,
    ids: Sequence[Id],
    until: Seq,
    now: Instant,
    shard: int,
    edited: Edited | None,
    after: Seq | None,
) -> tuple[ReplayStep, list[int]]:
    """Move the oldest matches back to their source queues, one per given id, in order; also whom to tell, as `push` does."""
    queue = await _dead_letter_queue(connection, wanted.queue)
    look = _look(queue, wanted, after, until)
    # A look without locks says which logs to open: all at once and in the order of everyone, the dead letters' own among them.
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
        # A group that is gone is made anew at the end of the log, before the replayed message enters it.
        group = row["group_name"]
        if group != NO_GROUP and (key, group) not in audiences:
            found = await connection.fetchval(SQL["audience"], source.queue_id, group, source.last_seq, now)
            audiences[key, group] = found
        if edited is not None:
            check_sealed(key.name, source.encrypted, edited.content_type)
        source.last_seq += 1
        await connection.execute(
            SQL["replay"], queue.id, row["seq"], source.queue_id, source.last_seq, source.created_at, id_, audiences.get((key, group)), now,
            DEFAULT_PARTITION if source.ordering == Ordering.FIFO else None,
            *((None, None, None) if edited is None else (edited.payload, edited.content_type, edited.headers)),
        )  # fmt: skip
        replayed.append(Replayed(row["seq"], key, id_, Seq(source.last_seq)))
    await remove(connection, queue, [row["seq"] for row in rows], now, shard)
    sources = [logs[key] for key in {one.queue for one in replayed}]
    step = ReplayStep(replayed, await look.next_start(connection, rows, len(ids)))
    return step, [source.queue_id for source in sources if source.watched]


class Look(Struct, frozen=True):
    """What one step of a replay or purge looks at: ``arguments`` of the filter, and seqs behind ``after`` up to ``last``."""

    queue_id: int
    arguments: tuple[object, ...]
    after: int
    last: int

    async def pick(self, connection: Connection, limit: int) -> list[asyncpg.Record]:
        """The oldest matches."""
        return await connection.fetch(SQL["pick"], *self.arguments, self.last, limit, self.after, LOOKED_PER_STEP)

    async def next_start(self, connection: Connection, rows: Sequence[asyncpg.Record], limit: int) -> Seq | None:
        """Behind which seq the next step looks, after one that found ``rows``; None when all were looked at."""
        if rows and len(rows) >= limit:
            return Seq(rows[-1]["seq"])
        cut = await connection.fetchval(SQL["nth"], self.queue_id, self.after, self.last, LOOKED_PER_STEP - 1)
        return None if cut is None else Seq(cut)


def _look(queue: Queue, wanted: DeadLetterFilter, after: Seq | None, until: int) -> Look:
    first, last = span(wanted, after, min(until, SEQ_MAX))
    return Look(queue.id, _arguments(queue, wanted), min(first, SEQ_MAX) - 1, max(0, last))


async def _check_order(
    connection: Connection, queue: Queue, logs: dict[QueueKey, OpenLog], rows: Sequence[asyncpg.Record]
) -> None:
    """Replayed messages do not overtake a push that waits as an operation."""
    places = set()
    for row in rows:
        key = QueueKey(row["source_queue"], queue.key.tenant)
        if logs[key].operations:
            places.add((key, DEFAULT_PARTITION if logs[key].ordering == Ordering.FIFO else row["partition"]))
    if places and await live_operations(connection, places):
        raise operations_ahead()


def _sources(queue: Queue, rows: Sequence[asyncpg.Record]) -> list[QueueKey]:
    return [QueueKey(name, queue.key.tenant) for name in dict.fromkeys(row["source_queue"] for row in rows)]


async def replays(
    connection: Connection, key: QueueKey, source_queue: str | None, before: Seq | None, limit: int
) -> list[ReplayRecord]:
    """What was replayed from a dead-letter queue, the newest letters first."""
    queue = await _dead_letter_queue(connection, key)
    end = SEQ_MAX if before is None else min(before, SEQ_MAX)
    return [
        ReplayRecord(
            dead_seq=row["dead_seq"], dead_id=row["dead_id"], queue=row["name"], seq=row["seq"], id=row["id"],
            group=row["group_name"], reason=DeadReason(row["reason"]), error=row["error"], attempts=row["attempts"],
            replayed_at=row["replayed_at"],
        )
        for row in await connection.fetch(SQL["replays"], queue.id, end, source_queue, limit)
    ]  # fmt: skip


async def purge(
    connection: Connection, wanted: DeadLetterFilter, limit: int, now: Instant, shard: int, after: Seq | None
) -> PurgeStep:
    """Delete up to ``limit`` matches."""
    queue = await _dead_letter_queue(connection, wanted.queue)
    await connection.execute(SQL["take_groups"], queue.id, True)
    await connection.execute(SQL["lock_log"], queue.id)
    look = _look(queue, wanted, after, SEQ_MAX)
    rows = await look.pick(connection, limit)
    await remove(connection, queue, [row["seq"] for row in rows], now, shard)
    return PurgeStep(len(rows), await look.next_start(connection, rows, limit))


async def remove(connection: Connection, queue: Queue, seqs: list[int], now: Instant, shard: int) -> None:
    """Take messages, and the dead letters that they may be, out of a queue, correcting the accounts of the groups that read it.

    Under the log's lock: nobody else takes the same ones, and the newest seq and the floor stay as a push sees them. The groups
    are taken, but for those that were made before the log was ours.
    """
    if not seqs:
        return
    await connection.execute(SQL["take_groups"], queue.id, False)
    await connection.execute(SQL["withdraw"], queue.id, seqs, now, shard)
    await connection.execute(SQL["leave_gaps"], queue.id, seqs)
    await connection.execute(SQL["delete"], queue.id, seqs)


def _arguments(queue: Queue, wanted: DeadLetterFilter) -> tuple[object, ...]:
    seqs = None if wanted.seqs is None else [seq for seq in wanted.seqs if is_seq(seq)]
    return (
        queue.id, wanted.ids, seqs, wanted.source_queue, wanted.partition, wanted.group,
        wanted.reason.value if wanted.reason else None, wanted.error_contains, wanted.since, wanted.until,
    )  # fmt: skip


def dead_letter_of(row: asyncpg.Record, key: QueueKey) -> DeadLetter:
    """The dead letter that a joined row holds."""
    return DeadLetter(
        queue=key,
        seq=row["seq"],
        id=row["id"],
        partition=row["partition"],
        source_queue=row["source_queue"],
        source_seq=row["source_seq"],
        group=row["group_name"],
        reason=DeadReason(row["reason"]),
        error=row["error"],
        attempts=row["attempts"],
        transaction_id=row["transaction_id"],
        trace_id=row["trace_id"] or row["id"],
        headers=row["headers"],
        content_type=row["content_type"],
        payload=row["payload"],
        created_at=row["created_at"],
        failed_at=row["failed_at"],
    )
