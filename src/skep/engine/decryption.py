"""The store's verbs that return payloads, with the payloads opened (decrypted), for a server with master keys.

The engine reads payloads only through these verbs (a test holds that). A message cannot be opened when its key was destroyed, or
when the message was changed in the store. A pop rejects such a message, so that it does not hold up its partition.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple, Protocol

import msgspec
import structlog

from skep.clock import Instant
from skep.config import MEBIBYTE
from skep.engine.encryption import EncryptedRow, Encryption, Sources
from skep.errors import Code, SkepError
from skep.ids import Id
from skep.model import (
    SEALED_TYPE,
    DeadLetter,
    DeadLetterFilter,
    Delivery,
    MessageFilter,
    MessagePage,
    MessageState,
    Outcome,
    PartitionStats,
    PopRequest,
    PopResult,
    PushBatch,
    PushOutcome,
    QueueKey,
    Seq,
    Settlement,
    SettleResult,
    SettleStatus,
    StoredMessage,
    Token,
)
from skep.model.history import Death, FailedAttempt, ReplayRecord
from skep.model.record import MAX_BYTES
from skep.store.protocol import PayloadVerbs
from skep.store.protocol.push import PushVerbs
from skep.store.protocol.settle import SettleVerbs

if TYPE_CHECKING:  # the extra `arrow` need not be installed
    import pyarrow as pa

    from skep.arrow.log import LogPiece, LogRange

PREVIEWED_BYTES = 16 * MEBIBYTE
"""How many bytes of sealed payloads are opened for the previews of one page; further payloads stay sealed."""

log = structlog.get_logger("skep.encryption")


class SealedStore(PayloadVerbs, PushVerbs, SettleVerbs, Protocol):
    """The part of a store that decryption uses: the payload verbs, a plain push, and a plain settle."""


class Decryption:
    """Implements `skep.store.protocol.PayloadVerbs`: each verb calls the store, and opens the payloads of its answer."""

    def __init__(self, store: SealedStore, encryption: Encryption) -> None:
        self._store = store
        self._encryption = encryption

    async def push_and_pop(
        self, batches: Sequence[PushBatch], requests: Sequence[PopRequest], now: Instant, create_queues: bool = True
    ) -> tuple[list[PushOutcome], list[PopResult | None]]:
        """Push, and pop for waiting polls. Polls of encrypted queues pop by themselves, so that the push need not wait for decryption."""
        if self._pop_for_themselves(requests):
            return await self._store.push(batches, now, create_queues), [None] * len(requests)
        outcomes, popped = await self._store.push_and_pop(batches, requests, now, create_queues)
        return outcomes, await self._open_ones(popped, now)

    async def settle_and_pop(
        self, settlements: Sequence[Settlement], requests: Sequence[PopRequest], now: Instant
    ) -> tuple[list[SettleResult], list[PopResult | None]]:
        """Settle, and pop for waiting polls, with the same exception as `push_and_pop`."""
        if self._pop_for_themselves(requests):
            return await self._store.settle(settlements, now), [None] * len(requests)
        results, popped = await self._store.settle_and_pop(settlements, requests, now)
        return results, await self._open_ones(popped, now)

    def _pop_for_themselves(self, requests: Sequence[PopRequest]) -> bool:
        """Whether one of these requests is for an encrypted queue, as far as known, or wants auto-ack."""
        return any(request.auto_ack or self._encryption.seals(request.queue) for request in requests)

    async def _open_ones(self, popped: Sequence[PopResult | None], now: Instant) -> list[PopResult | None]:
        """The results without sealed messages. A result with a sealed message is given back, and becomes None."""
        closed = [result for result in popped if result is not None and any(map(_is_closed, result.deliveries))]
        if closed:
            await self._release([delivery for result in closed for delivery in result.deliveries], now)
        return [None if result in closed else result for result in popped]

    async def pop(self, requests: Sequence[PopRequest], now: Instant) -> list[PopResult]:
        """Lease messages for each request in turn, and open them.

        With auto-ack, messages are acked only after they were opened, so that an unreadable one is not lost. Those whose ack comes too late
        are left out.
        """
        leasing = [msgspec.structs.replace(one, auto_ack=False) if one.auto_ack else one for one in requests]
        results = await self._store.pop(leasing, now)
        try:
            return await self._opened_all(requests, results, now)
        except Exception:
            # Release all messages: they reached nobody, and a missing key or store must not cost them an attempt.
            await self._release([delivery for result in results for delivery in result.deliveries], now)
            raise

    async def _release(self, deliveries: Sequence[Delivery], now: Instant) -> None:
        """Give back messages that reached nobody. If that fails, their leases run out."""
        try:
            await self._store.settle([delivery.settlement(Outcome.RELEASE) for delivery in deliveries], now)
        except SkepError as error:
            log.warning("messages could not be given back", messages=len(deliveries), error=str(error))

    async def _opened_all(
        self, requests: Sequence[PopRequest], results: Sequence[PopResult], now: Instant
    ) -> list[PopResult]:
        sealed = [
            delivery for result in results for delivery in result.deliveries if delivery.content_type == SEALED_TYPE
        ]
        settlements: list[Settlement] = []
        opened = list(results)
        if sealed:
            sources = await self._encryption.prepare(sealed)
            opened = [self._opened(result, sources, settlements) for result in results]
        if any(d.dead_letter is not None and d.dead_letter.error for result in opened for d in result.deliveries[:1]):
            opened = [await self._with_errors(result) for result in opened]
        acks = [
            delivery.settlement()
            for request, result in zip(requests, opened, strict=True)
            if request.auto_ack
            for delivery in result.deliveries
        ]
        if not settlements and not acks:
            return opened
        settled = await self._store.settle([*settlements, *acks], now)
        late = {
            _named(ack)
            for ack, done in zip(acks, settled[len(settlements) :], strict=True)
            if done.status is SettleStatus.REFUSED
        }
        return [_without(result, late) for result in opened] if late else opened

    async def _with_errors(self, result: PopResult) -> PopResult:
        """The result with the errors of its dead letters opened."""
        errors = await self._encryption.open_errors([
            (None if d.dead_letter is None else d.dead_letter.error,
             QueueKey("" if d.dead_letter is None else d.dead_letter.source_queue, d.queue.tenant),
             None if d.dead_letter is None else d.dead_letter.source_seq)
            for d in result.deliveries
        ])  # fmt: skip
        deliveries = [
            d
            if d.dead_letter is None
            else msgspec.structs.replace(d, dead_letter=msgspec.structs.replace(d.dead_letter, error=error))
            for d, error in zip(result.deliveries, errors, strict=True)
        ]
        return PopResult(deliveries, result.next_ready_at, result.more)

    def _opened(self, result: PopResult, sources: Sources, settlements: list[Settlement]) -> PopResult:
        """The result with opened payloads. Messages that cannot be opened are left out; ``settlements`` gets their rejections."""
        if not any(delivery.content_type == SEALED_TYPE for delivery in result.deliveries):
            return result
        opened: list[Delivery] = []
        lost: list[Settlement] = []
        for delivery in result.deliveries:
            try:
                payload, content_type = self._encryption.open(delivery, sources.get((delivery.queue, delivery.seq)))
                opened.append(_with(delivery, payload, content_type))
            except SkepError as error:
                lost.append(delivery.settlement(Outcome.REJECT, error=str(error)))
        if lost:
            log.error("messages cannot be decrypted", queue=lost[0].queue.name, messages=len(lost), error=lost[0].error)
            settlements += lost
        return PopResult(opened, result.next_ready_at, result.more or bool(lost))

    async def messages(self, wanted: MessageFilter, now: Instant) -> MessagePage:
        """Browse the log. For a preview, a sealed payload is opened whole, then cut."""
        page = await self._store.messages(wanted, now)
        room, shown = PREVIEWED_BYTES, []
        for one in page.messages:
            whole: StoredMessage | None = one
            if one.content_type == SEALED_TYPE and len(one.payload) < one.payload_bytes:
                whole = await self._store.message(one.queue, one.seq) if one.payload_bytes <= room else None
                room -= one.payload_bytes
            sealed = msgspec.structs.replace(one, payload=b"")
            shown.append(sealed if whole is None else await self._shown(whole, wanted.preview_bytes, one.state))
        return MessagePage(shown, page.after)

    async def message(self, key: QueueKey, seq: Seq) -> StoredMessage | None:
        """One message with its whole payload."""
        found = await self._store.message(key, seq)
        return None if found is None else await self._shown(found, None, found.state)

    async def trace(
        self, tenant: str, trace_id: Id, limit: int = 1000, max_bytes: int = MAX_BYTES
    ) -> list[StoredMessage]:
        """All messages of a trace across the tenant's queues, oldest first; those beyond ``max_bytes`` of payloads without payloads."""
        found = await self._store.trace(tenant, trace_id, limit, max_bytes)
        return [
            one if len(one.payload) < one.payload_bytes else await self._shown(one, None, one.state) for one in found
        ]

    async def _shown(self, one: StoredMessage, preview_bytes: int | None, state: MessageState | None) -> StoredMessage:
        if one.content_type != SEALED_TYPE:
            return one
        sources = await self._encryption.prepare([one])
        payload, content_type = self._opened_or_nothing(one, sources.get((one.queue, one.seq)))
        return msgspec.structs.replace(
            one, payload=payload[:preview_bytes], payload_bytes=len(payload), content_type=content_type, state=state
        )

    async def dead_letters(
        self, wanted: DeadLetterFilter, after: Seq | None, limit: int, max_bytes: int = MAX_BYTES
    ) -> list[DeadLetter]:
        """Dead letters in the order of their queue."""
        letters = []
        found = await self._store.dead_letters(wanted, after, limit, max_bytes)
        await self._encryption.load_missing(found)
        for one in found:
            payload, content_type = self._opened_or_nothing(one, one.source_queue)
            letters.append(msgspec.structs.replace(one, payload=payload, content_type=content_type))
        sources = [QueueKey(one.source_queue, one.queue.tenant) for one in letters]
        errors = await self._encryption.open_errors([
            (one.error, source, one.source_seq) for one, source in zip(letters, sources, strict=True)
        ])  # fmt: skip
        return [msgspec.structs.replace(one, error=error) for one, error in zip(letters, errors, strict=True)]

    async def deaths(self, key: QueueKey, limit: int) -> list[Death]:
        """The reasons of the newest dead letters of a dead-letter queue."""
        found = await self._store.deaths(key, limit)
        errors = await self._encryption.open_errors([
            (one.error, QueueKey(one.source_queue, key.tenant), None) for one in found
        ])  # fmt: skip
        return [msgspec.structs.replace(one, error=error) for one, error in zip(found, errors, strict=True)]

    async def replays(
        self, key: QueueKey, source_queue: str | None, before: Seq | None, limit: int
    ) -> list[ReplayRecord]:
        """The replays from a dead-letter queue. The error of a replay cannot be opened when its queue is gone."""
        found = await self._store.replays(key, source_queue, before, limit)
        errors = await self._encryption.open_errors([
            (one.error, QueueKey(one.queue or "", key.tenant), None) for one in found
        ])  # fmt: skip
        return [msgspec.structs.replace(one, error=error) for one, error in zip(found, errors, strict=True)]

    async def failures(self, places: Sequence[tuple[QueueKey, Seq]]) -> list[list[FailedAttempt]]:
        """The failed attempts of each message."""
        found = await self._store.failures(places)
        opened = iter(
            await self._encryption.open_errors([(one.error, one.queue, one.seq) for each in found for one in each])
        )
        return [[msgspec.structs.replace(one, error=next(opened)) for one in each] for each in found]

    async def partition_stats(
        self, key: QueueKey, group: str, now: Instant, after: str = "", limit: int = 100
    ) -> list[PartitionStats]:
        """Partitions with unsettled messages."""
        found = await self._store.partition_stats(key, group, now, after, limit)
        errors = await self._encryption.open_errors([(one.last_error, key, None) for one in found])
        return [msgspec.structs.replace(one, last_error=error) for one, error in zip(found, errors, strict=True)]

    def _opened_or_nothing(self, row: EncryptedRow, source: str | None) -> tuple[bytes, str | None]:
        """The opened payload and content type; an empty payload and `SEALED_TYPE` when it cannot be opened."""
        try:
            return self._encryption.open(row, source)
        except SkepError:
            return b"", SEALED_TYPE

    async def read_log(self, key: QueueKey, wanted: LogRange) -> LogPiece:
        """A piece of the log with opened payloads, unless they are wanted sealed.

        CANNOT_DECRYPT for an unreadable one, as a pipeline must not skip messages, unless it asked for a blank payload.
        """
        if wanted.sealed == "keep" or "payload" not in wanted.schema.names:
            return await self._store.read_log(key, wanted)
        try:
            return await self._read_opened(key, wanted)
        except SkepError as error:
            if error.code is not Code.CANNOT_DECRYPT:
                raise
        # Try once more: a dead letter may have been removed between the read of the log and the lookup of its source.
        return await self._read_opened(key, wanted)

    async def _read_opened(self, key: QueueKey, wanted: LogRange) -> LogPiece:
        names = tuple(dict.fromkeys((*wanted.schema.names, *OPENED_BY)))
        piece = await self._store.read_log(key, msgspec.structs.replace(wanted, columns=names))
        batch = piece.batch
        if SEALED_TYPE in batch.column("content_type").unique().to_pylist():
            rows = [
                LogRow(key, *values) for values in zip(*(batch.column(n).to_pylist() for n in OPENED_BY), strict=True)
            ]
            sources = await self._encryption.prepare(rows)
            opened = self._opened_or_nothing if wanted.sealed == "blank" else self._encryption.open
            batch = await asyncio.to_thread(_with_opened, batch, rows, sources, opened)
        return msgspec.structs.replace(piece, batch=batch.select(wanted.schema.names))


