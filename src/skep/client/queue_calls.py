"""The calls about queues and their groups. Nothing here sends anything."""

from __future__ import annotations

from datetime import datetime
from typing import Literal, TypedDict, Unpack

from skep.client.exchange import ApiCall, path_part
from skep.client.method import PAGE_ROWS, QUERY_DEFAULTS, PagedList, call, delete, get, listed, pages, part, post
from skep.client.spelling import spelled_out
from skep.errors import Code, SkepError
from skep.model import ClearScope
from skep.model.queue_settings import SETTINGS, QueueOptions
from skep.wire.groups import (
    GroupDeleted,
    GroupDetail,
    GroupFigures,
    GroupsResponse,
    LeasesReleased,
    ReleaseRequest,
    SeekRequest,
    SeekResponse,
    SeekTo,
)
from skep.wire.pace import ConnectedConsumer, ConsumersResponse, PaceResponse
from skep.wire.queues import (
    ClearResponse,
    Labelled,
    ListedQueue,
    NamespacesResponse,
    Overview,
    QueueDeleted,
    QueueDetail,
    QueuesResponse,
    QueueView,
    TasksResponse,
)
from skep.wire.status import BuffersResponse, LeasesResponse, LiveLease, StatusResponse

Position = Literal["beginning", "end"] | datetime | int

QUEUES = "/api/v1/resources/queues"
GROUPS = "/api/v1/consumer-groups"
QUEUE_DEFAULTS = {setting.name: setting.default for setting in SETTINGS.values()}


class QueueQuery(TypedDict, total=False):
    """Which queues to list; ``stats=False`` leaves out their figures, which is faster."""

    namespace: str | None
    task: str | None
    stats: bool


