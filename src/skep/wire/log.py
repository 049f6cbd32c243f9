"""Bulk pushes and the raw log on the wire."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

from msgspec import Meta, Raw, Struct, field

from skep.wire.messages import QueueDepth

ARROW = "application/vnd.apache.arrow.stream"
MOST_QUEUES = 1_000
"""The most queues in one answer."""


class BulkPushResponse(Struct, rename="camel"):
    """The outcome of a bulk push: its messages have the seqs from ``firstSeq`` to ``lastSeq``, in their order."""

    pushed: bool
    count: int
    first_seq: int
    last_seq: int
    queues: dict[str, QueueDepth]


class LogBoundsResponse(Struct, rename="camel"):
    """The seqs a log holds, both inclusive; it is empty when ``firstSeq`` is ``lastSeq`` + 1.

    ``atSeq`` is the first seq at or after the time that was asked for (``lastSeq`` + 1 when there is none), ``throughSeq`` the
    last one that fits, ``progressSeq`` the progress of the group that was asked for (null when it does not read this queue). ``log`` names the log itself: it stays as long as the queue does. A queue that is deleted and
    created again has another number, so that seqs of the one are not taken for seqs of the other. ``forgotten`` is the position of
    the newest seqs that were forgotten for good, 0 without any.
    """

    queue: str
    first_seq: int
    last_seq: int
    last_created_at: datetime | None
    log: int
    at_seq: int | None = None
    through_seq: int | None = None
    progress_seq: int | None = None
    forgotten: int = 0


class LogsBoundsRequest(Struct, rename="camel", omit_defaults=True, forbid_unknown_fields=True, kw_only=True):
    """The queues whose bounds are wanted, and what else of each log.

    ``from`` has the seq to begin at for some of the queues; ``maxBytes`` is for each of them.
    """

    queues: Annotated[list[str], Meta(min_length=1, max_length=MOST_QUEUES)]
    at: datetime | None = None
    first: dict[str, int] = field(name="from", default_factory=dict)
    max_bytes: int | None = None
    consumer_group: str | None = None


class LogsBoundsResponse(Struct):
    """The bounds of the queues that exist, in the order of the request."""

    logs: list[LogBoundsResponse]


class LoggedMessage(Struct, rename="camel", gc=False):
    """A message as it stands in the log."""

    queue: str
    partition: str
    seq: int
    id: str
    transaction_id: str | None
    trace_id: str
    payload: Raw
    headers: Raw
    content_type: str | None
    priority: int
    created_at: datetime


class LogResponse(Struct):
    """A stretch of the log, in the order of seq."""

    messages: list[LoggedMessage]
