"""The figures of queues. Reads only."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from skep.clock import Instant
from skep.model import Queue, QueueKey, QueueStats


class StatsVerbs(Protocol):
    """Figures of queues and of their groups."""

    async def queue_stats(self, key: QueueKey, now: Instant) -> QueueStats:
        """A queue's figures."""

    async def stats_of(self, queues: Sequence[Queue], now: Instant) -> list[QueueStats | None]:
        """The figures of some queues in one read; None for a queue that is gone."""
