"""The bodies of Queen's wire, as far as its clients use them. Fields that are not here are ignored, as Queen does."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from msgspec import UNSET, Raw, Struct, UnsetType

from skep.wire.messages import NULL

# requests


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
