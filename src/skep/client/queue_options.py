"""The settings of a queue as keyword arguments; docs/settings.md says what each means."""

from __future__ import annotations

from typing import Literal, TypedDict

from msgspec.structs import fields

from skep.model import Ordering, QueueSettings


class QueueOptions(TypedDict, total=False):
    """Settings that are not given stay as they are; those of a new queue are the defaults that are shown."""

    namespace: str | None
    task: str | None
    priority: int
    ordering: Ordering | Literal["per_key", "fifo", "unordered"]
    lease_seconds: float
    max_attempts: int
    initial_backoff_ms: int
    max_backoff_ms: int
    dead_letter_queue: str | None
    max_depth: int
    max_age_seconds: float
    retention_seconds: float
    completed_retention_seconds: float
    retention_ignores_groups: bool
    group_idle_seconds: float
    delayed_processing_seconds: float
    window_buffer_seconds: float
    max_wait_seconds: float
    dedup_window_seconds: float
    paused: bool
    encryption_enabled: bool


QUEUE_DEFAULTS = {field.name: field.default for field in fields(QueueSettings)}
