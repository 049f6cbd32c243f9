"""What a store does with scheduled messages before they enter the log. Reached as ``store.scheduled``.

Each verb is one transaction and bounded. Whoever changes a schedule holds the lock of its queue's log, as the chore does that
lets due messages enter it (`Store.promote`): a message is promoted, cancelled or moved, and never two of these.
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
    """Each verb is QUEUE_NOT_FOUND when the filter names a queue that is not there."""

    async def page(
        self, wanted: ScheduledFilter, after: ScheduledPosition | None, limit: int, preview_bytes: int | None
    ) -> ScheduledPage:
        """A page in the order of time. It may be short, or empty with ``after`` set: the walk per call is bounded."""

    async def count(self, wanted: ScheduledFilter, after: ScheduledPosition | None) -> ScheduledCount:
        """How many fit, as far as one bounded walk goes."""

    async def mark(self, key: QueueKey) -> int:
        """The arrival up to which the messages of a queue are there; all that are scheduled or moved later come after it."""

    async def change(
        self,
        wanted: ScheduledFilter,
        what: Change,
        deliver_at: Instant | None,
        after: ScheduledPosition | None,
        limit: int,
        now: Instant,
    ) -> ScheduledChange:
        """Cancel, run, or move to ``deliver_at`` at most so many of those that fit, in the order of time.

        The deduplication key of a cancelled message stays. What runs enters the log in the order of time; what is moved
        arrives anew.
        """
