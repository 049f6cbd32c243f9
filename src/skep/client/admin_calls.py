"""The calls that look around and manage: queues, groups, dead letters, messages. Nothing here sends anything."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Literal, TypedDict, TypeVar

from msgspec import Raw

from skep.client.exchange import ApiCall, Request, path_part
from skep.client.outgoing import encode
from skep.client.reading import reader
from skep.errors import Code, SkepError
from skep.model import DeadReason, MessageState
from skep.wire.attempts import AttemptsResponse
from skep.wire.browsing import BrowsedMessage, MessageDeleted, MessagesResponse, TraceResponse
from skep.wire.dead_letters import (
    Buried,
    BuryRequest,
    DeadLetterSelection,
    DeadLettersResponse,
    DeadLetterView,
    PurgeResponse,
    ReplayEditedRequest,
    ReplayResponse,
    ReplaysResponse,
    UnfitMessage,
)
from skep.wire.groups import (
    GroupDeleted,
    GroupDetail,
    GroupsResponse,
    LeasesReleased,
    ReleaseRequest,
    SeekRequest,
    SeekResponse,
    SeekTo,
)
from skep.wire.operations import OperationsResponse, OperationStatsResponse, OperationView
from skep.wire.pace import ConsumersResponse, PaceResponse
from skep.wire.queues import (
    ClearResponse,
    NamespacesResponse,
    Overview,
    QueueDeleted,
    QueueDetail,
    QueuesResponse,
    QueueView,
    TasksResponse,
)
from skep.wire.status import BuffersResponse, LeasesResponse, StatusResponse
from skep.wire.traces import NewTraceEvent, TellRequest, TellResponse, TraceEventsResponse, TraceNamesResponse

T = TypeVar("T")
Position = Literal["beginning", "end"] | datetime | int

QUEUES = "/api/v1/resources/queues"
GROUPS = "/api/v1/consumer-groups"
PAGE_ROWS = 100


class QueueQuery(TypedDict, total=False):
    """Which queues to list; ``stats=False`` leaves out their figures, which is faster."""

    namespace: str
    task: str
    stats: bool


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


class DeadLetterQuery(TypedDict, total=False):
    """Which dead letters to look at; ``error`` is a part of the error's text."""

    source_queue: str
    partition: str
    group: str
    reason: DeadReason | Literal["max_attempts", "rejected", "expired", "invalid", "operation_failed"]
    error: str
    since: datetime
    until: datetime
    preview: int


class DeadLetterWish(TypedDict, total=False):
    """Which dead letters to replay or purge; with none of these, all of them. ``dry_run`` only counts them.

    ``up_to_seq`` is the mark that a dry run's answer has: with it only those are meant that the dry run saw.
    """

    ids: list[str]
    seqs: list[int]
    source_queue: str
    partition: str
    group: str
    reason: DeadReason | Literal["max_attempts", "rejected", "expired", "invalid", "operation_failed"]
    error: str
    since: datetime
    until: datetime
    dry_run: bool
    up_to_seq: int


QUERY_DEFAULTS = {"stats": True, "descending": False, "dry_run": False}
"""Those of all queries; what else is not given is not asked for."""


def get(path: str, kind: type[T], query: Mapping[str, Any] | None = None) -> ApiCall[T]:
    """A look."""
    return ApiCall(Request("GET", path, query=_texts(query or {})), _reader(kind))


def post(path: str, kind: type[T], body: object = None) -> ApiCall[T]:
    """A change."""
    return ApiCall(Request("POST", path, b"" if body is None else encode(body)), _reader(kind))


def delete(path: str, kind: type[T], query: Mapping[str, Any]) -> ApiCall[T]:
    """A deletion."""
    return ApiCall(Request("DELETE", path, query=_texts(query)), _reader(kind))


_readers: dict[Any, Any] = {}


def _reader(kind: type[T]) -> Any:
    if kind not in _readers:
        _readers[kind] = reader(kind)
    return _readers[kind]


def _texts(query: Mapping[str, Any]) -> dict[str, str]:
    """The parameters as a URL writes them: in camel case, times as RFC 3339; what is None is left out."""
    return {_NAMES.get(name, name): _text(value) for name, value in query.items() if value is not None}


_NAMES = {
    "group": "consumerGroup",
    "source_queue": "sourceQueue",
    "transaction_id": "transactionId",
    "message_id": "messageId",
    "trace_id": "traceId",
    "dry_run": "dryRun",
    "due_after": "dueAfter",
    "due_before": "dueBefore",
}


