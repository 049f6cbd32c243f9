"""Queues as data: their keys, the bounds of their logs, and their depth."""

from __future__ import annotations

from enum import StrEnum
from typing import NewType

from msgspec import Struct

from skep.clock import Instant
from skep.errors import Code, SkepError
from skep.model.queue_settings import QueueSettings
from skep.model.record import DEFAULT_TENANT

Seq = NewType("Seq", int)
DEFAULT_PARTITION = "Default"
DEAD_LETTER_SUFFIX = ".dead"
NO_DEAD_LETTER_QUEUE = "none"
LOG_CHUNK = 5_000
"""How many messages of a log are read at once as columns. Cached chunks begin at the same seqs for all readers."""
WINDOW_CAP_FACTOR = 10
"""A window buffer holds a partition back for at most this many windows after its oldest message."""


class QueueKey(Struct, frozen=True, order=True, array_like=True):
    """The identity of a queue: its name and its tenant."""

    name: str
    tenant: str = DEFAULT_TENANT


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

    ``created_at`` is the queue's. A queue that was deleted and made again has a new log: its seqs (offsets) name other messages.
    ``forgotten`` is the position of the newest tombstone: it rises when messages are forgotten for good.
    """

    first_seq: Seq
    last_seq: Seq
    last_at: Instant | None
    created_at: Instant
    forgotten: int = 0


class ClearScope(StrEnum):
    """The messages that `clear` removes: pending ones, scheduled ones, or all, including leased ones."""

    PENDING = "pending"
    SCHEDULED = "scheduled"
    ALL = "all"


class Cleared(Struct, frozen=True):
    """How many messages a clear removed: from the log, and from the schedule."""

    pending: int
    scheduled: int


def no_queue(name: str, *, makes_queues: bool = True) -> SkepError:
    """The error for a queue that does not exist. Where pushes do not create queues, the text for a push says so."""
    cure = (
        "the first push makes it, or skep queue create"
        if makes_queues
        else "pushes make none here, so make it first: skep queue create"
    )
    return SkepError(Code.QUEUE_NOT_FOUND, f"there is no queue {name!r}: {cure} {name}", queue=name)
