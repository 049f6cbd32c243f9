"""The pace of queues and their consumers, on the wire."""

from __future__ import annotations

from datetime import datetime

from msgspec import Struct

from skep.wire.attempts import ConsumerView


class DurationsView(Struct):
    """Percentiles (p50, p95, p99) in seconds; ``count`` is the number of values."""

    count: int
    p50: float
    p95: float
    p99: float


class GroupTiming(Struct, rename="camel"):
    """How long messages wait for a group (``wait``), and how long its consumers hold them until they settle (``handler``).

    Null where nothing is known.
    """

    consumer_group: str
    wait: DurationsView | None
    handler: DurationsView | None


class PaceResponse(Struct, rename="camel"):
    """How a queue keeps up. ``sentence`` says the rates in and out, and the bottleneck.

    ``trend`` is `growing`, `shrinking`, `steady` or `empty`; ``cause`` is `none`, `paused`, `no_consumers`, `failing`, `blocked` or
    `slow_handler`, of the group that is furthest behind, ``consumerGroup``. Times are those of the newest 2,000 leases that ended
    in the last hour.
    """

    queue: str
    sentence: str
    trend: str
    cause: str
    consumer_group: str | None
    timings: list[GroupTiming]


class ConnectedConsumer(Struct, rename="camel"):
    """A consumer that waits, popped in the last five minutes, or holds leases. ``queue`` is null when it pops a namespace or task."""

    queue: str | None
    consumer_group: str
    consumer: ConsumerView | None
    waiting: int
    leases: int
    messages: int
    last_seen_at: datetime


class ConsumersResponse(Struct):
    """By queue, group and name. Those that wait are of the server process that answers; leases are of all."""

    consumers: list[ConnectedConsumer]
