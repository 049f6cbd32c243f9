"""The calls about scheduled messages: look at them, cancel, run and move them. Nothing here sends anything."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, TypedDict

from skep.client.admin_calls import PAGE_ROWS, get, post
from skep.client.exchange import ApiCall, path_part
from skep.errors import Code, SkepError
from skep.wire.scheduled import ScheduledChanged, ScheduledMove, ScheduledResponse, ScheduledSelection, ScheduledView

PATH = "/api/v1/scheduled"


class ScheduledQuery(TypedDict, total=False):
    """Which scheduled messages to look at; ``preview`` is how many bytes of a payload to show."""

    partition: str
    transaction_id: str
    trace_id: str
    due_after: datetime
    due_before: datetime
    preview: int


class ScheduledWish(TypedDict, total=False):
    """Which scheduled messages to change; with none of these, all of the queue.

    ``dry_run`` only counts them. The ``mark`` of its answer keeps a later call to what was counted.
    """

    ids: list[str]
    partition: str
    transaction_id: str
    trace_id: str
    due_after: datetime
    due_before: datetime
    mark: int
    dry_run: bool


def scheduled(queue: str | None, query: ScheduledQuery, after: str | None) -> ApiCall[ScheduledResponse]:
    """A page of scheduled messages."""
    asked: dict[str, Any] = {**query, "queue": queue, "after": after, "limit": PAGE_ROWS}
    return get(PATH, ScheduledResponse, asked)


def scheduled_message(queue: str, message_id: str) -> ApiCall[ScheduledView]:
    """A scheduled message with its payload."""
    return get(f"{PATH}/{path_part(queue)}/{path_part(message_id)}", ScheduledView)


def cancel(queue: str, wish: ScheduledWish) -> ApiCall[ScheduledChanged]:
    """Cancel scheduled messages."""
    return post(f"{PATH}/cancel", ScheduledChanged, _selection(ScheduledSelection, {**wish, "queue": queue}))


def run(queue: str, wish: ScheduledWish) -> ApiCall[ScheduledChanged]:
    """Let scheduled messages enter the log now."""
    return post(f"{PATH}/run", ScheduledChanged, _selection(ScheduledSelection, {**wish, "queue": queue}))


def move(queue: str, deliver_at: datetime, wish: ScheduledWish) -> ApiCall[ScheduledChanged]:
    """Move scheduled messages to another time."""
    given = {**wish, "queue": queue, "deliver_at": deliver_at}
    return post(f"{PATH}/move", ScheduledChanged, _selection(ScheduledMove, given))


def _selection(kind: type[ScheduledSelection], given: Mapping[str, Any]) -> ScheduledSelection:
    try:
        return kind(**given)
    except TypeError as error:
        raise SkepError(Code.INVALID_REQUEST, str(error)) from None
