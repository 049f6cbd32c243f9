"""Records beside the log: receipts, entities, messages in quarantine, applied specs, pipeline runs, and endpoints.

`Engine.push` and `Engine.transact` write receipts and effects, in one transaction with messages. This module reads them, and
changes the records that have no messages. Reached as ``engine.records``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import msgspec

from skep.clock import Clock, Instant
from skep.config import Limits
from skep.engine import record_checks, validate
from skep.engine.encryption import Encryption
from skep.engine.inflight import InFlight
from skep.engine.record_checks import Recording
from skep.errors import Code, SkepError
from skep.ids import IdMint
from skep.model import DEFAULT_TENANT, NewMessage, PushOutcome, QueueKey
from skep.model.record import (
    AppRecord,
    DeliveryEndpoint,
    EntityEvent,
    EntityKey,
    EntityState,
    PipelineRun,
    Receipt,
    ReceiptKey,
    Report,
)
from skep.store.protocol.records import RecordStore

UNREADABLE = "application/octet-stream"
"""The content type of a message in quarantine that came without one and is not JSON."""


@dataclass(eq=False)
class Records:
    """The engine's interface for records."""

    _records: RecordStore
    _clock: Clock
    _ids: IdMint
    _in_flight: InFlight
    _limits: Limits
    _pushed: Callable[[QueueKey, Instant], None]
    """Called for a queue that got a message."""
    _encryption: Encryption

    def receipt(self, key: ReceiptKey, answer: bytes, window_seconds: float) -> Receipt:
        """A receipt that expires ``window_seconds`` from now."""
        return Receipt(key, answer, record_checks.expiry(self._clock.now(), window_seconds))

    async def read(
        self, entities: Sequence[EntityKey], receipts: Sequence[ReceiptKey]
    ) -> tuple[list[EntityState | None], list[Receipt | None]]:
        """The present entities and the live receipts; None for a missing one."""
        with self._in_flight:
            for what, number in (("entities", len(entities)), ("receipts", len(receipts))):
                if number:
                    validate.check_count(number, self._limits.settlements, f"the number of {what}")
            for entity in entities:
                record_checks.check_entity_key(entity)
            for receipt in receipts:
                record_checks.check_receipt_key(receipt)
            # Entities first: if a receipt is written after its read, the entity has changed, too, and the transaction will fail.
            states = await self._records.entities(entities, self._limits.page_bytes) if entities else []
            return states, await self._records.receipts(receipts, self._clock.now()) if receipts else []

    async def entity(self, key: EntityKey) -> EntityState:
        """An entity as it is now; ENTITY_NOT_FOUND when there is none."""
        with self._in_flight:
            record_checks.check_entity_key(key)
            (found,) = await self._records.entities([key])
            if found is None:
                raise SkepError(Code.ENTITY_NOT_FOUND, f"there is no {key.type} {key.id!r}", entity=key.type, id=key.id)
            return found

    async def entity_events(self, key: EntityKey, *, after: int = 0, limit: int = 100) -> list[EntityEvent]:
        """A page of an entity's events after number ``after``, in order; ENTITY_NOT_FOUND when there is no such entity."""
        with self._in_flight:
            await self.entity(key)
            validate.check_count(limit, self._limits.page, "limit")
            if not 0 <= after <= validate.SEQ_MAX:
                raise SkepError(Code.INVALID_REQUEST, "the number of an event is out of range", after=after)
            return await self._records.entity_events(key, after, limit, self._limits.page_bytes)

    async def list_entities(
        self, type_: str, tenant: str = DEFAULT_TENANT, *, after: str = "", limit: int = 100
    ) -> list[EntityState]:
        """A page of the entities of a type by id, those after ``after``."""
        with self._in_flight:
            validate.check_name(type_, "entity type")
            self._check_page(tenant, after, limit)
            return await self._records.list_entities(tenant, type_, after, limit, self._limits.page_bytes)

    async def entity_types(self, tenant: str = DEFAULT_TENANT) -> list[str]:
        """The types of a tenant's entities, by name."""
        with self._in_flight:
            validate.check_name(tenant, "tenant")
            return await self._records.entity_types(tenant)

    async def quarantine(self, message: NewMessage, error: str, receipt: Recording | None = None) -> PushOutcome:
        """Put a message that its queue may not take directly into the queue's dead letters; it can be replayed from there."""
        with self._in_flight:
            refusal = validate.refusal_of(message, self._limits, json_checked=True)
            if refusal is not None:
                raise SkepError(refusal.code, refusal.reason)
            id_ = self._ids.mint()
            made = None if receipt is None else record_checks.receipt_of(receipt, id_, self._limits)
            if message.content_type is None and not record_checks.is_json(message.payload):
                message = msgspec.structs.replace(message, content_type=UNREADABLE)
            now = self._clock.now()
            error = validate.storable(error, self._limits.error_characters)
            outcome = await self._encryption.quarantine(message, id_, error, made, now)
            for key in outcome.depths:
                self._pushed(key, now)
            return outcome

    async def put_app(self, name: str, document: bytes, *, expected: int | None = None) -> AppRecord:
        """Store a spec; with ``expected``, only while that is the revision of all apps (else STORE_BUSY)."""
        with self._in_flight:
            validate.check_name(name, "app")
            return await self._records.put_app(name, document, self._clock.now(), expected)

    async def delete_app(self, name: str) -> None:
        """Forget a spec; APP_NOT_FOUND when there is none."""
        with self._in_flight:
            validate.check_name(name, "app")
            if not await self._records.delete_app(name):
                raise SkepError(Code.APP_NOT_FOUND, f"there is no app {name!r}", app=name)

    async def apps(self) -> list[AppRecord]:
        """All specs by name."""
        with self._in_flight:
            return await self._records.apps()

    async def apps_revision(self) -> int:
        """A number that rises whenever an app is put or deleted."""
        with self._in_flight:
            return await self._records.apps_revision()

    async def put_run(self, id_: str, document: bytes, tenant: str = DEFAULT_TENANT) -> PipelineRun:
        """Store the report of a pipeline run, in place of its earlier one."""
        with self._in_flight:
            validate.check_name(tenant, "tenant")
            validate.check_name(id_, "run")
            return await self._records.put_run(tenant, id_, document, self._clock.now())

    async def runs(self, tenant: str = DEFAULT_TENANT, *, limit: int = 100) -> list[PipelineRun]:
        """The runs that began last, newest first."""
        with self._in_flight:
            self._check_page(tenant, "", limit)
            return await self._records.runs(tenant, limit)

    async def run(self, id_: str, tenant: str = DEFAULT_TENANT) -> PipelineRun:
        """A run; PIPELINE_NOT_FOUND when there is none."""
        with self._in_flight:
            validate.check_name(tenant, "tenant")
            validate.check_name(id_, "run")
            found = await self._records.run(tenant, id_)
            if found is None:
                raise SkepError(Code.PIPELINE_NOT_FOUND, f"there is no run {id_!r} of a pipeline", run=id_)
            return found

    async def report_endpoint(
        self,
        url: str,
        report: Report,
        tenant: str = DEFAULT_TENANT,
        *,
        threshold: int,
        open_seconds: float,
        reason: str | None = None,
    ) -> DeliveryEndpoint:
        """Note the outcome of a delivery; returns the endpoint's state. From ``threshold`` failures on, each failure opens the breaker."""
        with self._in_flight:
            record_checks.check_url(url, tenant)
            validate.check_count(threshold, validate.PARTITIONS_MAX, "threshold")
            validate.check_lease_seconds(open_seconds)
            reason = None if reason is None else validate.storable(reason, self._limits.error_characters)
            return await self._records.report_endpoint(
                tenant, url, report, self._clock.now(), threshold=threshold, open_seconds=open_seconds, reason=reason
            )

    async def endpoints(
        self, tenant: str = DEFAULT_TENANT, *, after: str = "", limit: int = 100
    ) -> list[DeliveryEndpoint]:
        """A page of the endpoints with failed deliveries, by URL, after the URL ``after``."""
        with self._in_flight:
            self._check_page(tenant, after, limit)
            return await self._records.endpoints(tenant, after, limit)

    async def reset_endpoint(self, url: str, tenant: str = DEFAULT_TENANT) -> bool:
        """Forget the failures of an endpoint, so that messages are delivered again; False when there are none."""
        with self._in_flight:
            record_checks.check_url(url, tenant)
            return await self._records.reset_endpoint(tenant, url)

    def _check_page(self, tenant: str, after: str, limit: int) -> None:
        validate.check_name(tenant, "tenant")
        validate.check_texts((after,))
        validate.check_count(limit, self._limits.page, "limit")
