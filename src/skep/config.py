"""What the engine may be told, with the defaults that hold when nobody tells it anything.

Every bound of the engine has its name here; zero never means "no limit".
"""

from __future__ import annotations

from msgspec import Struct

MEBIBYTE = 1024 * 1024


class Limits(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Bounds on what one caller may ask for, and on what the engine holds for all of them."""

    # what one request may be
    request_bytes: int = 8 * MEBIBYTE
    """Payloads and headers of one push together; one request is one transaction, so it is refused and never split."""
    payload_bytes: int = 8 * MEBIBYTE
    """The payload of one message."""
    headers_bytes: int = 16 * 1024
    """The headers of one message, as JSON."""
    push_messages: int = 10_000
    """Messages in one push or transaction."""
    bulk_messages: int = 100_000
    """Messages in one bulk push."""
    bulk_bytes: int = 64 * MEBIBYTE
    """Payloads of one bulk push together."""
    pop_messages: int = 10_000
    """Messages that one pop may ask for."""
    settlements: int = 10_000
    """Settlements, or renewals, in one call."""
    page: int = 10_000
    """Rows of one page when browsing."""
    error_characters: int = 8_192
    """An error text longer than this is cut: a nack must not fail for what it has to say."""
    wait_seconds: float = 300.0
    """How long one pop may wait."""

    # what the engine holds
    merged_messages: int = 2_000
    """A store call made of several requests takes no more messages than this, so that the first need not wait long."""
    merged_bytes: int = 8 * MEBIBYTE
    """The same in bytes."""
    waiting_requests: int = 10_000
    """Requests that may wait for their turn, per queue and verb; one more is refused with STORE_BUSY."""
    parked_polls: int = 10_000
    """Pops that may wait for messages at once; one more is refused with STORE_BUSY."""
    logical_queues: int = 10_000
    """Queues kept ready; beyond that the idle ones that were used least recently are dropped."""
    matching_queues: int = 1_000
    """Queues that a pop over a namespace or task looks at."""
    replay_batch: int = 500
    """Dead letters that one transaction replays or purges."""
    replays_listed: int = 1_000
    """Replayed messages that the answer names; the count is always whole."""
    chore_rows: int = 1_000
    """Rows that one pass of a chore touches."""
    chores_in_flight: int = 4
    """Chores that run at once."""


class EngineSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How the engine behaves."""

    create_queues_on_push: bool = True
    """Whether a push makes the queue it names."""
    shared: bool = False
    """Whether other servers use the same store: then their news is watched for and their queues are looked after too."""
    safety_poll_seconds: float = 5.0
    """A parked pop looks again after this long, though nothing woke it."""
    watch_seconds: float = 30.0
    """How long other servers are asked to announce pushes, each time."""
    matching_seconds: float = 5.0
    """How long the list of a namespace's or task's queues is believed."""
    idle_seconds: float = 60.0
    """A queue that nobody used for this long is dropped from memory (never from the store)."""
    sample_seconds: float = 10.0
    """How often counters are noted, for rates and charts."""
    sweep_seconds: float = 60.0
    """How often what has aged out is removed, at the least."""
    maintain_seconds: float = 1.0
    """How often the store is given time for its own upkeep."""
    discover_seconds: float = 60.0
    """How often queues of other servers are looked for, when the store is shared."""
    limits: Limits = Limits()


class HttpLimits(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Bounds on what one connection may ask of the server."""

    body_bytes: int = 12 * MEBIBYTE
    """A request's body. More than the engine's `request_bytes`, since names and JSON around the payloads count here too."""
    body_seconds: float = 30.0
    """How long a body may take to arrive."""
    query_parameters: int = 50
    """Parameters of one query."""
