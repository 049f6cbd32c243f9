"""The bodies of Queen's wire, as far as its clients use them. Fields that are not here are ignored, as Queen does."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any

from msgspec import UNSET, Meta, Raw, Struct, UnsetType

from skep.wire.messages import NULL

# requests

NoFields = Annotated[list[Any], Meta(max_length=0)]
"""A body without fields, as PHP writes it: it makes no difference between an empty map and an empty list."""


class QueenItem(Struct, rename="camel", gc=False):
    """A message to push."""

    queue: str
    payload: Raw = NULL
    partition: str | None = None
    transaction_id: str | None = None
    trace_id: str | None = None


class QueenPush(Struct):
    """Messages to push."""

    items: list[QueenItem]


class QueenConfigure(Struct):
    """A queue to make or to change, with its options."""

    queue: str
    namespace: str | None = None
    task: str | None = None
    options: dict[str, Any] | None = None


class QueenAck(Struct, rename="camel", gc=False):
    """The outcome of one message."""

    transaction_id: str
    partition_id: str
    status: str | None = None
    error: str | None = None
    consumer_group: str | None = None
    lease_id: str | None = None


class QueenAckBatch(Struct, rename="camel"):
    """The outcomes of several messages; the group is that of all that name none."""

    acknowledgments: list[QueenAck]
    consumer_group: str | None = None


class QueenOperation(Struct, rename="camel", gc=False):
    """A push of some items, or an acknowledgment."""

    type: str
    items: list[QueenItem] = []
    transaction_id: str | None = None
    partition_id: str | None = None
    status: str | None = None
    error: str | None = None
    consumer_group: str | None = None
    lease_id: str | None = None


class QueenTransaction(Struct, rename="camel"):
    """Operations that happen together, if the required leases hold."""

    operations: list[QueenOperation]
    required_leases: list[str] | None = None


class QueenExtend(Struct):
    """For how many seconds from now a lease is wanted; the queue's lease time when it is not given."""

    seconds: float | None = None


class QueenTraceRequest(Struct, rename="camel"):
    """What a consumer tells of a message."""

    transaction_id: str
    partition_id: str
    data: Raw
    consumer_group: str | None = None
    trace_names: list[str] | None = None
    event_type: str | None = None


class QueenSeek(Struct, rename="camel"):
    """Where a group is moved to. The client for Go says by ``mode`` what others say by ``position``."""

    to_end: bool = False
    timestamp: str | None = None
    position: str | int | None = None
    mode: str | None = None


class QueenSubscription(Struct, rename="camel"):
    """The time from which a group reads."""

    subscription_timestamp: str


class QueenSwitch(Struct):
    """Whether a mode is wanted."""

    enabled: bool


# answers


class QueenPushed(Struct, gc=False):
    """What became of one pushed message. Queen has ids with an underscore here; a client reads the transaction id in camel case."""

    index: int
    status: str
    message_id: str
    transaction_id: str
    trace_id: str
    transactionId: str  # noqa: N815 - as the wire has it


class QueenMessage(Struct, rename="camel", gc=False):
    """A popped message. Without ``leaseId`` it was settled as it was popped."""

    id: str
    transaction_id: str
    trace_id: str
    queue: str
    partition: str
    partition_id: str
    lease_id: str | None
    consumer_group: str
    data: Raw
    retry_count: int
    priority: int
    created_at: datetime
    headers: Raw | UnsetType = UNSET
    content_type: str | UnsetType = UNSET
    producer_sub: str | UnsetType = UNSET


class QueenPopped(Struct, rename="camel"):
    """Popped messages; partition and lease are those of the first one."""

    success: bool
    queue: str
    partition: str
    partition_id: str
    lease_id: str | None
    consumer_group: str
    messages: list[QueenMessage]


class QueenAckResult(Struct, rename="camel", gc=False):
    """What became of one acknowledgment."""

    index: int
    transaction_id: str
    success: bool
    error: str | None = None
    status: str | None = None
    dlq: bool = False


class QueenCommitted(Struct):
    """A transaction that happened, with the results of its acknowledgments and pushes."""

    success: bool
    acknowledgments: list[QueenAckResult]
    pushed: list[QueenPushed]


class QueenExtended(Struct):
    """A lease that was kept. Clients read the deadline under either name."""

    success: bool
    leaseId: str  # noqa: N815 - as the wire has it
    newExpiresAt: datetime  # noqa: N815
    lease_expires_at: datetime


class QueenConfigured(Struct):
    """A queue with its options as they are now."""

    configured: bool
    queue: str
    namespace: str | None
    task: str | None
    options: dict[str, Any]


class QueenLetter(Struct, rename="camel", gc=False, kw_only=True):
    """A dead letter. Some fields have two names on the wire."""

    id: str
    message_id: str
    transaction_id: str
    trace_id: str
    queue: str
    queue_name: str
    partition: str
    partition_name: str
    partition_id: str
    consumer_group: str
    data: Raw
    error_message: str
    reason: str
    retry_count: int
    created_at: datetime
    original_created_at: datetime
    moved_to_dlq_at: datetime


class QueenLetters(Struct):
    """A part of the dead letters of a queue, and how many there are."""

    messages: list[QueenLetter]
    total: int
    limit: int
    offset: int


class QueenStored(Struct, rename="camel", gc=False, kw_only=True):
    """A message of the log. Where one message is asked for, it has its payload: by that name, and by that of deliveries."""

    id: str
    transaction_id: str
    trace_id: str
    queue: str
    queue_name: str
    partition: str
    partition_name: str
    partition_id: str
    created_at: datetime
    priority: int
    payload_bytes: int
    status: str | None
    payload: Raw | UnsetType = UNSET
    data: Raw | UnsetType = UNSET


class QueenTrace(Struct, rename="camel", gc=False, kw_only=True):
    """An event of a message."""

    trace_id: str
    trace_name: str
    event_type: str
    data: Raw
    created_at: datetime
    message_id: str | None
    queue_name: str | None
    transaction_id: str | UnsetType = UNSET
    consumer_group: str | UnsetType = UNSET
    partition_id: str | UnsetType = UNSET


class QueenGroup(Struct, rename="camel", kw_only=True):
    """A consumer group in one queue."""

    name: str
    queue_name: str
    total_lag: int
    max_time_lag: float
    in_flight: int
    members: int
    completed: int
    failed: int
    state: str
    created_at: datetime


class QueenCounts(Struct, rename="camel", kw_only=True):
    """Messages of a queue for the group that is furthest behind."""

    total: int
    pending: int
    processing: int
    completed: int
    dead_letter: int
    scheduled: int


class QueenPartition(Struct, rename="camel", kw_only=True):
    """A partition with unsettled messages of a group."""

    id: str
    name: str
    queue_name: str
    pending: int
    processing: int
    retry_count: int
    oldest_message: datetime
    lease_expires_at: datetime | None
    last_error: str | None


class QueenQueue(Struct, rename="camel", kw_only=True):
    """A queue with its options and its figures."""

    name: str
    namespace: str | None
    task: str | None
    created_at: datetime
    options: dict[str, Any]
    messages: QueenCounts
    paused: bool
    consumer_groups: list[QueenGroup]
    partitions: list[QueenPartition] | UnsetType = UNSET