class LogRow(NamedTuple):
    """A row of the raw log, with the columns that prove that an envelope belongs to it."""

    queue: QueueKey
    seq: Seq
    partition: str
    id: Id
    trace_id: Id
    content_type: str | None
    payload: bytes


OPENED_BY = ("seq", "partition", "message_id", "trace_id", "content_type", "payload")
"""The columns of a `LogRow`."""


def _with_opened(
    batch: pa.RecordBatch,
    rows: list[LogRow],
    sources: Sources,
    opened: Callable[[EncryptedRow, str | None], tuple[bytes, str | None]],
) -> pa.RecordBatch:
    import pyarrow as pa

    found = [opened(row, sources.get((row.queue, row.seq))) for row in rows]
    for name, values in (("payload", [one[0] for one in found]), ("content_type", [one[1] for one in found])):
        place = batch.schema.get_field_index(name)
        field = batch.schema.field(place)
        batch = batch.set_column(place, field, pa.array(values, field.type))
    return batch


def _is_closed(delivery: Delivery) -> bool:
    """Whether the payload of a delivery, or the error of its dead letter, may be sealed (encrypted)."""
    return delivery.content_type == SEALED_TYPE or delivery.dead_letter is not None


def _named(one: Delivery | Settlement) -> tuple[QueueKey, Token, Seq]:
    """A message under a lease."""
    return one.queue, one.token, one.seq


def _without(result: PopResult, late: set[tuple[QueueKey, Token, Seq]]) -> PopResult:
    """The result without messages whose leases ended before their acks: they come again, or somebody has them."""
    kept = [delivery for delivery in result.deliveries if _named(delivery) not in late]
    return PopResult(kept, result.next_ready_at, result.more or len(kept) < len(result.deliveries))


def _with(d: Delivery, payload: bytes, content_type: str | None) -> Delivery:
    """The delivery with another payload. Written out, as `structs.replace` takes three times as long."""
    return Delivery(
        d.queue, d.group, d.partition, d.seq, d.id, d.transaction_id, d.trace_id, d.headers, content_type, payload, d.priority,
        d.created_at, d.attempt, d.token, d.lease_deadline, d.dead_letter,
    )  # fmt: skip
