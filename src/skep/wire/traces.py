"""Events of traces on the wire."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from msgspec import Raw, Struct


class NewTraceEvent(Struct, rename="camel", forbid_unknown_fields=True):
    """An event of a trace. ``data`` is an object; the message it belongs to may be named."""

    trace_id: str
    name: str
    data: dict[str, Any] = {}
    message_id: str | None = None
    queue: str | None = None


class TellRequest(Struct, forbid_unknown_fields=True):
    """Events to keep, in the order in which they happened."""

    events: list[NewTraceEvent]


class TellResponse(Struct):
    """How many were kept."""

    told: int


class TraceEventView(Struct, rename="camel"):
    """An event of a trace, and the time when the server got it."""

    trace_id: str
    name: str
    data: Raw
    at: datetime
    message_id: str | None
    queue: str | None


class TraceEventsResponse(Struct):
    """Events of a name, newest first; ``after`` is where the next page starts, null when there is none."""

    events: list[TraceEventView]
    after: int | None


class NamedTrace(Struct, rename="camel"):
    """A name of events, and the time of its last event."""

    name: str
    last_at: datetime


class TraceNamesResponse(Struct):
    """Names in their order; ``after`` is where the next page starts, null when there is none."""

    names: list[NamedTrace]
    after: str | None
