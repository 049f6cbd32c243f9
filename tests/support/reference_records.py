"""Receipts, entities, apps and endpoints of the reference store: dicts, and everything by looking at everything."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import msgspec

from skep.clock import Instant, seconds
from skep.errors import Code, SkepError
from skep.ids import Id
from skep.model import (
    NO_GROUP,
    DeadLetter,
    DeadReason,
    Depth,
    NewMessage,
    PushOutcome,
    PushResult,
    PushStatus,
    QueueKey,
    QueueSettings,
    Seq,
)
from skep.model.record import (
    MAX_BYTES,
    AppRecord,
    Buried,
    DeliveryEndpoint,
    Effect,
    EntityEvent,
    EntityKey,
    EntityState,
    Receipt,
    ReceiptKey,
    Report,
    Unfit,
)
from skep.store.rules import check_sealed
from tests.support.reference import Entry, Log
from tests.support.reference_views import ReferenceViews

Records = tuple[dict[ReceiptKey, Receipt], dict[EntityKey, list[EntityEvent]], dict[EntityKey, EntityState]]


class ReferenceRecords(ReferenceViews):
    """What a store keeps beside the log."""

    def __init__(self) -> None:
        super().__init__()
        self.receipts_kept: dict[ReceiptKey, Receipt] = {}
        self.events: dict[EntityKey, list[EntityEvent]] = {}
        self.states: dict[EntityKey, EntityState] = {}
        self.apps_kept: dict[str, AppRecord] = {}
        self.revision = 0
        self.endpoints_kept: dict[tuple[str, str], DeliveryEndpoint] = {}

    # receipts and entities

    def living(self, key: ReceiptKey, now: Instant) -> Receipt | None:
        receipt = self.receipts_kept.get(key)
        return receipt if receipt is not None and receipt.expires_at > now else None

    def recorded(self) -> Records:
        """What there is, to be restored."""
        return dict(self.receipts_kept), dict(self.events), dict(self.states)

    def restore(self, records: Records) -> None:
        self.receipts_kept, self.events, self.states = records

    def record(self, effects: Sequence[Effect], receipts: Sequence[Receipt], now: Instant) -> tuple[Code, int] | None:
        """Write these up to the first that stands in the way, and say which that is."""
        for index, receipt in enumerate(receipts):
            twice = receipt.key in {earlier.key for earlier in receipts[:index]}
            if twice or self.living(receipt.key, now) is not None:
                return Code.RECEIPT_EXISTS, index
            self.receipts_kept[receipt.key] = receipt
        for index, effect in enumerate(effects):
            key, past = effect.entity, self.events.get(effect.entity, [])
            if len(past) != effect.version:
                return Code.ENTITY_CHANGED, index
            self.events[key] = past + [
                EntityEvent(key=key, number=number, name=event.name, data=event.data, at=now, cause=effect.cause)
                for number, event in enumerate(effect.events, len(past) + 1)
            ]
            made = self.states[key].created_at if key in self.states else now
            self.states[key] = EntityState(key, len(self.events[key]), effect.state, made, now)
        return None

    async def receipts(self, keys: Sequence[ReceiptKey], now: Instant) -> list[Receipt | None]:
        return [self.living(key, now) for key in keys]

    async def entities(self, keys: Sequence[EntityKey], max_bytes: int = MAX_BYTES) -> list[EntityState | None]:
        found = [self.states.get(key) for key in keys]
        states = [one for one in found if one is not None]
        if sum(len(one.state) for one in states[:-1]) >= max_bytes:
            raise SkepError(Code.PAYLOAD_TOO_LARGE, "too much at once")
        return found

    async def list_entities(
        self, tenant: str, type_: str, after: str = "", limit: int = 100, max_bytes: int = MAX_BYTES
    ) -> list[EntityState]:
        wanted = [s for k, s in self.states.items() if (k.tenant, k.type) == (tenant, type_) and k.id > after]
        page = sorted(wanted, key=lambda state: state.key.id)[:limit]
        return [one for n, one in enumerate(page) if sum(len(before.state) for before in page[:n]) < max_bytes]

    async def entity_types(self, tenant: str) -> list[str]:
        return sorted({key.type for key in self.states if key.tenant == tenant})

    async def entity_events(
        self, key: EntityKey, after: int = 0, limit: int = 100, max_bytes: int = MAX_BYTES
    ) -> list[EntityEvent]:
        page = self.events.get(key, [])[after : after + limit]
        return [one for n, one in enumerate(page) if sum(len(before.data) for before in page[:n]) < max_bytes]

    async def quarantine(
        self, message: NewMessage, id_: Id, error: str, receipt: Receipt | None, now: Instant
    ) -> PushOutcome:
        if receipt is not None and (known := self.living(receipt.key, now)) is not None:
            return PushOutcome([], {}, known.answer)
        if message.queue not in self.logs:
            self.make(message.queue, QueueSettings(), now)
        check_sealed(message.queue.name, self.logs[message.queue].settings.encryption_enabled, message.content_type)
        name = self.grave_name(message.queue)
        if name is None:
            return PushOutcome([PushResult(PushStatus.REFUSED, id_, code=Code.MESSAGE_INVALID)], {})
        grave = self.make_dead_letter_queue(name, message.queue.tenant, now)
        if 0 < grave.settings.max_depth <= grave.depth:
            return PushOutcome([PushResult(PushStatus.REFUSED, id_, code=Code.QUEUE_FULL)], {})
        if receipt is not None:
            self.receipts_kept[receipt.key] = receipt
        entry = self.append(grave, message, id_, now)
        grave.dead[entry.seq] = self._letter(grave.queue.key.name, entry, message, error, now)
        limit = grave.settings.max_depth
        depth = Depth(grave.depth, max(0, limit - grave.depth) if limit else None)
        result = PushResult(PushStatus.STORED, id_, Seq(entry.seq), message.transaction_id, entry.trace_id)
        return PushOutcome([result], {grave.queue.key: depth})

    async def bury_unfit(
        self, key: QueueKey, unfit: Sequence[Unfit], receipt: ReceiptKey, expires_at: Instant, now: Instant
    ) -> Buried:
        if (known := self.living(receipt, now)) is not None:
            return msgspec.json.decode(known.answer, type=Buried)
        source, name = self.log(key), self.grave_name(key)
        told = Buried(key.name, name, 0, 0)
        for one in unfit if name is not None else ():
            if (entry := source.entries.get(Seq(one.seq))) is None:
                told.gone += 1
                continue
            assert name is not None
            self._add_unfit(key, self.make_dead_letter_queue(name, key.tenant, now), entry, one.error, now)
            told.buried += 1
        self.receipts_kept[receipt] = Receipt(receipt, msgspec.json.encode(told), expires_at)
        return told

    def _add_unfit(self, key: QueueKey, grave: Log, entry: Entry, error: str, now: Instant) -> None:
        message = NewMessage(
            queue=key, payload=entry.payload, partition=entry.partition, transaction_id=entry.transaction_id,
            trace_id=entry.trace_id, headers=entry.headers, content_type=entry.content_type, priority=entry.priority,
        )  # fmt: skip
        copy = self.append(grave, message, entry.id, now)
        letter = self._letter(grave.queue.key.name, copy, message, error, now)
        grave.dead[copy.seq] = msgspec.structs.replace(letter, source_seq=Seq(entry.seq), created_at=entry.created_at)

    def _letter(self, grave: str, entry: Entry, message: NewMessage, error: str, now: Instant) -> DeadLetter:
        kept = replace(entry, partition=message.partition)
        return DeadLetter(
            queue=type(message.queue)(grave, message.queue.tenant),
            seq=Seq(kept.seq),
            id=kept.id,
            partition=kept.partition,
            source_queue=message.queue.name,
            source_seq=Seq(0),
            group=NO_GROUP,
            reason=DeadReason.INVALID,
            error=error,
            attempts=0,
            transaction_id=kept.transaction_id,
            trace_id=kept.trace_id,
            headers=kept.headers,
            content_type=kept.content_type,
            payload=kept.payload,
            created_at=now,
            failed_at=now,
        )

    # apps

    async def put_app(self, name: str, document: bytes, now: Instant, expected: int | None = None) -> AppRecord:
        if expected not in (None, self.revision):
            raise SkepError(Code.STORE_BUSY, "another app was applied meanwhile")
        self.revision += 1
        self.apps_kept[name] = AppRecord(name, document, self.revision, now)
        return self.apps_kept[name]

    async def delete_app(self, name: str) -> bool:
        if name not in self.apps_kept:
            return False
        self.revision += 1
        del self.apps_kept[name]
        return True

    async def apps(self) -> list[AppRecord]:
        return [self.apps_kept[name] for name in sorted(self.apps_kept)]

    async def apps_revision(self) -> int:
        return self.revision

    # endpoints

    async def report_endpoint(
        self,
        tenant: str,
        url: str,
        report: Report,
        now: Instant,
        *,
        threshold: int,
        open_seconds: float,
        reason: str | None = None,
    ) -> DeliveryEndpoint:
        known = self.endpoints_kept.get((tenant, url))
        failures = known.failures if known else 0
        open_until = known.open_until if known else None
        stopped_at = known.stopped_at if known else None
        if report is Report.DELIVERED:
            if known is None or (not failures and open_until is None):
                return known or DeliveryEndpoint(url=url, tenant=tenant, updated_at=now)
            failures, open_until, reason = 0, None, known.reason
        elif report is Report.FAILED:
            failures += 1
            if failures >= threshold:
                open_until = Instant(now + seconds(open_seconds))
        elif stopped_at is None:
            stopped_at = now
        endpoint = DeliveryEndpoint(
            url=url, tenant=tenant, failures=failures, open_until=open_until, stopped_at=stopped_at, reason=reason, updated_at=now
        )  # fmt: skip
        self.endpoints_kept[tenant, url] = endpoint
        return endpoint

    async def endpoints(self, tenant: str, after: str = "", limit: int = 100) -> list[DeliveryEndpoint]:
        urls = sorted(url for of, url in self.endpoints_kept if of == tenant and url > after)
        return [self.endpoints_kept[tenant, url] for url in urls[:limit]]

    async def reset_endpoint(self, tenant: str, url: str) -> bool:
        return self.endpoints_kept.pop((tenant, url), None) is not None
