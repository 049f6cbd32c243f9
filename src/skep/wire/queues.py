"""Queues on the wire: their settings, their figures, and the changes to them. Settings keep their one spelling."""

from __future__ import annotations

from datetime import datetime

from msgspec import Struct

from skep.model import ClearScope, QueueChanges, QueueSettings, Rates
from skep.wire.groups import GroupFigures


class ConfigureRequest(Struct, rename="camel", forbid_unknown_fields=True):
    """A queue to create or change. Settings that are not given stay as they are."""

    queue: str
    settings: QueueChanges = QueueChanges()


class ArchiveFigures(Struct, rename="camel"):
    """How far the archive is: the number of messages that are in no lake yet, and the age of the oldest.

    ``archivedSeq`` is the last seq that is safe in a lake; null when no archive has reported yet.
    """

    archived_seq: int | None
    unarchived: int
    unarchived_seconds: float


class QueueFigures(Struct, rename="camel"):
    """The figures of a queue. ``depth`` is the number of messages that its slowest group has not settled, plus the scheduled ones.

    ``archive`` is null unless the queue's retention waits for the archive (`retention_requires_archive`).
    """

    first_seq: int
    last_seq: int
    depth: int
    scheduled: int
    in_flight: int
    dead_letters: int
    oldest_age_seconds: float
    rates: Rates
    archive: ArchiveFigures | None = None


class QueueView(Struct, rename="camel"):
    """A queue with its settings."""

    name: str
    settings: QueueSettings
    holds_dead_letters: bool
    created_at: datetime
    updated_at: datetime


class ListedQueue(QueueView, rename="camel"):
    """A queue of a list; ``stats`` is null when the request left it out.

    ``hasDataKeys`` says that the queue is or was encrypted: payloads of that time are encrypted in the store.
    """

    stats: QueueFigures | None
    has_data_keys: bool = False


class QueuesResponse(Struct):
    """A page of queues by name; ``after`` is where the next one starts, null when there is none."""

    queues: list[ListedQueue]
    after: str | None


class QueueDetail(QueueView, rename="camel"):
    """A queue with its settings, its figures, and the figures of its groups."""

    stats: QueueFigures
    groups: list[GroupFigures]


class QueueDeleted(Struct, rename="camel"):
    """The unsettled messages and groups that were deleted with a queue, or would be."""

    queue: str
    dry_run: bool
    depth: int
    scheduled: int
    in_flight: int
    groups: int


class ClearRequest(Struct, rename="camel", forbid_unknown_fields=True):
    """The messages to delete; with ``dryRun`` they are only counted."""

    scope: ClearScope = ClearScope.PENDING
    dry_run: bool = False


class ClearResponse(Struct, rename="camel"):
    """The number of deleted messages, or of those that would be: from the log, and from the schedule."""

    queue: str
    scope: ClearScope
    dry_run: bool
    pending: int
    scheduled: int


class Labelled(Struct):
    """A namespace or task, and how many queues carry it."""

    name: str
    queues: int


class NamespacesResponse(Struct):
    """Namespaces by name; not ``complete`` when there are more queues than one look takes in."""

    namespaces: list[Labelled]
    complete: bool


class TasksResponse(Struct):
    """Tasks by name; not ``complete`` when there are more queues than one look takes in."""

    tasks: list[Labelled]
    complete: bool


class TenantsResponse(Struct):
    """A page of the tenants that have queues, by name; ``after`` is where the next one starts, null when there is none."""

    tenants: list[str]
    after: str | None


class Overview(Struct, rename="camel"):
    """Totals of a tenant. Dead-letter queues count as queues, and their messages only as dead letters.

    ``failed_calls`` are those of the last minute that were refused for now (429) or failed (5xx).
    """

    queues: int
    groups: int
    depth: int
    scheduled: int
    in_flight: int
    dead_letters: int
    oldest_age_seconds: float
    rates: Rates
    complete: bool
    failed_calls: int = 0
