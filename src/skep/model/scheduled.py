"""Scheduled (delayed) messages as data, before they enter the log: how callers list and change them.

A scheduled message has a place: its due time, then its arrival number. Arrival numbers rise in the order in which messages are
scheduled, and a message that is moved to another time gets a new one. So the greatest arrival number is a mark: a change with the
mark of an earlier count touches no message that was not counted.
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
"""How many scheduled messages one call walks over at most."""
STEP_BYTES = 8 * 1024 * 1024
"""A step that changes or promotes messages ends at this many bytes, as pushes wait while it runs."""


class ScheduledPosition(NamedTuple):
    """The place of a scheduled message: its due time, then its arrival number."""

    due_at: int
    arrival: int


class ScheduledFilter(Struct, frozen=True, kw_only=True):
    """A filter of a tenant's scheduled messages; a field that is None does not narrow it. ``due_before`` is exclusive.

    With a ``mark``, messages that were scheduled or moved after the mark was taken do not match.
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
        """The queue of the filter, which must be set."""
        assert self.queue is not None
        return QueueKey(self.queue, self.tenant)

    def start(self, after: ScheduledPosition | None) -> ScheduledPosition:
        """The place that a walk starts after."""
        return max(
            after or ScheduledPosition(-1, 0), ScheduledPosition(-1 if self.due_after is None else self.due_after, 0)
        )

    @property
    def end(self) -> int:
        """The due time that a walk ends before."""
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
        """Whether this message matches the filter."""
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
    """A scheduled message; ``payload`` is cut to the size of the requested preview."""

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
        """Always 0, as a scheduled message has no seq yet. Decryption reads this field of every message."""
        return Seq(0)


class ScheduledPage(Struct, frozen=True):
    """A page in the order of due times. A short page may not be the last; ``after`` is None on the last page."""

    messages: list[ScheduledMessage]
    after: ScheduledPosition | None


class ScheduledCount(Struct, frozen=True):
    """How many messages of one bounded walk match. ``after``: where the next walk starts, None when all were counted."""

    count: int
    after: ScheduledPosition | None


class Change(StrEnum):
    """A change of scheduled messages: remove them, let them enter the log now, or give them another time; or forget them.

    A cancelled message leaves its deduplication key behind, a forgotten one does not.
    """

    CANCEL = "cancel"
    RUN = "run"
    MOVE = "move"
    FORGET = "forget"


class Changed(Struct, frozen=True):
    """A scheduled message that was changed; ``seq`` is its place in the log if it entered the log."""

    id: Id
    seq: Seq | None = None


class ScheduledChange(Struct, frozen=True):
    """The messages that one bounded step changed. ``after``: where the next step starts, None when no message is left."""

    changed: list[Changed]
    after: ScheduledPosition | None


class Walk(Struct, frozen=True):
    """Candidate messages in the order of due times; ``end`` is where the walk was cut off, None when it is complete."""

    found: list[ScheduledRow]
    end: ScheduledPosition | None

    def step(self, wanted: ScheduledFilter, limit: int) -> tuple[list[ScheduledRow], ScheduledPosition | None]:
        """The matching messages that one transaction changes, and the place to go on. `STEP_BYTES` end a step, too."""
        return self.page(wanted, limit, STEP_BYTES)

    def page(
        self, wanted: ScheduledFilter, limit: int, most_bytes: float = inf
    ) -> tuple[list[ScheduledRow], ScheduledPosition | None]:
        """The messages that match, at most ``limit``, and the place to go on."""
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
    """How many rows one walk reads: one more than the page, or `WALK_ROWS` when the filter may drop rows."""
    named = wanted.transaction_id is not None or wanted.trace_id is not None or wanted.partition is not None
    return WALK_ROWS if named else min(WALK_ROWS, limit + 1)