def _text(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return value.isoformat() if isinstance(value, datetime) else str(value)


def configure(queue: str, settings: Mapping[str, Any]) -> ApiCall[QueueView]:
    """Make a queue, or change the settings that are given."""
    return post("/api/v1/configure", QueueView, {"queue": queue, "settings": settings})


def queues(query: QueueQuery, after: str | None) -> ApiCall[QueuesResponse]:
    """A page of queues."""
    return get(QUEUES, QueuesResponse, {**query, "after": after, "limit": PAGE_ROWS})


def queue(name: str) -> ApiCall[QueueDetail]:
    """A queue with its settings, figures and groups."""
    return get(f"{QUEUES}/{path_part(name)}", QueueDetail)


def delete_queue(name: str, dry_run: bool) -> ApiCall[QueueDeleted]:
    """Delete a queue with all it holds."""
    return delete(f"{QUEUES}/{path_part(name)}", QueueDeleted, {"dry_run": dry_run})


def pause(name: str) -> ApiCall[QueueView]:
    """Hand out nothing more."""
    return post(f"/api/v1/queues/{path_part(name)}/pause", QueueView)


def resume(name: str) -> ApiCall[QueueView]:
    """Hand out messages again."""
    return post(f"/api/v1/queues/{path_part(name)}/resume", QueueView)


def clear(name: str, scope: str, dry_run: bool) -> ApiCall[ClearResponse]:
    """Take messages away."""
    return post(f"/api/v1/queues/{path_part(name)}/clear", ClearResponse, {"scope": scope, "dryRun": dry_run})


def namespaces() -> ApiCall[NamespacesResponse]:
    """Namespaces, and how many queues each has."""
    return get("/api/v1/resources/namespaces", NamespacesResponse)


def tasks() -> ApiCall[TasksResponse]:
    """Tasks, and how many queues each has."""
    return get("/api/v1/resources/tasks", TasksResponse)


def overview() -> ApiCall[Overview]:
    """All queues added up."""
    return get("/api/v1/resources/overview", Overview)


def buffers() -> ApiCall[BuffersResponse]:
    """What the server process that answers has taken and not stored yet."""
    return get("/api/v1/status/buffers", BuffersResponse)


def status() -> ApiCall[StatusResponse]:
    """The tenant at one look."""
    return get("/api/v1/status", StatusResponse)


def leases(queue: str | None, expiring_within: float | None, limit: int) -> ApiCall[LeasesResponse]:
    """Who holds leases, those that run out first before the others."""
    query = {"queue": queue, "expiringWithin": expiring_within, "limit": limit}
    return get("/api/v1/status/leases", LeasesResponse, query)


def pace(queue: str) -> ApiCall[PaceResponse]:
    """How a queue keeps up."""
    return get(f"/api/v1/status/queues/{path_part(queue)}/pace", PaceResponse)


def consumers(queue: str | None) -> ApiCall[ConsumersResponse]:
    """Who waits for messages, popped lately or holds leases."""
    return get("/api/v1/status/consumers", ConsumersResponse, {"queue": queue})


def groups(queue: str | None, after: str | None) -> ApiCall[GroupsResponse]:
    """A page of groups with their lag."""
    return get(GROUPS, GroupsResponse, {"queue": queue, "after": after, "limit": PAGE_ROWS})


def group(name: str, queue: str | None) -> ApiCall[GroupDetail]:
    """A group in every queue that it reads."""
    return get(f"{GROUPS}/{path_part(name)}", GroupDetail, {"queue": queue})


def seek(queue: str, group: str, to: Position, dry_run: bool) -> ApiCall[SeekResponse]:
    """Move a group."""
    if isinstance(to, datetime):
        request = SeekRequest(queue, SeekTo.TIME, time=to, dry_run=dry_run)
    elif isinstance(to, int):
        request = SeekRequest(queue, SeekTo.SEQ, seq=to, dry_run=dry_run)
    else:
        try:
            request = SeekRequest(queue, SeekTo(to), dry_run=dry_run)
        except ValueError:
            raise SkepError(Code.INVALID_REQUEST, f"seek to beginning, end, a time or a seq, not {to!r}") from None
    return post(f"{GROUPS}/{path_part(group)}/seek", SeekResponse, request)


def release_partition(queue: str, group: str, partition: str) -> ApiCall[LeasesReleased]:
    """End the leases of a partition."""
    return post(f"{GROUPS}/{path_part(group)}/release", LeasesReleased, ReleaseRequest(queue, partition))


def delete_group(queue: str, group: str, dry_run: bool) -> ApiCall[GroupDeleted]:
    """Forget a group of a queue."""
    return delete(f"{GROUPS}/{path_part(group)}", GroupDeleted, {"queue": queue, "dry_run": dry_run})


OPERATIONS = "/api/v1/operations"


class OperationQuery(TypedDict, total=False):
    """Which operations: all that is given."""

    status: str | None
    kind: str | None
    queue: str | None
    partition: str | None


def operations(query: OperationQuery, after: int | None) -> ApiCall[OperationsResponse]:
    """A page of operations."""
    return get(OPERATIONS, OperationsResponse, {**query, "after": after, "limit": PAGE_ROWS})


def operation(operation_id: str) -> ApiCall[OperationView]:
    """An operation with its result."""
    return get(f"{OPERATIONS}/{path_part(operation_id)}", OperationView)


def cancel_operation(operation_id: str) -> ApiCall[OperationView]:
    """Cancel an operation."""
    return delete(f"{OPERATIONS}/{path_part(operation_id)}", OperationView, {})


def operation_stats() -> ApiCall[OperationStatsResponse]:
    """How the queue of operations stands."""
    return get(f"{OPERATIONS}/stats", OperationStatsResponse)


def dead_letters(queue: str, query: DeadLetterQuery, after: int | None) -> ApiCall[DeadLettersResponse]:
    """A page of dead letters."""
    return get("/api/v1/dlq", DeadLettersResponse, {**query, "queue": queue, "after": after, "limit": PAGE_ROWS})


def dead_letter(queue: str, letter: str | int) -> ApiCall[DeadLetterView]:
    """A dead letter with its payload."""
    return get(f"/api/v1/dlq/{path_part(queue)}/{path_part(str(letter))}", DeadLetterView)


def replay(queue: str, wish: DeadLetterWish) -> ApiCall[ReplayResponse]:
    """Send dead letters back."""
    return post("/api/v1/dlq/replay", ReplayResponse, _selection(queue, wish))


def replay_edited(queue: str, letter: str | int, payload: object) -> ApiCall[ReplayResponse]:
    """Send a dead letter back with another payload."""
    path = f"/api/v1/dlq/{path_part(queue)}/{path_part(str(letter))}/replay"
    return post(path, ReplayResponse, ReplayEditedRequest(Raw(encode(payload))))


def replays(queue: str, source_queue: str | None, after: int | None) -> ApiCall[ReplaysResponse]:
    """A page of replayed dead letters."""
    given = {"queue": queue, "source_queue": source_queue, "after": after, "limit": PAGE_ROWS}
    return get("/api/v1/dlq/replays", ReplaysResponse, given)


def bury(queue: str, letters: Mapping[int, str], name: str) -> ApiCall[Buried]:
    """Put messages of a log among the dead letters."""
    unfit = [UnfitMessage(seq, error) for seq, error in letters.items()]
    return post("/api/v1/dlq/bury", Buried, BuryRequest(queue, name, unfit))


def purge(queue: str, wish: DeadLetterWish) -> ApiCall[PurgeResponse]:
    """Delete dead letters."""
    return post("/api/v1/dlq/purge", PurgeResponse, _selection(queue, wish))


def _selection(queue: str, wish: DeadLetterWish) -> DeadLetterSelection:
    given: dict[str, Any] = {**wish, "queue": queue}
    if "group" in given:
        given["consumer_group"] = given.pop("group")
    try:
        return DeadLetterSelection(**given)
    except TypeError as error:
        raise SkepError(Code.INVALID_REQUEST, str(error)) from None


def messages(queue: str, query: MessageQuery, after: int | None) -> ApiCall[MessagesResponse]:
    """A page of messages."""
    return get("/api/v1/messages", MessagesResponse, {**query, "queue": queue, "after": after, "limit": PAGE_ROWS})


def message(queue: str, seq: int) -> ApiCall[BrowsedMessage]:
    """The message at a seq."""
    return get(f"{QUEUES}/{path_part(queue)}/messages/{seq}", BrowsedMessage)


def attempts(queue: str, seq: int) -> ApiCall[AttemptsResponse]:
    """The attempts of the message at a seq."""
    return get(f"{QUEUES}/{path_part(queue)}/messages/{seq}/attempts", AttemptsResponse)


def message_pushed_as(queue: str, partition: str, transaction_id: str) -> ApiCall[BrowsedMessage]:
    """The newest message with a transaction id."""
    path = f"/api/v1/messages/{path_part(partition)}/{path_part(transaction_id)}"
    return get(path, BrowsedMessage, {"queue": queue})


def delete_message(queue: str, seq: int, message_id: str | None, dry_run: bool) -> ApiCall[MessageDeleted]:
    """Delete the message at a seq."""
    query = {"message_id": message_id, "dry_run": dry_run}
    return delete(f"{QUEUES}/{path_part(queue)}/messages/{seq}", MessageDeleted, query)


def delete_message_pushed_as(queue: str, partition: str, transaction_id: str, dry_run: bool) -> ApiCall[MessageDeleted]:
    """Delete the newest message with a transaction id."""
    path = f"/api/v1/messages/{path_part(partition)}/{path_part(transaction_id)}"
    return delete(path, MessageDeleted, {"queue": queue, "dry_run": dry_run})


def trace(trace_id: str) -> ApiCall[TraceResponse]:
    """All messages of a trace."""
    return get(f"/api/v1/traces/{path_part(trace_id)}", TraceResponse)


def tell(event: NewTraceEvent) -> ApiCall[TellResponse]:
    """Tell what happened on the way of a trace."""
    return post("/api/v1/traces", TellResponse, TellRequest([event]))


def trace_names(after: str | None) -> ApiCall[TraceNamesResponse]:
    """A page of the names that events of traces have."""
    return get("/api/v1/traces/names", TraceNamesResponse, {"after": after, "limit": PAGE_ROWS})


def traces_by_name(name: str, after: int | None) -> ApiCall[TraceEventsResponse]:
    """A page of the events of a name."""
    return get("/api/v1/traces/by-name", TraceEventsResponse, {"name": name, "after": after, "limit": PAGE_ROWS})
