"""Scheduled messages on the wire."""

from __future__ import annotations

from datetime import datetime

from msgspec import Raw, Struct

from skep.wire.payloads import Shown


class ScheduledView(Shown, rename="camel"):
    """A message that waits for its time. When only a part of the payload is shown, ``payload`` is null and ``preview`` is that part.

    ``scheduledAt`` is when it was pushed, as its id says; null when that does not.
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
    """Which scheduled messages of a queue are meant: those that fit all that is given.

    ``mark`` is that of a dry run: what was scheduled or moved since is not meant.
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
    """The same, and the time that they are moved to."""

    deliver_at: datetime


class ChangedMessage(Struct):
    """A scheduled message that was changed; ``seq`` is where it entered the log, if it did."""

    id: str
    seq: int | None


class ScheduledChanged(Struct, rename="camel"):
    """How many were changed, or would be; ``messages`` names the first of them. ``mark`` says which were meant."""

    dry_run: bool
    count: int
    mark: int
    messages: list[ChangedMessage]
