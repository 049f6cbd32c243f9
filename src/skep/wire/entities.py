"""Entities, effects and receipts on the wire. States, events and answers pass through unchanged."""

from __future__ import annotations

from datetime import datetime

from msgspec import Raw, Struct


class EntityName(Struct, forbid_unknown_fields=True, gc=False):
    """The identity of an entity: its type and its id."""

    entity: str
    id: str


class ReceiptName(Struct, forbid_unknown_fields=True, gc=False):
    """The identity of a receipt: a key within a scope."""

    scope: str
    key: str


class EventItem(Struct, forbid_unknown_fields=True, gc=False):
    """An event to append; ``data`` is a JSON object."""

    name: str
    data: Raw


class EffectItem(Struct, forbid_unknown_fields=True, omit_defaults=True):
    """Events of an entity, and its state after them.

    ``version`` is the one they were computed from, 0 for an entity that does not exist yet. ``cause`` is the id of the message that
    caused them.
    """

    entity: str
    id: str
    version: int
    events: list[EventItem]
    state: Raw
    cause: str | None = None


class ReceiptItem(Struct, rename="camel", forbid_unknown_fields=True):
    """Proof that a call was done, with its answer. It is valid for the window."""

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
    """The answer of the call that was done, and the end of the receipt's validity."""

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
    """An event of an entity; events are numbered from 1. ``cause`` is the id of the message that caused it."""

    number: int
    name: str
    data: Raw
    at: datetime
    cause: str | None


class EventsResponse(Struct):
    """A page of events in order; ``after`` is where the next one starts, null when there is none."""

    events: list[EventView]
    after: int | None
