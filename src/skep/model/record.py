"""What is kept beside the log, as data: receipts, entities with their events, applied specs, and endpoints.

Plain structs, as in `skep.model`. A receipt says that something was done once and what was answered; an entity is a state
and the events it came from; both are written in one transaction with the messages that caused them (I15). Answers, states,
events and documents stay the JSON bytes they came as.
"""

from __future__ import annotations

from enum import StrEnum

from msgspec import Struct

from skep.clock import Instant
from skep.ids import Id

DEFAULT_TENANT = "default"
MAX_BYTES = 2**62
"""No bound on what is read at once."""


class ReceiptKey(Struct, frozen=True, order=True, gc=False):
    """What was done once: a key within a scope, such as the key of a request to one webhook."""

    scope: str
    key: str
    tenant: str = DEFAULT_TENANT


class Receipt(Struct, frozen=True, gc=False):
    """Proof that a call was done, with its answer. After ``expires_at`` the call may be done again."""

    key: ReceiptKey
    answer: bytes
    expires_at: Instant


class Unfit(Struct, frozen=True, gc=False):
    """A message of a queue's log that someone who reads the log cannot use, and why."""

    seq: int
    error: str


class Buried(Struct, rename="camel"):
    """What became of such messages: told again, unchanged, to whoever buries them again.

    ``deadLetterQueue`` is null when the queue keeps no dead letters. Those that are ``gone`` were in the log no longer.
    """

    queue: str
    dead_letter_queue: str | None
    buried: int
    gone: int


class EntityKey(Struct, frozen=True, order=True):
    """What an entity is known by."""

    type: str
    id: str
    tenant: str = DEFAULT_TENANT


class NewEvent(Struct, frozen=True, gc=False):
    """Something that happened to an entity; ``data`` is a JSON object."""

    name: str
    data: bytes


class Effect(Struct, frozen=True):
    """What a command does to an entity: the events, and the state after them.

    ``version`` is the one it was computed from, 0 for an entity that is not there yet; afterwards the entity's version is
    ``version + len(events)``, which is the number of all its events. ``cause`` is the id of the message behind it.
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
    """One event of an entity; they are numbered from 1 without gaps."""

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
    """How a delivery to an endpoint went; GONE says that the endpoint wants no more."""

    DELIVERED = "delivered"
    FAILED = "failed"
    GONE = "gone"


class Endpoint(Struct, frozen=True, kw_only=True):
    """A URL that messages are delivered to, and how that goes.

    ``failures`` counts those since the last success; until ``open_until`` nothing is delivered there; with ``stopped_at``
    nothing is until someone resets it. ``reason`` is what the last failure said.
    """

    url: str
    tenant: str = DEFAULT_TENANT
    failures: int = 0
    open_until: Instant | None = None
    stopped_at: Instant | None = None
    reason: str | None = None
    updated_at: Instant


class PipelineRun(Struct, frozen=True):
    """A run of a pipeline, as it told of itself last; ``document`` is a JSON object."""

    id: str
    started_at: Instant
    updated_at: Instant
    document: bytes
    tenant: str = DEFAULT_TENANT
