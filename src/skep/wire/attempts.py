"""The attempts of a message on the wire, and their consumers."""

from __future__ import annotations

from datetime import datetime

from msgspec import Struct


class ConsumerView(Struct, rename="camel"):
    """A consumer, by its header `Skep-Consumer`: the worker's name, its host, the version of its client, its process id."""

    name: str | None = None
    host: str | None = None
    version: str | None = None
    pid: str | None = None


class AttemptView(Struct, rename="camel"):
    """One delivery of a message to a group. ``endedAt`` is null while its lease lasts, which is until ``leaseDeadline``.

    ``outcome`` is `completed`, `retried`, `dead`, `expired` (the lease ran out), `released` (it reached nobody), `returned` (another
    message of its lease failed, and it comes again) or `in_flight`. ``error`` is why it failed, cut to 4 KiB. ``messages`` is
    the number of messages in its lease, ``consumer`` its holder; null when unknown, and for an attempt that ended without failure.
    """

    consumer_group: str
    attempt: int
    outcome: str
    leased_at: datetime
    ended_at: datetime | None
    lease_deadline: datetime | None
    messages: int
    error: str | None
    consumer: ConsumerView | None


class AttemptsResponse(Struct):
    """The attempts of a message over all groups, in the order in which they began."""

    queue: str
    seq: int
    attempts: list[AttemptView]
