"""Queues as data: their names, their settings, how far their logs go, and figures about them."""

from __future__ import annotations

from enum import StrEnum
from typing import NewType

import msgspec
from msgspec import UNSET, Struct, UnsetType

from skep.clock import Instant
from skep.model.record import DEFAULT_TENANT

Seq = NewType("Seq", int)
DEFAULT_PARTITION = "Default"
DEAD_LETTER_SUFFIX = ".dead"
NO_DEAD_LETTER_QUEUE = "none"
LOG_CHUNK = 5_000
"""Messages of a log that are read at once as columns, and begin at the same seqs for all readers where they are kept."""
WINDOW_CAP_FACTOR = 10
"""A window buffer holds a partition back for at most this many windows after its oldest message."""


class Ordering(StrEnum):
    """What is kept in order: each partition, the whole queue as one partition, or nothing."""

    PER_KEY = "per_key"
    FIFO = "fifo"
    UNORDERED = "unordered"


class QueueKey(Struct, frozen=True, order=True, array_like=True):
    """What a queue is known by; the tenant is part of its identity."""

    name: str
    tenant: str = DEFAULT_TENANT


class QueueSettings(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """All settings of a queue with their defaults. Zero means "no limit", "keep" or "off" where that makes sense."""

    namespace: str | None = None
    task: str | None = None
    priority: int = 0
    ordering: Ordering = Ordering.PER_KEY
    lease_seconds: float = 300.0
    max_attempts: int = 3
    initial_backoff_ms: int = 1000
    max_backoff_ms: int = 60_000
    dead_letter_queue: str | None = None
    max_depth: int = 0
    max_age_seconds: float = 0.0
    retention_seconds: float = 0.0
    completed_retention_seconds: float = 0.0
    retention_ignores_groups: bool = False
    group_idle_seconds: float = 0.0
    delayed_processing_seconds: float = 0.0
    window_buffer_seconds: float = 0.0
    max_wait_seconds: float = 0.0
    dedup_window_seconds: float = 86_400.0
    paused: bool = False
    encryption_enabled: bool = False


class QueueChanges(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """An update of settings: only what is given changes."""

    namespace: str | None | UnsetType = UNSET
    task: str | None | UnsetType = UNSET
    priority: int | UnsetType = UNSET
    ordering: Ordering | UnsetType = UNSET
    lease_seconds: float | UnsetType = UNSET
    max_attempts: int | UnsetType = UNSET
    initial_backoff_ms: int | UnsetType = UNSET
    max_backoff_ms: int | UnsetType = UNSET
    dead_letter_queue: str | None | UnsetType = UNSET
    max_depth: int | UnsetType = UNSET
    max_age_seconds: float | UnsetType = UNSET
    retention_seconds: float | UnsetType = UNSET
    completed_retention_seconds: float | UnsetType = UNSET
    retention_ignores_groups: bool | UnsetType = UNSET
    group_idle_seconds: float | UnsetType = UNSET
    delayed_processing_seconds: float | UnsetType = UNSET
    window_buffer_seconds: float | UnsetType = UNSET
    max_wait_seconds: float | UnsetType = UNSET
    dedup_window_seconds: float | UnsetType = UNSET
    paused: bool | UnsetType = UNSET
    encryption_enabled: bool | UnsetType = UNSET

    def apply(self, settings: QueueSettings) -> QueueSettings:
        """The settings with these changes made."""
        given = {name: value for name in self.__struct_fields__ if (value := getattr(self, name)) is not UNSET}
        return msgspec.structs.replace(settings, **given)


class Queue(Struct, frozen=True, kw_only=True):
    """A queue as the store knows it. ``id`` is never used twice, even after the queue is deleted."""

    id: int
    key: QueueKey
    settings: QueueSettings
    holds_dead_letters: bool
    created_at: Instant
    updated_at: Instant


class Depth(Struct, frozen=True):
    """How full a queue is: unsettled by its slowest group, plus scheduled. ``remaining`` is None without a limit."""

    depth: int
    remaining: int | None


class LogBounds(Struct, frozen=True):
    """The seqs a log holds, both inclusive, and when its last message was appended; empty when first is last + 1.

    ``created_at`` is the queue's: a queue that was deleted and made anew has another log, whose seqs mean other messages.
    """

    first_seq: Seq
    last_seq: Seq
    last_at: Instant | None
    created_at: Instant


class ClearScope(StrEnum):
    """What `clear` removes: what waits, what is scheduled, or everything with the leases too."""

    PENDING = "pending"
    SCHEDULED = "scheduled"
    ALL = "all"


class Cleared(Struct, frozen=True):
    """How many messages were taken away: from the log, and from the schedule."""

    pending: int
    scheduled: int
