"""A message to push, packed as MessagePack: operations and the spool keep it so until the store can take it.

Fields are known by their place, so new fields are only ever added at the end, with a default. Payloads are bytes and stay
unchanged. The queue is not packed: the operation or the spool's record names it for all its messages.
"""

from __future__ import annotations

from msgspec import Struct

from skep.clock import Instant
from skep.ids import Id
from skep.model.message import NewMessage
from skep.model.queue import QueueKey


class PackedMessage(Struct, array_like=True, frozen=True, gc=False):
    """The packed fields of a message."""

    payload: bytes
    partition: str
    transaction_id: str | None
    trace_id: bytes | None
    headers: bytes | None
    content_type: str | None
    deliver_at: int | None
    priority: int


def packed(m: NewMessage) -> PackedMessage:
    """Pack a message."""
    return PackedMessage(
        m.payload, m.partition, m.transaction_id, m.trace_id, m.headers, m.content_type, m.deliver_at, m.priority
    )


def unpacked(kept: PackedMessage, queue: QueueKey) -> NewMessage:
    """Unpack a message."""
    return NewMessage(
        queue, kept.payload, kept.partition, kept.transaction_id, None if kept.trace_id is None else Id(kept.trace_id),
        kept.headers, kept.content_type, None if kept.deliver_at is None else Instant(kept.deliver_at), kept.priority,
    )  # fmt: skip
