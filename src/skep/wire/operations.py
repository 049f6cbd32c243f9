"""Operations on the wire: the answers to queued calls (202), and views of operations."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum

from msgspec import Raw, Struct, field

from skep.errors import Code
from skep.model import PushStatus, SettleStatus
from skep.model.operation import OperationKind, OperationStatus, QueuedReason
from skep.wire.messages import NULL


class Queued(StrEnum):
    """The state of a queued call."""

    QUEUED = "queued"


class QueuedGroup(Struct, rename="camel"):
    """One operation of a call that was queued: the items of one partition. ``estimatedWait`` is in seconds."""

    operation_id: str
    queue: str
    partition: str
    queue_position: int
    reason: QueuedReason
    estimated_wait: float
    items: list[int]


class QueuedMessage(Struct, gc=False):
    """A message that waits in an operation; its ids are those that it will have, unless it is a duplicate."""

    transaction_id: str | None
    status: PushStatus
    message_id: str
    trace_id: str | None
    seq: int | None
    """None: it is in no log yet."""
    operation_id: str = field(name="operationId")


class QueuedPushResponse(Struct, rename="camel"):
    """A queued push: the operation is stored, and takes effect in its turn.

    The first fields are those of the first operation; ``operations`` has all of them, and each message names its own.
    """

    pushed: bool
    status: Queued
    operation_id: str
    queue_position: int
    reason: QueuedReason
    estimated_wait: float
    messages: list[QueuedMessage]
    operations: list[QueuedGroup]


class QueuedAckResult(Struct, rename="camel", gc=False):
    """An ack that waits in an operation; ``seq`` is null when it is one of a lease."""

    seq: int | None
    status: SettleStatus
    operation_id: str


class QueuedAckResponse(Struct, rename="camel"):
    """Queued acks."""

    status: Queued
    operation_id: str
    queue_position: int
    reason: QueuedReason
    estimated_wait: float
    results: list[QueuedAckResult]
    operations: list[QueuedGroup]


class OperationView(Struct, rename="camel"):
    """An operation. ``result`` is the answer of its call, once it is completed; null before that, and in lists."""

    id: str
    kind: OperationKind
    queue: str
    partition: str
    priority: int
    status: OperationStatus
    messages: int
    size_bytes: int
    created_at: datetime
    started_at: datetime | None
    processed_at: datetime | None
    ready_at: datetime | None
    """When it is tried again, or when the claim on it runs out."""
    blocked_at: datetime | None
    """Since when it fails with `code`."""
    last_error_at: datetime | None
    """When it failed last; null when it never did, or is completed."""
    latency_seconds: float | None
    """How long it took from the call to its end; null before that."""
    worker: str | None
    timeout_seconds: float
    tries: int
    max_retries: int
    stuck: bool
    error_message: str | None
    code: Code | None
    dead_letter_queue: str | None
    result: Raw = field(default_factory=lambda: NULL)


class OperationsResponse(Struct):
    """A page of operations, newest first; ``after`` is where the next one starts, null after the last."""

    operations: list[OperationView]
    after: int | None


class OperationFiguresView(Struct, rename="camel"):
    """Operations of one kind and status."""

    kind: OperationKind
    priority: int
    status: OperationStatus
    count: int
    oldest: datetime
    newest: datetime
    average_latency_seconds: float | None


class PoolView(Struct, rename="camel"):
    """The connections to the database. ``utilisation`` is connections in use plus waiting requests, over the pool's size."""

    utilisation: float
    active: int
    idle: int
    waiting: int


class OperationStatsResponse(Struct, rename="camel"):
    """The figures of the operation queue. ``depth`` and the fields after it are of all tenants, as this server knows
    them; null for a key that may not read all tenants.
    """

    operations: list[OperationFiguresView]
    depth: int | None = None
    oldest_age_seconds: float | None = None
    stuck: int | None = None
    blocked: int | None = None
    drain_rate: float | None = None
    pool: PoolView | None = None
