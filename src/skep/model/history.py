"""The histories of a store: finished leases, retention passes, figures by the minute, events of traces."""

from __future__ import annotations

from msgspec import Struct

from skep.clock import Instant
from skep.ids import Id
from skep.model.dead_letter import DeadReason
from skep.model.queue import QueueKey, Seq


class RetentionPass(Struct, frozen=True, kw_only=True):
    """One row of the retention history."""

    queue: QueueKey
    at: Instant
    deleted: int
    first_seq: Seq
    settled_seq: Seq


class FinishedLease(Struct, frozen=True, kw_only=True):
    """One row of the lease history: a lease that ended, and how."""

    queue: QueueKey
    group: str
    partition: str
    first_seq: Seq
    last_seq: Seq
    messages: int
    completed: int
    attempt: int
    leased_at: Instant
    settled_at: Instant
    outcome: str


class FailedAttempt(Struct, frozen=True, kw_only=True):
    """One failed delivery of a message. ``outcome`` is ``retried`` or ``dead``; ``consumer`` held the lease."""

    queue: QueueKey
    seq: Seq
    group: str
    attempt: int
    leased_at: Instant
    failed_at: Instant
    outcome: str
    error: str | None
    consumer: str | None = None


class LeaseTime(Struct, frozen=True):
    """How long the first message of a lease waited for its first delivery, and how long the consumer held the lease.

    ``wait_micros`` is None for a retry, and when the message is gone. ``held_micros`` is None when the consumer did not settle the lease.
    """

    group: str
    settled_at: Instant
    wait_micros: int | None
    held_micros: int | None


class Moment(Struct, frozen=True):
    """The counters of a queue or a whole tenant at an instant: totals since the start, and the ``depth`` (unsettled messages)."""

    at: Instant
    pushed: int
    completed: int
    retried: int
    dead: int
    depth: int


class Journey(Struct, frozen=True):
    """A message whose deliveries a caller wants to see: its place in the log, and its time."""

    queue: QueueKey
    partition: str
    seq: Seq
    created_at: Instant


class TraceEvent(Struct, frozen=True, kw_only=True):
    """An event of a trace, as a worker reported it. ``data`` is a JSON object."""

    trace_id: Id
    name: str
    data: bytes
    at: Instant
    message_id: Id | None = None
    queue: str | None = None
    position: int = 0


class TraceName(Struct, frozen=True):
    """A name of trace events, and the time of the latest event with this name."""

    name: str
    last_at: Instant


class Death(Struct, frozen=True):
    """The reason of a dead letter, without its message."""

    seq: Seq
    source_queue: str
    group: str
    reason: DeadReason
    error: str | None
    attempts: int
    failed_at: Instant


class ReplayRecord(Struct, frozen=True, kw_only=True):
    """One row of the replay history: a dead letter, and the new message that its replay made.

    ``queue`` is None when that message's queue was deleted since; ``reason`` and ``attempts`` are None where they were not recorded.
    """

    dead_seq: Seq
    dead_id: Id
    queue: str | None
    seq: Seq
    id: Id
    group: str
    reason: DeadReason | None
    error: str | None
    attempts: int | None
    replayed_at: Instant
