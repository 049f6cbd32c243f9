"""Filters of scheduled messages from requests, and their views."""

from __future__ import annotations

from skep.clock import Instant
from skep.errors import Code, SkepError
from skep.http.request import parameters
from skep.http.views import json_headers, shown_payload, wanted_id
from skep.ids import id_text, minted_at
from skep.model.scheduled import ScheduledFilter, ScheduledMessage, ScheduledPosition
from skep.wire.browsing import BrowsedMessage
from skep.wire.scheduled import ScheduledSelection, ScheduledView
from skep.wire.times import to_datetime, to_instant

PLACE_PATTERN = f"^{parameters.POSITION_PATTERN}-{parameters.POSITION_PATTERN}$"


def of_query(query: dict[str, str], tenant: str, queue: str | None) -> ScheduledFilter:
    """The filter of a query."""
    trace_id = query.get("traceId")
    return ScheduledFilter(
        tenant=tenant,
        queue=queue,
        partition=query.get("partition"),
        transaction_id=query.get("transactionId"),
        trace_id=None if trace_id is None else wanted_id(trace_id, Code.INVALID_TRACE_ID),
        due_after=_within(parameters.time(query, "dueAfter")),
        due_before=_within(parameters.time(query, "dueBefore")),
    )


def of_selection(selection: ScheduledSelection, tenant: str) -> ScheduledFilter:
    """The filter of a body."""
    return ScheduledFilter(
        tenant=tenant,
        queue=selection.queue,
        ids=None if selection.ids is None else [wanted_id(text) for text in selection.ids],
        partition=selection.partition,
        transaction_id=selection.transaction_id,
        trace_id=None if selection.trace_id is None else wanted_id(selection.trace_id, Code.INVALID_TRACE_ID),
        due_after=None if selection.due_after is None else _within(to_instant(selection.due_after)),
        due_before=None if selection.due_before is None else _within(to_instant(selection.due_before)),
        mark=selection.mark,
    )


def _within(at: Instant | None) -> Instant | None:
    """The time, or 1970 for an earlier one: nothing is due before 1970."""
    return None if at is None else Instant(max(0, at))


def place_of(text: str | None) -> ScheduledPosition | None:
    """The position that `place_text` wrote, where a page starts."""
    if text is None:
        return None
    due_at, _, arrival = text.partition("-")
    if not (_is_number(due_at) and _is_number(arrival)):
        raise SkepError(Code.INVALID_REQUEST, f"after must be the `after` of the page before, not {text[:100]!r}")
    return ScheduledPosition(int(due_at), int(arrival))


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdecimal() and len(text) <= 19 and int(text) <= parameters.POSITION_MAX


def place_text(place: ScheduledPosition | None) -> str | None:
    """A position as a text of the wire."""
    return None if place is None else f"{place.due_at}-{place.arrival}"


def browsed_scheduled(message: ScheduledMessage) -> BrowsedMessage:
    """A scheduled message, where messages of the log are shown."""
    view = scheduled_view(message)
    return BrowsedMessage(
        queue=view.queue, partition=view.partition, seq=0, id=view.id, transaction_id=view.transaction_id,
        trace_id=view.trace_id, created_at=view.scheduled_at or view.deliver_at, priority=view.priority, state=None,
        headers=view.headers, content_type=view.content_type, payload_bytes=view.payload_bytes, payload=view.payload,
        preview=view.preview, deliver_at=view.deliver_at,
    )  # fmt: skip


def scheduled_view(message: ScheduledMessage) -> ScheduledView:
    """A scheduled message."""
    is_whole = len(message.payload) == message.payload_bytes
    shown = shown_payload(message.payload, message.content_type, is_whole=is_whole)
    pushed = minted_at(message.id)
    return ScheduledView(
        queue=message.queue.name, partition=message.partition, id=id_text(message.id), transaction_id=message.transaction_id,
        trace_id=id_text(message.trace_id), deliver_at=to_datetime(message.deliver_at),
        scheduled_at=None if pushed is None else to_datetime(pushed), priority=message.priority,
        headers=json_headers(message.headers), content_type=message.content_type, payload_bytes=message.payload_bytes,
        payload=shown.payload, preview=shown.preview,
    )  # fmt: skip
