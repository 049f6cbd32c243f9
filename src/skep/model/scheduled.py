"""Scheduled messages as one sees and changes them, before they enter the log.

A message has a place among those that wait: when it is due, and its arrival. Arrivals rise in the order in which messages are
scheduled, and a message that is moved to another time arrives anew. So the greatest arrival so far is a mark: who counts and
then changes only what arrived up to the mark changes nothing that was not counted.
"""

from __future__ import annotations

from enum import StrEnum
from math import inf
from typing import NamedTuple

from msgspec import Struct

from skep.clock import Instant
from skep.ids import Id
from skep.model.queue import QueueKey, Seq

MARK_MAX = 2**63 - 1
DUE_MAX = 2**63 - 1

WALK_ROWS = 10_000
"""How many scheduled messages one look walks over at most."""
STEP_BYTES = 8 * 1024 * 1024
"""A step that changes or promotes messages ends once it has so many bytes of them: whoever pushes meanwhile waits for it."""


class ScheduledPosition(NamedTuple):
    """Where a message stands among those that wait: by the time when it is due, then by arrival."""

    due_at: int
    arrival: int


class ScheduledFilter(Struct, frozen=True, kw_only=True):
    """Which scheduled messages of a tenant are meant; what is None does not narrow. ``due_before`` is exclusive.

    With a ``mark`` those that were scheduled or moved after it was taken are not meant.
    """

    tenant: str
    queue: str | None = None
    ids: list[Id] | None = None
    partition: str | None = None
    transaction_id: str | None = None
    trace_id: Id | None = None
    due_after: Instant | None = None
    due_before: Instant | None = None
    mark: int | None = None

    @property
    def key(self) -> QueueKey:
        """The one queue that is meant."""
        assert self.queue is not None
        return QueueKey(self.queue, self.tenant)

    def start(self, after: ScheduledPosition | None) -> ScheduledPosition:
        """Behind which place to look."""
        return max(
            after or ScheduledPosition(-1, 0), ScheduledPosition(-1 if self.due_after is None else self.due_after, 0)
        )

    @property
    def end(self) -> int:
        """Before which time to look."""
        return DUE_MAX if self.due_before is None else self.due_before


class ScheduledRow(NamedTuple):
    """The filtered fields of a scheduled message; ``queue_id`` is internal, ``size_bytes`` is payload plus headers."""

    queue: str
    queue_id: int
    due_at: int
    arrival: int
    id: Id
    partition: str
    transaction_id: str | None
    trace_id: Id
    size_bytes: int

    @property
    def place(self) -> ScheduledPosition:
        return ScheduledPosition(self.due_at, self.arrival)

    def fits(self, wanted: ScheduledFilter) -> bool:
        """Whether a scheduled message matches the filter."""
        return (
            (wanted.queue is None or wanted.queue == self.queue)
            and (wanted.ids is None or self.id in wanted.ids)
            and (wanted.partition is None or wanted.partition == self.partition)
            and (wanted.transaction_id is None or wanted.transaction_id == self.transaction_id)
            and (wanted.trace_id is None or wanted.trace_id == self.trace_id)
            and (wanted.due_after is None or self.due_at >= wanted.due_after)
            and (wanted.due_before is None or self.due_at < wanted.due_before)
            and (wanted.mark is None or self.arrival <= wanted.mark)
        )


class ScheduledMessage(Struct, frozen=True, kw_only=True):
    """A message that waits for its time; ``payload`` is cut to the preview that was asked for."""

    queue: QueueKey
    place: ScheduledPosition
    id: Id
    partition: str
    transaction_id: str | None
    trace_id: Id
    headers: bytes | None
    content_type: str | None
    payload: bytes
    payload_bytes: int
    priority: int

    @property
    def deliver_at(self) -> Instant:
        """When it is due."""
        return Instant(self.place.due_at)

    @property
    def seq(self) -> Seq:
        """It has none yet: it stands beside messages of the log where those are opened."""
        return Seq(0)


class ScheduledPage(Struct, frozen=True):
    """A page in the order of time; it may be short and not the last. ``after`` None means that there is no more."""

    messages: list[ScheduledMessage]
    after: ScheduledPosition | None


class ScheduledCount(Struct, frozen=True):
    """How many fit within one bounded look, and where the next look starts; None when all were looked at."""

    count: int
    after: ScheduledPosition | None


class Change(StrEnum):
    """What becomes of scheduled messages: they go, they enter the log now, or they get another time."""

    CANCEL = "cancel"
    RUN = "run"
    MOVE = "move"


class Changed(Struct, frozen=True):
    """A scheduled message that was changed; ``seq`` is its place in the log when it entered that."""

    id: Id
    seq: Seq | None = None


class ScheduledChange(Struct, frozen=True):
    """What one bounded step changed, and where the next one starts; None when nothing is left to look at."""

    changed: list[Changed]
    after: ScheduledPosition | None


class Walk(Struct, frozen=True):
    """What may fit, in the order of time; ``end`` is where the walk was cut off, None when it came to an end of its own."""

    found: list[ScheduledRow]
    end: ScheduledPosition | None

    def step(self, wanted: ScheduledFilter, limit: int) -> tuple[list[ScheduledRow], ScheduledPosition | None]:
        """The messages that one transaction changes, and the place to go on. Enough bytes end a page, too."""
        return self.page(wanted, limit, STEP_BYTES)

    def page(
        self, wanted: ScheduledFilter, limit: int, most_bytes: float = inf
    ) -> tuple[list[ScheduledRow], ScheduledPosition | None]:
        """Those that fit, at most so many, and where to go on."""
        fitting: list[ScheduledRow] = []
        for index, one in enumerate(self.found):
            if one.fits(wanted):
                fitting.append(one)
                most_bytes -= one.size_bytes
            if len(fitting) == limit or most_bytes <= 0:
                is_last = index == len(self.found) - 1 and self.end is None
                return fitting, None if is_last else one.place
        return fitting, self.end


def walk_rows(wanted: ScheduledFilter, limit: int) -> int:
    """How many rows one walk reads: one more than the page where all of them fit, as a rule."""
    named = wanted.transaction_id is not None or wanted.trace_id is not None or wanted.partition is not None
    return WALK_ROWS if named else min(WALK_ROWS, limit + 1)
