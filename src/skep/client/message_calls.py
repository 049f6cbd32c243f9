"""The calls that look at messages, traces and queued operations, and delete messages. Nothing here sends anything."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Literal, TypedDict, Unpack

from skep.client.exchange import ApiCall, path_part
from skep.client.method import (
    PAGE_ROWS,
    QUERY_DEFAULTS,
    PagedList,
    call,
    delete,
    get,
    listed,
    pages,
    part,
    post,
    with_time,
)
from skep.client.queue_calls import QUEUES
from skep.client.spelling import spelled_out
from skep.model import MessageState
from skep.wire.attempts import AttemptsResponse, AttemptView
from skep.wire.browsing import BrowsedMessage, MessageDeleted, MessagesResponse, TraceResponse
from skep.wire.forgetting import ForgetRequest, ForgetResponse, ForgottenResponse, TombstoneView
from skep.wire.operations import OperationsResponse, OperationStatsResponse, OperationView
from skep.wire.traces import NamedTrace, TraceEventsResponse, TraceEventView, TraceNamesResponse

MESSAGES = "/api/v1/messages"
OPERATIONS = "/api/v1/operations"
TRACES = "/api/v1/traces"

FORGET_SECONDS = 600.0
"""How long forgetting may take, on top of the usual time: it goes step by step through all that matches."""


class MessageQuery(TypedDict, total=False):
    """Which messages of a queue to look at. ``state`` is that of the group; ``preview`` is how many bytes to show."""

    partition: str
    group: str
    state: MessageState | Literal["pending", "in_flight", "settled", "dead"]
    transaction_id: str
    trace_id: str
    since: datetime
    until: datetime
    descending: bool
    preview: int


class OperationQuery(TypedDict, total=False):
    """Which operations: all that is given."""

    status: str | None
    kind: str | None
    queue: str | None
    partition: str | None


class MessageCalls:
    """The client's calls that look at messages, traces and operations."""

    @pages
    @spelled_out(MessageQuery, QUERY_DEFAULTS)
    def messages(self, queue: str, **query: Unpack[MessageQuery]) -> PagedList[BrowsedMessage]:
        """The log of a queue, without leasing anything."""
        return listed(MESSAGES, MessagesResponse, lambda page: page.messages, {**query, "queue": queue})

    @call
    def message(self, queue: str, seq: int) -> ApiCall[BrowsedMessage]:
        """The message at a seq, with its whole payload."""
        return get(_at_seq(queue, seq), BrowsedMessage)

    @call
    def attempts(self, queue: str, seq: int) -> ApiCall[list[AttemptView]]:
        """The attempts of the message at a seq over all groups: the consumer, the outcome and the error of each."""
        return part(get(f"{_at_seq(queue, seq)}/attempts", AttemptsResponse), lambda answer: answer.attempts)

    @call
    def message_pushed_as(self, queue: str, transaction_id: str, *, partition: str) -> ApiCall[BrowsedMessage]:
        """The newest message with a transaction id in a partition, with its whole payload."""
        return get(_pushed_as(partition, transaction_id), BrowsedMessage, {"queue": queue})

    @call
    def delete_message(
        self, queue: str, seq: int, *, message_id: str | None = None, dry_run: bool = False
    ) -> ApiCall[MessageDeleted]:
        """Delete an unsettled message for all groups: it is not delivered again. A consumer that holds it loses its lease.

        With ``message_id`` only if the message at this seq has that id. MESSAGE_SETTLED when every group has settled it.
        """
        return delete(_at_seq(queue, seq), MessageDeleted, {"message_id": message_id, "dry_run": dry_run})

    @call
    def delete_message_pushed_as(
        self, queue: str, transaction_id: str, *, partition: str, dry_run: bool = False
    ) -> ApiCall[MessageDeleted]:
        """Delete the newest message with a transaction id in a partition, as `delete_message` does."""
        path = _pushed_as(partition, transaction_id)
        return delete(path, MessageDeleted, {"queue": queue, "dry_run": dry_run})

    @call
    def forget(
        self,
        queue: str,
        seqs: Sequence[int | tuple[int, int]] | None = None,
        *,
        partition: str | None = None,
        transaction_id: str | None = None,
        trace_id: str | None = None,
        log: int | None = None,
        dry_run: bool = False,
    ) -> ApiCall[ForgetResponse]:
        """Erase messages of a queue for good, settled or not, with their dead letters and all else that stems from them.

        They are those that match everything given. ``seqs`` are single seqs, and pairs of the first and the last of a range, at most 10,000
        in one call. ``log`` is the `log` of the bounds or of a dry run: LOG_REPLACED when the queue was deleted and made anew since.
        """
        wanted = ForgetRequest(None if seqs is None else list(seqs), partition, transaction_id, trace_id, log, dry_run)
        return with_time(post(f"/api/v1/queues/{path_part(queue)}/forget", ForgetResponse, wanted), FORGET_SECONDS)

    @pages
    def forgotten(self, queue: str, *, after: int = 0) -> PagedList[TombstoneView]:
        """The seqs that were forgotten, in the order in which they were; those after the position ``after``."""

        def ask(position: int | None) -> ApiCall[tuple[Sequence[TombstoneView], int | None]]:
            return part(
                forgotten_page(queue, after if position is None else position),
                lambda page: (page.forgotten, page.after),
            )

        return PagedList(ask)

    # traces

    @call
    def trace(self, trace_id: str) -> ApiCall[list[BrowsedMessage]]:
        """All messages of a trace across queues, oldest first."""
        return part(get(f"{TRACES}/{path_part(trace_id)}", TraceResponse), lambda answer: answer.messages)

    @call
    def trace_events(self, trace_id: str) -> ApiCall[list[TraceEventView]]:
        """The events that workers added to a trace, oldest first."""
        return part(get(f"{TRACES}/{path_part(trace_id)}", TraceResponse), lambda answer: answer.events)

    @pages
    def trace_names(self) -> PagedList[NamedTrace]:
        """The names of trace events, each with the time of its last event."""
        return listed(f"{TRACES}/names", TraceNamesResponse, lambda page: page.names)

    @pages
    def traces_by_name(self, name: str) -> PagedList[TraceEventView]:
        """Events of traces by their name, newest first."""
        return listed(f"{TRACES}/by-name", TraceEventsResponse, lambda page: page.events, {"name": name})

    # queued operations

    @pages
    @spelled_out(OperationQuery, QUERY_DEFAULTS)
    def operations(self, **query: Unpack[OperationQuery]) -> PagedList[OperationView]:
        """Calls that were queued under load, newest first."""
        return listed(OPERATIONS, OperationsResponse, lambda page: page.operations, query)

    @call
    def operation(self, operation_id: str) -> ApiCall[OperationView]:
        """The state of a queued call, with its result once it is completed."""
        return get(f"{OPERATIONS}/{path_part(operation_id)}", OperationView)

    @call
    def cancel_operation(self, operation_id: str) -> ApiCall[OperationView]:
        """Cancel a queued call that nobody has begun to perform."""
        return delete(f"{OPERATIONS}/{path_part(operation_id)}", OperationView)

    @call
    def operation_stats(self) -> ApiCall[OperationStatsResponse]:
        """The figures of the queue of operations."""
        return get(f"{OPERATIONS}/stats", OperationStatsResponse)


def forgotten_page(queue: str, after: int, limit: int = PAGE_ROWS) -> ApiCall[ForgottenResponse]:
    """A page of the seqs that were forgotten, with the log that they are of."""
    return get(f"/api/v1/log/{path_part(queue)}/forgotten", ForgottenResponse, {"after": after, "limit": limit})


def _at_seq(queue: str, seq: int) -> str:
    return f"{QUEUES}/{path_part(queue)}/messages/{seq}"


def _pushed_as(partition: str, transaction_id: str) -> str:
    return f"{MESSAGES}/{path_part(partition)}/{path_part(transaction_id)}"
