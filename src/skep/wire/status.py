"""The status of queues and of the server on the wire, for dashboards and alarms."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum

from msgspec import Struct

from skep.model import Rates
from skep.wire.attempts import ConsumerView
from skep.wire.groups import GroupFigures
from skep.wire.queues import Overview


class Concern(StrEnum):
    """The kind of a warning."""

    OLD = "old"
    PAUSED = "paused"
    NEARLY_FULL = "nearly_full"


class Warned(Struct):
    """A warning about a queue, with the reason in a sentence."""

    queue: str
    concern: Concern
    message: str


class Verdict(StrEnum):
    """The state of the tenant in one word."""

    OK = "ok"
    ATTENTION = "attention"


class FailedCalls(Struct):
    """Calls of the last minute that were refused for now (429) or failed (5xx), by the code of their error."""

    code: str
    calls: int


class StatusResponse(Struct, rename="camel"):
    """The status of a tenant. ``failed_calls`` are of the tenant, or of all tenants for a key that may read all of them."""

    status: Verdict
    warnings: list[Warned]
    totals: Overview
    failed_calls: list[FailedCalls] = []


class QueueStatus(Struct, rename="camel"):
    """The status of a queue."""

    queue: str
    paused: bool
    holds_dead_letters: bool
    depth: int
    max_depth: int
    scheduled: int
    in_flight: int
    dead_letters: int
    oldest_age_seconds: float
    groups: int
    rates: Rates


class QueueStatusesResponse(Struct):
    """A page by name; ``after`` is where the next one starts, null when there is none."""

    queues: list[QueueStatus]
    after: str | None


class QueueStatusDetail(Struct):
    """The status of a queue, and of each of its groups."""

    status: QueueStatus
    groups: list[GroupFigures]


class PartitionStatus(Struct, rename="camel"):
    """A partition with unsettled messages. ``attempts`` are those of the message it waits for,
    ``lastError`` is why that failed last.

    ``pending`` counts the messages that the group has discovered; it discovers the others as it pops.
    """

    queue: str
    consumer_group: str
    partition: str
    pending: int
    in_flight: int
    attempts: int
    oldest_at: datetime
    oldest_age_seconds: float
    ready_at: datetime
    lease_deadline: datetime | None
    last_error: str | None = None


class PartitionsResponse(Struct):
    """A page by name; ``after`` is where the next one starts, null when there is none."""

    partitions: list[PartitionStatus]
    after: str | None


class StuckResponse(Struct):
    """Stuck partitions, the worst first; not ``complete`` when there is more to look at than one look takes in."""

    partitions: list[PartitionStatus]
    complete: bool


class LiveLease(Struct, rename="camel"):
    """A live lease of the messages from ``firstSeq`` to ``lastSeq``. ``consumer`` is its holder, if the pop named one."""

    queue: str
    consumer_group: str
    partition: str
    messages: int
    first_seq: int
    attempts: int
    leased_at: datetime
    lease_deadline: datetime
    remaining_seconds: float
    last_seq: int = 0
    consumer: ConsumerView | None = None


class LeasesResponse(Struct):
    """The leases that run out first."""

    leases: list[LiveLease]


class Utilisation(Struct, rename="camel"):
    """The share of unsettled messages that consumers work on: ``share`` is leased over leased and pending, 0 when idle."""

    queue: str
    consumer_group: str
    partitions_leased: int
    partitions_pending: int
    share: float


class UtilisationResponse(Struct):
    """By queue and group; ``after`` is the queue after which the next page starts, null when there is none."""

    utilisation: list[Utilisation]
    after: str | None


class RetentionRun(Struct, rename="camel"):
    """A pass of retention: all messages below ``firstSeq`` are deleted."""

    at: datetime
    deleted: int
    first_seq: int
    settled_seq: int


class RetentionResponse(Struct):
    """The latest passes, newest first."""

    queue: str
    passes: list[RetentionRun]


class EndedLease(Struct, rename="camel"):
    """A lease that ended, and how."""

    position: int
    consumer_group: str
    partition: str
    first_seq: int
    last_seq: int
    messages: int
    completed: int
    attempt: int
    leased_at: datetime
    settled_at: datetime
    outcome: str


class LeaseHistoryResponse(Struct):
    """A page, in the order in which the leases ended; ``after`` is where the next one starts, null when there is none."""

    queue: str
    leases: list[EndedLease]
    after: int | None


class SpoolStatus(Struct, rename="camel"):
    """The spool of a server process on its disk: ``state`` is up, away or draining. Counts are of messages, since it started."""

    enabled: bool
    state: str
    pending: int
    flushed: int
    failed: int
    bytes: int
    max_bytes: int
    oldest_age_seconds: float
    away_seconds: float


class BufferStatus(Struct):
    """The pushes that a server process holds in memory (QoS 0). Counts are of messages, since it started."""

    pending: int
    bytes: int
    flushed: int
    lost: int


class BuffersResponse(Struct):
    """The messages that the answering process has taken and not stored yet: on its disk, and in its memory."""

    spool: SpoolStatus
    qos0: BufferStatus
