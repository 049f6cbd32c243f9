"""Figures of queues, groups and partitions, as data."""

from __future__ import annotations

from msgspec import Struct

from skep.clock import Instant
from skep.model.queue import QueueKey, Seq


class Rates(Struct, frozen=True):
    """Messages per second over the last minute."""

    pushed: float = 0.0
    completed: float = 0.0
    retried: float = 0.0
    dead: float = 0.0


class GroupStats(Struct, frozen=True, kw_only=True):
    """A group's counters. I12: pushed = completed + pending + in_flight + dead + expired. No call pops for an ``external`` group.

    ``active_at`` is when the group was last used, to the minute. An ``idle`` group holds back neither retention nor max_depth.
    ``archived_seq`` is the last seq that an archive has reported as safe in its lake; None for a group that is no archive.
    The group began behind ``start_seq``, or was moved there last.
    """

    queue: QueueKey
    group: str
    progress_seq: Seq
    start_seq: Seq
    pushed: int
    completed: int
    pending: int
    in_flight: int
    dead: int
    expired: int
    retried: int
    partitions_pending: int
    partitions_leased: int
    oldest_at: Instant | None
    lag_seconds: float
    rates: Rates
    created_at: Instant
    external: bool = False
    active_at: Instant
    inactive_seconds: float
    idle: bool = False
    archived_seq: Seq | None = None

    @property
    def lag_messages(self) -> int:
        """How many messages the group has yet to settle."""
        return self.pending + self.in_flight


class ArchiveStats(Struct, frozen=True):
    """How far the archive of a queue is whose retention waits for it: the messages that are in no lake, and the age of the oldest.

    ``archived_seq`` is the last seq that is safe in a lake; None when no archive has reported yet.
    """

    archived_seq: Seq | None
    unarchived: int
    unarchived_seconds: float


class QueueStats(Struct, frozen=True, kw_only=True):
    """A queue's figures: its log, its scheduled messages, and every group's counters. ``gaps`` counts seqs without a message.

    ``archive`` is None unless retention waits for the archive.
    """

    queue: QueueKey
    first_seq: Seq
    last_seq: Seq
    depth: int
    scheduled: int
    dead_letters: int
    in_flight: int
    oldest_age_seconds: float
    rates: Rates
    groups: list[GroupStats]
    gaps: int = 0
    archive: ArchiveStats | None = None


class PartitionStats(Struct, frozen=True, kw_only=True):
    """A partition with messages that one group has not settled. ``last_error`` is the last error of its first message."""

    queue: QueueKey
    group: str
    partition: str
    pending: int
    in_flight: int
    attempts: int
    oldest_at: Instant
    ready_at: Instant
    lease_deadline: Instant | None
    last_error: str | None = None