class QueueCalls:
    """The client's calls about queues and groups."""

    @call
    @spelled_out(QueueOptions, QUEUE_DEFAULTS)
    def configure(self, queue: str, **settings: Unpack[QueueOptions]) -> ApiCall[QueueView]:
        """Create a queue, or change the given settings (docs/settings.md)."""
        return post("/api/v1/configure", QueueView, {"queue": queue, "settings": settings})

    @pages
    @spelled_out(QueueQuery, QUERY_DEFAULTS)
    def queues(self, **query: Unpack[QueueQuery]) -> PagedList[ListedQueue]:
        """All queues by name, page by page."""
        return listed(QUEUES, QueuesResponse, lambda page: page.queues, query)

    @call
    def stats(self, queue: str) -> ApiCall[QueueDetail]:
        """A queue with its settings, its figures, and the figures of every group."""
        return get(f"{QUEUES}/{path_part(queue)}", QueueDetail)

    @call
    def pause(self, queue: str) -> ApiCall[QueueView]:
        """Pause a queue: pops get no messages. Pushes and acks go on."""
        return post(f"/api/v1/queues/{path_part(queue)}/pause", QueueView)

    @call
    def resume(self, queue: str) -> ApiCall[QueueView]:
        """Resume a queue: pops get messages again."""
        return post(f"/api/v1/queues/{path_part(queue)}/resume", QueueView)

    @call
    def clear(
        self,
        queue: str,
        scope: ClearScope | Literal["pending", "scheduled", "all"] = "pending",
        *,
        dry_run: bool = False,
    ) -> ApiCall[ClearResponse]:
        """Delete messages of a queue: pending, scheduled, or all (both, and leased messages too)."""
        return post(f"/api/v1/queues/{path_part(queue)}/clear", ClearResponse, {"scope": scope, "dryRun": dry_run})

    @call
    def delete_queue(self, queue: str, *, dry_run: bool = False) -> ApiCall[QueueDeleted]:
        """Delete a queue with all its messages and groups."""
        return delete(f"{QUEUES}/{path_part(queue)}", QueueDeleted, {"dry_run": dry_run})

    @call
    def namespaces(self) -> ApiCall[list[Labelled]]:
        """The namespaces that queues name, and how many do."""
        return part(get("/api/v1/resources/namespaces", NamespacesResponse), lambda answer: answer.namespaces)

    @call
    def tasks(self) -> ApiCall[list[Labelled]]:
        """The tasks that queues name, and how many do."""
        return part(get("/api/v1/resources/tasks", TasksResponse), lambda answer: answer.tasks)

    @call
    def overview(self) -> ApiCall[Overview]:
        """All queues added up."""
        return get("/api/v1/resources/overview", Overview)

    @call
    def status(self) -> ApiCall[StatusResponse]:
        """The figures of the tenant, with warnings."""
        return get("/api/v1/status", StatusResponse)

    @call
    def buffers(self) -> ApiCall[BuffersResponse]:
        """The messages that the answering server process has taken and not stored yet: on its disk, and in its memory."""
        return get("/api/v1/status/buffers", BuffersResponse)

    @call
    def leases(
        self, queue: str | None = None, *, expiring_within: float | None = None, limit: int = PAGE_ROWS
    ) -> ApiCall[list[LiveLease]]:
        """Live leases, the one that ends first at the start; ``expiring_within`` is in seconds."""
        query = {"queue": queue, "expiring_within": expiring_within, "limit": limit}
        return part(get("/api/v1/status/leases", LeasesResponse, query), lambda answer: answer.leases)

    @call
    def pace(self, queue: str) -> ApiCall[PaceResponse]:
        """How a queue keeps up: rates in and out, the bottleneck, and wait and handler times by group."""
        return get(f"/api/v1/status/queues/{path_part(queue)}/pace", PaceResponse)

    @call
    def consumers(self, queue: str | None = None) -> ApiCall[list[ConnectedConsumer]]:
        """The consumers of a queue, or of all queues: those that wait, popped in the last five minutes, or hold leases."""
        asked = get("/api/v1/status/consumers", ConsumersResponse, {"queue": queue})
        return part(asked, lambda answer: answer.consumers)

    # groups

    @pages
    def groups(self, queue: str | None = None) -> PagedList[GroupFigures]:
        """The groups of a queue, or of all, with their lag."""
        return listed(GROUPS, GroupsResponse, lambda page: page.consumer_groups, {"queue": queue})

    @call
    def group(self, name: str, queue: str | None = None) -> ApiCall[GroupDetail]:
        """A group in every queue that it reads, or in one."""
        return get(f"{GROUPS}/{path_part(name)}", GroupDetail, {"queue": queue})

    @call
    def seek(self, queue: str, group: str, to: Position, *, dry_run: bool = False) -> ApiCall[SeekResponse]:
        """Move a group to the beginning, the end, a time or a seq; the message there comes next. Its leases end."""
        return post(f"{GROUPS}/{path_part(group)}/seek", SeekResponse, _seek(queue, to, dry_run))

    @call
    def release_partition(self, queue: str, group: str, partition: str) -> ApiCall[LeasesReleased]:
        """End the leases of a partition: its messages are delivered again at once."""
        return post(f"{GROUPS}/{path_part(group)}/release", LeasesReleased, ReleaseRequest(queue, partition))

    @call
    def delete_group(self, queue: str, group: str, *, dry_run: bool = False) -> ApiCall[GroupDeleted]:
        """Delete a group of a queue, with its progress and leases."""
        return delete(f"{GROUPS}/{path_part(group)}", GroupDeleted, {"queue": queue, "dry_run": dry_run})


def _seek(queue: str, to: Position, dry_run: bool) -> SeekRequest:
    if isinstance(to, datetime):
        return SeekRequest(queue, SeekTo.TIME, time=to, dry_run=dry_run)
    if isinstance(to, int):
        return SeekRequest(queue, SeekTo.SEQ, seq=to, dry_run=dry_run)
    try:
        return SeekRequest(queue, SeekTo(to), dry_run=dry_run)
    except ValueError:
        raise SkepError(Code.INVALID_REQUEST, f"seek to beginning, end, a time or a seq, not {to!r}") from None
