"""Staged messages. They are checked like a push when they are staged, so that publishing can fail only for want of room.

Reached as ``engine.staging``. A writer that may run twice, such as a Spark task, stages its messages. The coordinator, which knows the
runs that count, publishes their messages all at once, exactly once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import msgspec
from msgspec import Struct

from skep.clock import Clock, Instant, seconds
from skep.config import EngineSettings
from skep.engine import validate
from skep.engine.declared import Declared
from skep.engine.encryption import Encryption
from skep.engine.inflight import InFlight
from skep.engine.record_checks import check_receipt_key
from skep.errors import Code, SkepError
from skep.ids import IdMint
from skep.model import NewMessage, QueueKey
from skep.model.record import ReceiptKey
from skep.model.staging import Attempt, EpochKey, Published, StagedChunk
from skep.store.protocol.records import HasRecords
from skep.store.protocol.staging import StagingVerbs

if TYPE_CHECKING:  # the extra `arrow` need not be installed
    import pyarrow as pa

NUMBER_MAX = 2**63 - 1
MESSAGES_MAX = 2**40
"""The most staged messages of one attempt."""
ATTEMPTS_MAX = 100_000
"""The most partitions of one epoch."""


class StagedAt(Struct, frozen=True):
    """The place of staged messages: epoch, partition, attempt and chunk."""

    epoch: EpochKey
    partition: int
    attempt: int
    chunk: int = 0


class Epoch(Struct, frozen=True):
    """The state of an epoch: the answer of its publication (None before it), and its staged messages."""

    answer: bytes | None
    attempts: list[tuple[Attempt, int]]


class StagingAndRecords(StagingVerbs, HasRecords, Protocol):
    """The store's verbs for staged messages and for the receipts of published epochs."""


