"""Scheduled messages in a store, before they enter the log. Reached as ``store.scheduled``.

Each verb is one bounded transaction. A change of a schedule holds the lock of the queue's log; so does the chore that lets due
messages enter the log (`Store.promote`). So a message is promoted, cancelled or moved, and never two of these.
"""

from __future__ import annotations

from typing import Protocol

from skep.clock import Instant
from skep.model import QueueKey
from skep.model.scheduled import (
    Change,
    ScheduledChange,
    ScheduledCount,
    ScheduledFilter,
    ScheduledPage,
    ScheduledPosition,
)


class ScheduledStore(Protocol):
    """Scheduled messages. Each verb raises QUEUE_NOT_FOUND when the filter names a queue that does not exist."""

    async def page(
        self, wanted: ScheduledFilter, after: ScheduledPosition | None, limit: int, preview_bytes: int | None
    ) -> ScheduledPage:
        """A page in the order of time. It may be short, or empty with ``after`` set: the walk per call is bounded."""

    async def count(self, wanted: ScheduledFilter, after: ScheduledPosition | None) -> ScheduledCount:
        """How many messages of one bounded walk match the filter."""

    async def mark(self, key: QueueKey) -> int:
        """The greatest arrival number of a queue now. Messages that are scheduled or moved later get greater ones."""

    async def change(
        self,
        wanted: ScheduledFilter,
        what: Change,
        deliver_at: Instant | None,
        after: ScheduledPosition | None,
        limit: int,
        now: Instant,
    ) -> ScheduledChange:
        """Cancel, run, forget, or move to ``deliver_at`` at most ``limit`` matching messages, in the order of due times.

        The deduplication key of a cancelled message stays, that of a forgotten one goes. Messages that run enter the log in the order of due times. A moved
        message gets a new arrival number.
        """
