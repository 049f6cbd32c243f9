"""What a store remembers of the past: leases that ended, passes of retention, figures by the minute, events of traces."""

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
    """One delivery of a message that did not end well. ``outcome`` is ``retried`` or ``dead``; ``consumer`` is who held it."""

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
    """How long a lease's first message had waited when it was first delivered, and how long a consumer held it until it settled.

    None for another attempt, or one that was not settled by its consumer; the wait, also when the message is gone.
    """

    group: str
    settled_at: Instant
    wait_micros: int | None
    held_micros: int | None


class Moment(Struct, frozen=True):
    """How many messages there had been in all at an instant, of a queue or of a whole tenant, and how many were to do."""

    at: Instant
    pushed: int
    completed: int
    retried: int
    dead: int
    depth: int


class Journey(Struct, frozen=True):
    """A message whose deliveries are wanted: where it is, and since when."""

    queue: QueueKey
    partition: str
    seq: Seq
    created_at: Instant


class TraceEvent(Struct, frozen=True, kw_only=True):
    """Something that happened on the way of a trace, as a worker tells it. ``data`` is a JSON object."""

    trace_id: Id
    name: str
    data: bytes
    at: Instant
    message_id: Id | None = None
    queue: str | None = None
    position: int = 0


class TraceName(Struct, frozen=True):
    """A name that events of traces have, and when one last had it."""

    name: str
    last_at: Instant


class Death(Struct, frozen=True):
    """Why a message is a dead letter, without the message."""

    seq: Seq
    source_queue: str
    group: str
    reason: DeadReason
    error: str | None
    attempts: int
    failed_at: Instant


class ReplayRecord(Struct, frozen=True, kw_only=True):
    """One row of the replay history: a dead letter that went back, and as which message.

    ``queue`` is None when the queue that it went to was deleted since; ``reason`` and ``attempts`` are None where nobody wrote them down.
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
