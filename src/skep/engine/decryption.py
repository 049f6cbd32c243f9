"""The verbs that give out payloads, with the payloads opened: for the engine of a server that has master keys.

The engine reads payloads through these only (a test holds that). A message that cannot be opened, since its key was
destroyed or it was changed behind our back, is never handed out: a pop rejects it, so that it does not stand in the way.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple, Protocol

import msgspec
import structlog

from skep.clock import Instant
from skep.config import MEBIBYTE
from skep.engine.encryption import Encryption, Row, Sources
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
    StoredMessage,
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
"""Sealed payloads that are opened for the previews of one page; those beyond stay sealed."""

log = structlog.get_logger("skep.encryption")


class SealedStore(PayloadVerbs, PushVerbs, SettleVerbs, Protocol):
    """A store as far as opening needs it: what cannot be handed out is settled, and who claims with a push may push without."""


class Decryption:
    """Implements `skep.store.protocol.PayloadVerbs`: each verb is the store's own, and what it gives out is open."""

    def __init__(self, store: SealedStore, encryption: Encryption) -> None:
        self._store = store
        self._encryption = encryption

    async def push_and_pop(
        self, batches: Sequence[PushBatch], requests: Sequence[PopRequest], now: Instant, create_queues: bool = True
    ) -> tuple[list[PushOutcome], list[PopResult | None]]:
        """Push, and pop for those who wait. Who would get what has to be opened pops by himself: the push does not wait for that."""
        if self._pop_for_themselves(requests):
            return await self._store.push(batches, now, create_queues), [None] * len(requests)
        outcomes, popped = await self._store.push_and_pop(batches, requests, now, create_queues)
        return outcomes, await self._open_ones(popped, now)

    async def settle_and_pop(
        self, settlements: Sequence[Settlement], requests: Sequence[PopRequest], now: Instant
    ) -> tuple[list[SettleResult], list[PopResult | None]]:
        """Settle, and pop for those who wait, in the same way."""
        if self._pop_for_themselves(requests):
            return await self._store.settle(settlements, now), [None] * len(requests)
        results, popped = await self._store.settle_and_pop(settlements, requests, now)
        return results, await self._open_ones(popped, now)

    def _pop_for_themselves(self, requests: Sequence[PopRequest]) -> bool:
        """Whether these would get what has to be opened, as far as is known, or settled as it is handed out."""
        return any(request.auto_ack or self._encryption.seals(request.queue) for request in requests)

    async def _open_ones(self, popped: Sequence[PopResult | None], now: Instant) -> list[PopResult | None]:
        """What has nothing that must be opened; the rest is given back."""
        closed = [result for result in popped if result is not None and any(map(_is_closed, result.deliveries))]
        if closed:
            await self._release([delivery for result in closed for delivery in result.deliveries], now)
        return [None if result in closed else result for result in popped]

    async def pop(self, requests: Sequence[PopRequest], now: Instant) -> list[PopResult]:
        """Lease messages for each request in turn, opened.

        Who acks by popping acks what could be opened: settled before, a message that cannot be would be lost.
        """
        leasing = [msgspec.structs.replace(one, auto_ack=False) if one.auto_ack else one for one in requests]
        results = await self._store.pop(leasing, now)
        try:
            return await self._opened_all(requests, results, now)
        except Exception:
            # Nobody gets them, and that a key or the store is not there is no fault of theirs: it may not cost them an attempt.
            await self._release([delivery for result in results for delivery in result.deliveries], now)
            raise

    async def _release(self, deliveries: Sequence[Delivery], now: Instant) -> None:
        """Give messages back that reached nobody; when that fails, their leases run out."""
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
        for request, result in zip(requests, opened, strict=True):
            if request.auto_ack:
                settlements += [delivery.settlement() for delivery in result.deliveries]
        if settlements:
            await self._store.settle(settlements, now)
        return opened

    async def _with_errors(self, result: PopResult) -> PopResult:
        """The same with the errors that dead letters died of opened."""
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
        """The same with open payloads; what cannot be opened is left out, and is to be rejected."""
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
        """Browse the log. A sealed payload has no preview of its own: it is opened whole, then cut."""
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

    async def trace(self, tenant: str, trace_id: Id, limit: int = 1000) -> list[StoredMessage]:
        """All messages of a trace across the tenant's queues, oldest first."""
        found = await self._store.trace(tenant, trace_id, limit)
        return [await self._shown(one, None, one.state) for one in found]

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
        """Why the newest dead letters of a dead-letter queue died."""
        found = await self._store.deaths(key, limit)
        errors = await self._encryption.open_errors([
            (one.error, QueueKey(one.source_queue, key.tenant), None) for one in found
        ])  # fmt: skip
        return [msgspec.structs.replace(one, error=error) for one, error in zip(found, errors, strict=True)]

    async def replays(
        self, key: QueueKey, source_queue: str | None, before: Seq | None, limit: int
    ) -> list[ReplayRecord]:
        """What was replayed from a dead-letter queue. Where the source queue is gone, so is the way to its keys."""
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

    def _opened_or_nothing(self, row: Row, source: str | None) -> tuple[bytes, str | None]:
        """A message that cannot be decrypted is shown as sealed, without its payload."""
        try:
            return self._encryption.open(row, source)
        except SkepError:
            return b"", SEALED_TYPE

    async def read_log(self, key: QueueKey, wanted: LogRange) -> LogPiece:
        """A piece of the log with its payloads opened; CANNOT_DECRYPT when one cannot be: a pipeline leaves out nothing."""
        if "payload" not in wanted.schema.names:
            return await self._store.read_log(key, wanted)
        try:
            return await self._read_opened(key, wanted)
        except SkepError as error:
            if error.code is not Code.CANNOT_DECRYPT:
                raise
        # A dead letter may have been taken away after the log was read, and before its source was looked up.
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
            batch = await asyncio.to_thread(self._with_opened, batch, rows, sources)
        return msgspec.structs.replace(piece, batch=batch.select(wanted.schema.names))

    def _with_opened(self, batch: pa.RecordBatch, rows: list[LogRow], sources: Sources) -> pa.RecordBatch:
        import pyarrow as pa

        opened = [self._encryption.open(row, sources.get((row.queue, row.seq))) for row in rows]
        for name, values in (("payload", [one[0] for one in opened]), ("content_type", [one[1] for one in opened])):
            place = batch.schema.get_field_index(name)
            field = batch.schema.field(place)
            batch = batch.set_column(place, field, pa.array(values, field.type))
        return batch


class LogRow(NamedTuple):
    """A row of the raw log, with the columns that say whether an envelope belongs there."""

    queue: QueueKey
    seq: Seq
    partition: str
    id: Id
    trace_id: Id
    content_type: str | None
    payload: bytes


OPENED_BY = ("seq", "partition", "message_id", "trace_id", "content_type", "payload")
"""The columns of a `LogRow`."""


def _is_closed(delivery: Delivery) -> bool:
    """Whether some of its messages may be sealed (encrypted)."""
    return delivery.content_type == SEALED_TYPE or delivery.dead_letter is not None


def _with(d: Delivery, payload: bytes, content_type: str | None) -> Delivery:
    """The delivery with another payload: by hand, since a copy by names takes three times as long."""
    return Delivery(
        d.queue, d.group, d.partition, d.seq, d.id, d.transaction_id, d.trace_id, d.headers, content_type, payload, d.priority,
        d.created_at, d.attempt, d.token, d.lease_deadline, d.dead_letter,
    )  # fmt: skip
