"""The calls about scheduled messages: look at them, cancel, run and move them. Nothing here sends anything."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, TypedDict, Unpack

from skep.client.exchange import ApiCall, path_part
from skep.client.method import QUERY_DEFAULTS, PagedList, call, get, listed, pages, post
from skep.client.spelling import spelled_out
from skep.errors import Code, SkepError
from skep.wire.scheduled import ScheduledChanged, ScheduledMove, ScheduledResponse, ScheduledSelection, ScheduledView

SCHEDULED = "/api/v1/scheduled"


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

    ``dry_run`` only counts them. With the ``mark`` of its answer, a later call touches only the counted messages.
    """

    ids: list[str]
    partition: str
    transaction_id: str
    trace_id: str
    due_after: datetime
    due_before: datetime
    mark: int
    dry_run: bool


class ScheduledCalls:
    """The client's calls about scheduled messages."""

    @pages
    @spelled_out(ScheduledQuery, QUERY_DEFAULTS)
    def scheduled(self, queue: str | None = None, **query: Unpack[ScheduledQuery]) -> PagedList[ScheduledView]:
        """Scheduled messages of a queue, or of all queues, the one that is due next first."""
        return listed(SCHEDULED, ScheduledResponse, lambda page: page.messages, {**query, "queue": queue})

    @call
    def scheduled_message(self, queue: str, message_id: str) -> ApiCall[ScheduledView]:
        """A scheduled message with its whole payload; MESSAGE_NOT_FOUND when it has entered the log, or was cancelled."""
        return get(f"{SCHEDULED}/{path_part(queue)}/{path_part(message_id)}", ScheduledView)

    @call
    @spelled_out(ScheduledWish, QUERY_DEFAULTS)
    def cancel_scheduled(self, queue: str, **wish: Unpack[ScheduledWish]) -> ApiCall[ScheduledChanged]:
        """Cancel scheduled messages: they never enter the log. Their transaction ids stay taken."""
        return _change("cancel", ScheduledSelection, {**wish, "queue": queue})

    @call
    @spelled_out(ScheduledWish, QUERY_DEFAULTS)
    def run_scheduled(self, queue: str, **wish: Unpack[ScheduledWish]) -> ApiCall[ScheduledChanged]:
        """Let scheduled messages enter the log now, in the order of their time."""
        return _change("run", ScheduledSelection, {**wish, "queue": queue})

    @call
    @spelled_out(ScheduledWish, QUERY_DEFAULTS)
    def move_scheduled(
        self, queue: str, deliver_at: datetime, **wish: Unpack[ScheduledWish]
    ) -> ApiCall[ScheduledChanged]:
        """Move scheduled messages to another time."""
        return _change("move", ScheduledMove, {**wish, "queue": queue, "deliver_at": deliver_at})


def _change(verb: str, kind: type[ScheduledSelection], given: Mapping[str, Any]) -> ApiCall[ScheduledChanged]:
    try:
        selection = kind(**given)
    except TypeError as error:
        raise SkepError(Code.INVALID_REQUEST, str(error)) from None
    return post(f"{SCHEDULED}/{verb}", ScheduledChanged, selection)
