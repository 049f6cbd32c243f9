"""Entities, effects and receipts on the wire. States, events and answers pass through unchanged."""

from __future__ import annotations

from datetime import datetime

from msgspec import Raw, Struct


class EntityName(Struct, forbid_unknown_fields=True, gc=False):
    """Which entity: its type and its id."""

    entity: str
    id: str


class ReceiptName(Struct, forbid_unknown_fields=True, gc=False):
    """Which receipt: a key within a scope."""

    scope: str
    key: str


class EventItem(Struct, forbid_unknown_fields=True, gc=False):
    """An event to append; ``data`` is a JSON object."""

    name: str
    data: Raw


class EffectItem(Struct, forbid_unknown_fields=True, omit_defaults=True):
    """Events of an entity, and its state after them.

    ``version`` is the one they were computed from, 0 for an entity that is not there yet. ``cause`` is the id of the message
    behind them.
    """

    entity: str
    id: str
    version: int
    events: list[EventItem]
    state: Raw
    cause: str | None = None


class ReceiptItem(Struct, rename="camel", forbid_unknown_fields=True):
    """A receipt: something was done once, with this answer. It counts for the window."""

    scope: str
    key: str
    answer: Raw
    window_seconds: float


class EntitiesReadRequest(Struct, forbid_unknown_fields=True, omit_defaults=True):
    """Entities and receipts to read at once."""

    entities: list[EntityName] = []
    receipts: list[ReceiptName] = []


class EntityView(Struct, rename="camel"):
    """An entity as it is now; ``version`` is the number of its events."""

    entity: str
    id: str
    version: int
    state: Raw
    created_at: datetime
    updated_at: datetime


class ReceiptView(Struct, rename="camel"):
    """The answer of the first time, and until when the receipt counts."""

    answer: Raw
    expires_at: datetime


class EntitiesReadResponse(Struct):
    """One entry for each name in the request, in order; null where there is none."""

    entities: list[EntityView | None]
    receipts: list[ReceiptView | None]


class EntityTypesResponse(Struct):
    """The entity types that have entities."""

    types: list[str]


class EntitiesResponse(Struct):
    """A page of entities by id; ``after`` is where the next one starts, null when there is none."""

    entities: list[EntityView]
    after: str | None


class EventView(Struct, gc=False):
    """An event of an entity; they are numbered from 1. ``cause`` is the id of the message behind it."""

    number: int
    name: str
    data: Raw
    at: datetime
    cause: str | None


class EventsResponse(Struct):
    """A page of events in order; ``after`` is where the next one starts, null when there is none."""

    events: list[EventView]
    after: int | None
