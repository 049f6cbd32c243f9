"""Scheduled messages on the wire."""

from __future__ import annotations

from datetime import datetime

from msgspec import Raw, Struct

from skep.wire.payloads import Shown


class ScheduledView(Shown, rename="camel"):
    """A message that waits for its time. When only a part of the payload is shown, ``payload`` is null and ``preview`` is that part.

    ``scheduledAt`` is the time of the push, from the message's id; null when the id has none.
    """

    queue: str
    partition: str
    id: str
    transaction_id: str | None
    trace_id: str
    deliver_at: datetime
    scheduled_at: datetime | None
    priority: int
    headers: Raw
    content_type: str | None
    payload_bytes: int
    payload: Raw
    preview: str | None


class ScheduledResponse(Struct):
    """A page in the order of time; ``after`` is where the next one starts, null when there is none. It may be short and not the last."""

    messages: list[ScheduledView]
    after: str | None


class ScheduledSelection(Struct, rename="camel", forbid_unknown_fields=True, kw_only=True):
    """A filter of a queue's scheduled messages. A message must match all given fields.

    ``mark`` comes from the answer of a dry run: messages that were scheduled or moved since do not match.
    """

    queue: str
    ids: list[str] | None = None
    partition: str | None = None
    transaction_id: str | None = None
    trace_id: str | None = None
    due_after: datetime | None = None
    due_before: datetime | None = None
    mark: int | None = None
    dry_run: bool = False


class ScheduledMove(ScheduledSelection, rename="camel", forbid_unknown_fields=True, kw_only=True):
    """A filter of scheduled messages, and their new time."""

    deliver_at: datetime


class ChangedMessage(Struct):
    """A scheduled message that was changed; ``seq`` is where it entered the log, if it did."""

    id: str
    seq: int | None


class ScheduledChanged(Struct, rename="camel"):
    """The number of changed messages, or of those that would be; ``messages`` has the first ones. ``mark`` is for the call after a dry run."""

    dry_run: bool
    count: int
    mark: int
    messages: list[ChangedMessage]
