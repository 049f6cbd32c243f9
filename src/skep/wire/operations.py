"""Operations on the wire: what a call that was queued is told, and how an operation is shown."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum

from msgspec import Raw, Struct, field

from skep.errors import Code
from skep.model import PushStatus, SettleStatus
from skep.model.operation import Kind, OperationStatus, QueuedReason
from skep.wire.messages import NULL


class Queued(StrEnum):
    """What a queued call is."""

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
    """A push that was accepted for later: it is stored, and takes effect in its turn.

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
    """Acks that were accepted for later."""

    status: Queued
    operation_id: str
    queue_position: int
    reason: QueuedReason
    estimated_wait: float
    results: list[QueuedAckResult]
    operations: list[QueuedGroup]


class OperationView(Struct, rename="camel"):
    """An operation. ``result`` is what its call would have been answered, once it is completed; null before that, and in lists."""

    id: str
    kind: Kind
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

    kind: Kind
    priority: int
    status: OperationStatus
    count: int
    oldest: datetime
    newest: datetime
    average_latency_seconds: float | None


class PoolView(Struct, rename="camel"):
    """The connections to the database: at work and waited for, over the most there may be; and who waits for one."""

    utilisation: float
    active: int
    idle: int
    waiting: int


class OperationStatsResponse(Struct, rename="camel"):
    """How the operation queue stands. ``depth`` and what follows is of all tenants, as this server knows it, and null to those who
    may not read all of them.
    """

    operations: list[OperationFiguresView]
    depth: int | None = None
    oldest_age_seconds: float | None = None
    stuck: int | None = None
    blocked: int | None = None
    drain_rate: float | None = None
    pool: PoolView | None = None
