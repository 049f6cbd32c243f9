"""Convert entities, effects and receipts between the wire's structs and the engine's."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Raw

from skep.engine.records import Records
from skep.errors import Code, SkepError
from skep.http.views import wanted_id
from skep.ids import id_text
from skep.model.record import Effect, EntityEvent, EntityKey, EntityState, NewEvent, Receipt, ReceiptKey
from skep.wire.entities import EffectItem, EntityView, EventView, ReceiptItem, ReceiptView
from skep.wire.times import to_datetime


def effects(items: Sequence[EffectItem], tenant: str) -> list[Effect]:
    """The effects of the items."""
    return [
        Effect(
            EntityKey(item.entity, item.id, tenant),
            item.version,
            [NewEvent(event.name, _object(event.data, "the data of an event")) for event in item.events],
            _object(item.state, "a state"),
            None if item.cause is None else wanted_id(item.cause),
        )
        for item in items
    ]


def receipts(items: Sequence[ReceiptItem], tenant: str, records: Records) -> list[Receipt]:
    """The receipts of the items."""
    return [
        records.receipt(ReceiptKey(item.scope, item.key, tenant), bytes(item.answer), item.window_seconds)
        for item in items
    ]


def _object(value: Raw, what: str) -> bytes:
    text = bytes(value)
    if not text.lstrip().startswith(b"{"):
        raise SkepError(Code.INVALID_REQUEST, f"{what} is a JSON object")
    return text


def entity_view(state: EntityState) -> EntityView:
    """An entity as a struct of the wire."""
    return EntityView(
        state.key.type, state.key.id, state.version, Raw(state.state), to_datetime(state.created_at),
        to_datetime(state.updated_at),
    )  # fmt: skip


def event_view(event: EntityEvent) -> EventView:
    """An event as a struct of the wire."""
    cause = None if event.cause is None else id_text(event.cause)
    return EventView(event.number, event.name, Raw(event.data), to_datetime(event.at), cause)


def receipt_view(receipt: Receipt) -> ReceiptView:
    """A receipt as a struct of the wire."""
    return ReceiptView(Raw(receipt.answer), to_datetime(receipt.expires_at))
