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
    """A group's account. I12: pushed = completed + pending + in_flight + dead + expired. Nobody pops for an external one.

    ``active_at`` is when somebody last used it, to the minute. An ``idle`` one holds back neither retention nor max_depth.
    """

    queue: QueueKey
    group: str
    progress_seq: Seq
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

    @property
    def lag_messages(self) -> int:
        """How many messages the group has yet to settle."""
        return self.pending + self.in_flight


class QueueStats(Struct, frozen=True, kw_only=True):
    """A queue's figures: its log, what waits to enter it, and every group's account. ``gaps`` are seqs without a message."""

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


class PartitionStats(Struct, frozen=True, kw_only=True):
    """A partition with unsettled messages, as one group sees it. ``last_error`` is why its first one failed last."""

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
