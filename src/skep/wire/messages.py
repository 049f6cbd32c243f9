"""Push, pop, ack, extend and transaction on the wire."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from itertools import repeat

from msgspec import UNSET, Raw, Struct, UnsetType, field

from skep.errors import Code
from skep.model import DEFAULT_PARTITION, DeadReason, PushStatus, SettleStatus
from skep.wire.entities import EffectItem, ReceiptItem

NULL = Raw(b"null")
"""The null of a raw field. Its type cannot be `Raw | None`, as a union with Raw is not decoded raw."""
NO_HEADERS = Raw(b"")
"""The headers of a message that has none: always this very object, so that `is` finds it."""


class PushItem(Struct, rename="camel", forbid_unknown_fields=True, omit_defaults=True, gc=False):
    """A message to push. With a ``contentType`` the payload is a base64 text; without one it is any JSON.

    ``delaySeconds`` stands for a ``deliverAt`` that long after the server has read the item. It is refused within a transaction.
    """

    queue: str
    payload: Raw
    partition: str = DEFAULT_PARTITION
    transaction_id: str | None = None
    trace_id: str | None = None
    headers: Raw = field(default_factory=repeat(NO_HEADERS).__next__)  # a schema cannot show a raw default
    content_type: str | None = None
    deliver_at: datetime | None = None
    priority: int = 0
    namespace: str | None = None
    task: str | None = None
    delay_seconds: float | None = None


class PushRequest(Struct, rename="camel", forbid_unknown_fields=True, omit_defaults=True):
    """Messages that are stored together or not at all. ``bufferMs`` or ``bufferMax`` ask for QoS 0."""

    items: list[PushItem]
    buffer_ms: int | None = None
    buffer_max: int | None = None


class PushedMessage(Struct, gc=False):
    """The outcome of one message. A duplicate has the id and seq of the first one. ``code`` and ``reason`` say why a message was refused."""

    transaction_id: str | None
    status: PushStatus
    message_id: str
    trace_id: str | None
    seq: int | None
    code: Code | None = None
    reason: str | None = None


class QueueDepth(Struct):
    """How full a queue is after the push; ``remaining`` is null when it has no limit."""

    depth: int
    remaining: int | None


class PushResponse(Struct, rename="camel"):
    """One entry per item, in order."""

    pushed: bool
    qos0: bool
    db_healthy: bool
    messages: list[PushedMessage]
    queues: dict[str, QueueDepth]


class StoredResponse(Struct, rename="camel"):
    """A `PushResponse` whose messages were all stored, and are JSON already."""

    pushed: bool
    qos0: bool
    db_healthy: bool
    messages: Raw
    queues: dict[str, QueueDepth]


class DeadLetterStory(Struct, rename="camel", frozen=True, gc=False):
    """The source of a dead letter, and the reason of its death.

    ``partition`` is its partition in the source queue. ``consumerGroup`` is empty when no group gave it up, and then ``sourceSeq`` may be 0.
    """

    source_queue: str
    source_seq: int
    partition: str
    consumer_group: str
    reason: DeadReason
    error: str | None
    attempts: int
    failed_at: datetime


class PoppedMessage(Struct, rename="camel", gc=False):
    """A message under a lease: settle it by its ``leaseId`` and ``seq`` before ``leaseDeadline``.

    ``deadLetter`` is there only when the message died in another queue.
    """

    queue: str
    partition: str
    seq: int
    id: str
    transaction_id: str | None
    trace_id: str
    payload: Raw
    headers: Raw
    content_type: str | None
    priority: int
    created_at: datetime
    attempt: int
    consumer_group: str
    lease_id: str
    lease_deadline: datetime
    dead_letter: DeadLetterStory | UnsetType = UNSET


class AckStatus(StrEnum):
    """The outcome of a message: completed, failed (again after the backoff), retry (again at once or at a time), or dlq (dead letter)."""

    COMPLETED = "completed"
    FAILED = "failed"
    RETRY = "retry"
    DLQ = "dlq"


class Ack(Struct, rename="camel", forbid_unknown_fields=True, omit_defaults=True, gc=False):
    """The outcome of one popped message. ``retryAt`` goes with status retry; without it the message comes at once.

    Without ``seq`` the ack completes the whole lease, or with ``throughSeq`` its messages up to that seq: those that are not settled yet
    and that no other ack of the request names.
    """

    lease_id: str
    seq: int | UnsetType = UNSET
    status: AckStatus = AckStatus.COMPLETED
    error: str | None = None
    retry_at: datetime | None = None
    through_seq: int | UnsetType = UNSET


class AckBatchRequest(Struct, rename="camel", forbid_unknown_fields=True, omit_defaults=True):
    """Outcomes of several messages, or of whole leases. Each is independent of the others.

    A lease knows its group. With a ``consumerGroup`` all leases must be of that group, or nothing is settled.
    """

    acknowledgments: list[Ack]
    consumer_group: str | None = None


class AckResult(Struct, rename="camel", gc=False):
    """The result of an ack. A refused ack has a code, and changed nothing.

    ``repeated`` is there, and true, for a repeat of an earlier ack: this is the first answer, and nothing changed now. For an ack of a
    lease ``seq`` is null, and ``messages`` is the number of messages that it completed. ``operationId`` is there when a pop's ack was
    queued.
    """

    seq: int | None
    status: SettleStatus
    code: Code | None = None
    retry_at: datetime | None = None
    dead_letter_queue: str | None = None
    repeated: bool | UnsetType = UNSET
    messages: int | UnsetType = UNSET
    operation_id: str | UnsetType = UNSET


class AckBatchResponse(Struct):
    """One result per acknowledgment, in order."""

    results: list[AckResult]


class PopBody(Struct, forbid_unknown_fields=True):
    """What a consumer has done with its last messages. They are settled first."""

    acknowledgments: list[Ack] = []


class PopResponse(Struct):
    """The leased messages, in the log order of each partition. With acks in the request, also one result per ack, in order."""

    messages: list[PoppedMessage]
    results: list[AckResult] | UnsetType = UNSET


class ExtendRequest(Struct, rename="camel", forbid_unknown_fields=True, omit_defaults=True):
    """How long the lease lasts from now (default: the queue's lease_seconds)."""

    lease_seconds: float | None = None


class ExtendBatchRequest(Struct, rename="camel", forbid_unknown_fields=True, omit_defaults=True):
    """Several leases to extend."""

    lease_ids: list[str]
    lease_seconds: float | None = None


class Extended(Struct, rename="camel"):
    """A lease's new deadline, or the code that says why there is none."""

    lease_id: str
    lease_deadline: datetime | None
    code: Code | None = None


class ExtendBatchResponse(Struct):
    """One result per lease, in order."""

    results: list[Extended]


class Released(Struct, rename="camel"):
    """A lease that was released: its messages are delivered again."""

    lease_id: str
    released: bool


class TransactionRequest(Struct, rename="camel", forbid_unknown_fields=True, omit_defaults=True):
    """Acks, pushes, effects on entities and receipts that happen together or not at all."""

    acknowledgments: list[Ack] = []
    items: list[PushItem] = []
    effects: list[EffectItem] = []
    receipts: list[ReceiptItem] = []


class TransactionResponse(Struct, rename="camel"):
    """The results of a committed transaction.

    ``repeated`` is there, and true, when it was committed before: this is the answer of then, and nothing changed now.
    """

    committed: bool
    results: list[AckResult]
    messages: list[PushedMessage]
    repeated: bool | UnsetType = UNSET
