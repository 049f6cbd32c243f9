"""Looking at messages on the wire."""

from __future__ import annotations

from datetime import datetime

from msgspec import Raw, Struct

from skep.model import MessageState
from skep.wire.attempts import AttemptView
from skep.wire.payloads import Shown
from skep.wire.traces import TraceEventView


class BrowsedMessage(Shown, rename="camel"):
    """A message of the log. When only a part of the payload is shown, ``payload`` is null and ``preview`` is that part.

    ``state`` is the message's state in the group; null when no group was asked for. A scheduled message has a ``deliverAt``,
    and the ``seq`` 0 until it enters the log; its ``createdAt`` is the time of the push.
    """

    queue: str
    partition: str
    seq: int
    id: str
    transaction_id: str | None
    trace_id: str
    created_at: datetime
    priority: int
    state: MessageState | None
    headers: Raw
    content_type: str | None
    payload_bytes: int
    payload: Raw
    preview: str | None
    deliver_at: datetime | None = None


class MessageStory(BrowsedMessage, rename="camel", kw_only=True):
    """A message with its attempts: what `skep message show` prints."""

    attempts: list[AttemptView]


class MessageDeleted(Struct, rename="camel"):
    """A message that was deleted, or would be: the groups that had not settled it, and the number of leases that held it."""

    queue: str
    partition: str
    seq: int
    id: str
    transaction_id: str | None
    dry_run: bool
    consumer_groups: list[str]
    leases_ended: int


class MessagesResponse(Struct):
    """A page; ``after`` is where the next one starts, null when there is none. A page may be short and not the last."""

    messages: list[BrowsedMessage]
    after: int | None


class TraceResponse(Struct, rename="camel"):
    """All messages of a trace, oldest first, across queues, then scheduled messages, and the events that workers added."""

    trace_id: str
    messages: list[BrowsedMessage]
    events: list[TraceEventView] = []
