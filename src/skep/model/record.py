"""Records beside the log, as data: receipts, entities with their events, applied specs, endpoints and pipeline runs.

Plain structs, as in `skep.model`. A receipt (idempotency record) proves that a call was done once, and keeps its answer. An entity
is a state and the events that led to it. Both are written in one transaction with the messages that caused them (I15). Answers,
states, events and documents stay the JSON bytes they came as.
"""

from __future__ import annotations

from enum import StrEnum

from msgspec import Struct

from skep.clock import Instant
from skep.ids import Id

DEFAULT_TENANT = "default"
MAX_BYTES = 2**62
"""No limit on the bytes of one read."""


class ReceiptKey(Struct, frozen=True, order=True, gc=False):
    """The key of a receipt (idempotency key) within a scope, such as the key of a request to one webhook."""

    scope: str
    key: str
    tenant: str = DEFAULT_TENANT


class Receipt(Struct, frozen=True, gc=False):
    """Proof that a call was done, with its answer. After ``expires_at`` the call may be done again."""

    key: ReceiptKey
    answer: bytes
    expires_at: Instant


class Unfit(Struct, frozen=True, gc=False):
    """A message that a reader of the log cannot use, and the reason."""

    seq: int
    error: str


class Buried(Struct, rename="camel"):
    """The outcome of burying unfit messages. A repeat of the call gets the same answer.

    ``deadLetterQueue`` is null when the queue keeps no dead letters. ``gone`` counts messages that were no longer in the log.
    """

    queue: str
    dead_letter_queue: str | None
    buried: int
    gone: int


class EntityKey(Struct, frozen=True, order=True):
    """The identity of an entity."""

    type: str
    id: str
    tenant: str = DEFAULT_TENANT


class NewEvent(Struct, frozen=True, gc=False):
    """A new event of an entity; ``data`` is a JSON object."""

    name: str
    data: bytes


class Effect(Struct, frozen=True):
    """The effect of a command on an entity: the events, and the state after them.

    ``version`` is the entity's version before the command, 0 for a new entity. Afterwards the version is ``version + len(events)``,
    the number of all its events. ``cause`` is the id of the message that carried the command.
    """

    entity: EntityKey
    version: int
    events: list[NewEvent]
    state: bytes
    cause: Id | None = None


class EntityState(Struct, frozen=True):
    """An entity as it is now."""

    key: EntityKey
    version: int
    state: bytes
    created_at: Instant
    updated_at: Instant


class EntityEvent(Struct, frozen=True, kw_only=True):
    """One event of an entity; the events of an entity are numbered from 1 without gaps."""

    key: EntityKey
    number: int
    name: str
    data: bytes
    at: Instant
    cause: Id | None = None


class AppRecord(Struct, frozen=True):
    """A spec that was applied. ``revision`` counts all changes of all apps, so that one number says whether any changed."""

    name: str
    document: bytes
    revision: int
    applied_at: Instant


class Report(StrEnum):
    """The outcome of a delivery to an endpoint; GONE: the endpoint wants no more deliveries."""

    DELIVERED = "delivered"
    FAILED = "failed"
    GONE = "gone"


class DeliveryEndpoint(Struct, frozen=True, kw_only=True):
    """A URL that messages are delivered to, and the state of its circuit breaker.

    ``failures`` counts the failures since the last success. Until ``open_until`` nothing is delivered. After ``stopped_at`` nothing
    is delivered until someone resets the endpoint. ``reason`` is the text of the last failure.
    """

    url: str
    tenant: str = DEFAULT_TENANT
    failures: int = 0
    open_until: Instant | None = None
    stopped_at: Instant | None = None
    reason: str | None = None
    updated_at: Instant


class PipelineRun(Struct, frozen=True):
    """A run of a pipeline, as the pipeline reported it last; ``document`` is a JSON object."""

    id: str
    started_at: Instant
    updated_at: Instant
    document: bytes
    tenant: str = DEFAULT_TENANT
