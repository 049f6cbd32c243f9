"""Consumer groups on the wire: their figures, and changes to them."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from typing import Annotated

from msgspec import Meta, Struct

from skep.model import Rates
from skep.wire.log import MOST_QUEUES


class GroupFigures(Struct, rename="camel"):
    """A group's figures in one queue: pushed = completed + pending + inFlight + dead + expired. ``lag`` is in messages.

    An ``external`` group reads the raw log and reports its progress; it does not pop. ``activeAt`` is the time of its last use, to
    the minute. An ``idle`` group was not used for longer than the queue's ``group_idle_seconds``, and holds back nothing.
    ``heldMessages`` counts messages that every other group has settled: retention waits for this group alone. ``heldDepth`` is the
    part of the queue's depth that this group causes. Both are null where only one group was looked at. ``archivedSeq`` is the last
    seq that an archive has reported as safe in its lake; null for a group that is no archive.
    """

    queue: str
    consumer_group: str
    lag: int
    lag_seconds: float
    progress_seq: int
    pushed: int
    completed: int
    pending: int
    in_flight: int
    dead: int
    expired: int
    retried: int
    partitions_pending: int
    partitions_leased: int
    oldest_at: datetime | None
    created_at: datetime
    rates: Rates
    active_at: datetime
    inactive_seconds: float
    external: bool = False
    idle: bool = False
    held_messages: int | None = None
    held_depth: int | None = None
    archived_seq: int | None = None


class GroupsResponse(Struct, rename="camel"):
    """Groups by queue; ``after`` is the queue after which the next page starts, null when there is none."""

    consumer_groups: list[GroupFigures]
    after: str | None


class GroupDetail(Struct, rename="camel"):
    """One group in every queue that it reads; not ``complete`` when there are more queues than one look takes in."""

    consumer_group: str
    lag: int
    lag_seconds: float
    queues: list[GroupFigures]
    complete: bool


class SeekTo(StrEnum):
    """The kind of position that a group is moved to."""

    BEGINNING = "beginning"
    END = "end"
    TIME = "time"
    SEQ = "seq"


class SeekRequest(Struct, rename="camel", forbid_unknown_fields=True):
    """The new position; ``time`` and ``seq`` belong to the kinds of the same name. The message at that position comes next."""

    queue: str
    to: SeekTo
    time: datetime | None = None
    seq: int | None = None
    dry_run: bool = False


class SeekResponse(Struct, rename="camel"):
    """The effect of a seek, or of its dry run.

    All messages up to ``toSeq`` count as read, ``pending`` messages come after it. The leases of the group end.
    ``fromSeq`` is null when the group is new.
    """

    queue: str
    consumer_group: str
    dry_run: bool
    from_seq: int | None
    to_seq: int
    pending: int
    in_flight: int


class ProgressRequest(Struct, rename="camel", forbid_unknown_fields=True):
    """Progress of an external group: it is done with all messages up to ``seq``.

    With ``archived`` the group is an archive, and these messages are safe in its lake.
    """

    queue: str
    seq: int
    archived: bool = False


class ProgressOfMany(Struct, forbid_unknown_fields=True):
    """Progress of an external group in many queues: by queue, the seq up to which it is done with all messages.

    With ``archived`` the group is an archive, and these messages are safe in its lake.
    """

    seqs: Annotated[dict[str, int], Meta(min_length=1, max_length=MOST_QUEUES)]
    archived: bool = False


class ProgressOfManyResponse(Struct, rename="camel"):
    """The progress of the group in each queue after the reports. Queues that do not exist are left out."""

    consumer_group: str
    progress: dict[str, int]


class ReleaseRequest(Struct, rename="camel", forbid_unknown_fields=True):
    """The partition of a queue whose leases end."""

    queue: str
    partition: str


class LeasesReleased(Struct, rename="camel"):
    """How many leases ended; none when nobody held the partition."""

    queue: str
    consumer_group: str
    partition: str
    released: int


class GroupDeleted(Struct, rename="camel"):
    """The messages and leases that were deleted with a group, or would be."""

    queue: str
    consumer_group: str
    dry_run: bool
    pending: int
    in_flight: int