@dataclass(eq=False)
class Staging:
    """The engine's interface for staged messages."""

    _store: StagingAndRecords
    _clock: Clock
    _ids: IdMint
    _in_flight: InFlight
    _settings: EngineSettings
    _declared: Callable[[], Declared | None]
    """Returns the checks of specs, if any."""
    _pushed: Callable[[QueueKey, Instant], None]
    """Called for a queue that got messages."""
    _encryption: Encryption

    async def stage_columns(
        self, place: StagedAt, key: QueueKey, batch: pa.RecordBatch, headers: bytes | None = None
    ) -> int:
        """Stage partitions and payloads of one queue, all with the same headers; returns the number of messages."""
        from skep.arrow.staged import plain_chunk
        from skep.engine.bulk import checked_columns, messages_of

        with self._in_flight:
            _check_place(place)
            validate.check_key(key)
            partition, payload = await checked_columns(key, batch, self._settings.limits, self._declared())
            if self._encryption.seals(key):
                messages = await asyncio.to_thread(messages_of, key, partition, payload, headers)
                return await self._stage_checked(place, messages)
            data = await asyncio.to_thread(plain_chunk, key.name, partition, payload, headers)
            await self._stage(place, len(payload), [key.name], data)
            return len(payload)

    async def stage_messages(self, place: StagedAt, messages: Sequence[NewMessage], audience: str | None = None) -> int:
        """Stage messages with all their fields; returns their number.

        With ``audience`` they are messages that were pushed before, and now come once more to this group alone.
        """
        with self._in_flight:
            _check_place(place)
            messages = list(messages)
            if audience is not None:
                validate.check_name(audience, "group")
                if any(message.deliver_at is not None for message in messages):
                    raise SkepError(Code.INVALID_REQUEST, "what is staged for a group has no time of delivery")
            declared = self._declared()
            if declared is not None:
                messages = await declared.fit(messages)
            await asyncio.to_thread(self._check, messages)
            return await self._stage_checked(place, messages, audience)

    async def _stage_checked(self, place: StagedAt, messages: list[NewMessage], audience: str | None = None) -> int:
        from skep.arrow.staged import rich_chunk

        if any(self._encryption.seals(message.queue) for message in messages):
            messages = await self._sealed(messages)
        data = await asyncio.to_thread(rich_chunk, messages, audience)
        await self._stage(place, len(messages), list({m.queue.name: None for m in messages}), data)
        return len(messages)

    async def _sealed(self, messages: list[NewMessage]) -> list[NewMessage]:
        """The messages, with those of encrypted queues sealed. A staged message gets its id when it is published, so it is sealed
        with its trace id.
        """
        ids = self._ids.mint_many(len(messages))
        traced = [
            msgspec.structs.replace(m, trace_id=m.trace_id or id_) if self._encryption.seals(m.queue) else m
            for m, id_ in zip(messages, ids, strict=True)
        ]
        return await self._encryption.seal(traced, ids)

    def _check(self, messages: list[NewMessage]) -> None:
        validate.check_count(len(messages), self._settings.limits.bulk_messages, "the number of messages")
        size = 0
        for index, message in enumerate(messages):
            validate.check_key(message.queue)
            refusal = validate.refusal_of(message, self._settings.limits, False)
            if refusal is not None:
                raise SkepError(refusal.code, f"message {index}: {refusal.reason}", index=index)
            size += len(message.payload) + len(message.headers or b"")
        if size > self._settings.limits.bulk_bytes:
            raise SkepError(
                Code.PAYLOAD_TOO_LARGE,
                f"a chunk has at most {self._settings.limits.bulk_bytes} bytes of payloads",
                bytes=size,
            )

    async def _stage(self, place: StagedAt, messages: int, queues: list[str], data: bytes) -> None:
        now = self._clock.now()
        chunk = StagedChunk(
            epoch=place.epoch, partition=place.partition, attempt=place.attempt, number=place.chunk, messages=messages,
            queues=queues, data=data, expires_at=Instant(now + seconds(self._settings.staging_seconds)),
        )  # fmt: skip
        await self._store.stage(chunk, now)

    async def publish(self, epoch: EpochKey, attempts: Sequence[Attempt]) -> Published:
        """Publish these attempts: their messages enter the logs all at once, exactly once. A repeat gets the first answer."""
        with self._in_flight:
            _check_epoch(epoch)
            if len(attempts) > ATTEMPTS_MAX or len({a.partition for a in attempts}) < len(attempts):
                raise SkepError(Code.INVALID_REQUEST, f"name each partition once, at most {ATTEMPTS_MAX}")
            for attempt in attempts:
                _check_number(attempt.partition, "a partition")
                _check_number(attempt.attempt, "an attempt")
                _check_number(attempt.messages, "a number of messages", MESSAGES_MAX)
            now = self._clock.now()
            first_id = self._ids.mint_range(max(1, sum(attempt.messages for attempt in attempts)))
            expires_at = Instant(now + seconds(self._settings.published_seconds))
            create = self._settings.create_queues_on_push
            published = await self._store.publish(epoch, list(attempts), first_id, expires_at, now, create)
            for key in published.queues:
                self._pushed(key, now)
            return published

    async def epoch(self, epoch: EpochKey) -> Epoch:
        """The state of an epoch."""
        with self._in_flight:
            _check_epoch(epoch)
            (receipt,) = await self._store.records.receipts([epoch.receipt], self._clock.now())
            return Epoch(None if receipt is None else receipt.answer, await self._store.staged(epoch))

    async def queues(self, epoch: EpochKey) -> list[str]:
        """The names of the target queues of an epoch's staged messages."""
        with self._in_flight:
            _check_epoch(epoch)
            return await self._store.staged_queues(epoch)

    async def abort(self, epoch: EpochKey, partition: int | None = None, attempt: int | None = None) -> int:
        """Delete the staged messages of an epoch, or of one attempt; returns the number of chunks."""
        with self._in_flight:
            _check_epoch(epoch)
            if (partition is None) != (attempt is None):
                raise SkepError(Code.INVALID_REQUEST, "'partition' and 'attempt' go together")
            if partition is not None and attempt is not None:
                _check_number(partition, "a partition")
                _check_number(attempt, "an attempt")
            return await self._store.abort(epoch, partition, attempt)


def _check_epoch(epoch: EpochKey) -> None:
    validate.check_name(epoch.tenant, "tenant")
    validate.check_name(epoch.query, "query")
    _check_number(epoch.epoch, "an epoch")
    check_receipt_key(ReceiptKey(epoch.receipt.scope, epoch.receipt.key, epoch.tenant))


def _check_place(place: StagedAt) -> None:
    _check_epoch(place.epoch)
    _check_number(place.partition, "a partition")
    _check_number(place.attempt, "an attempt")
    _check_number(place.chunk, "a chunk")


def _check_number(value: int, what: str, most: int = NUMBER_MAX) -> None:
    if not 0 <= value <= most:
        raise SkepError(Code.INVALID_REQUEST, f"{what} is a number from 0 to {most}")
