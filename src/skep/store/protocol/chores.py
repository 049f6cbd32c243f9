"""Chores: bounded passes that the engine's timers run."""

from __future__ import annotations

from typing import Protocol

from skep.clock import Instant
from skep.model import QueueKey
from skep.model.chores import Chore


class ChoreVerbs(Protocol):
    """The chores of queues and of the store."""

    async def promote(self, key: QueueKey, now: Instant, limit: int) -> Chore:
        """Let scheduled messages that are due enter the log, oldest due first."""

    async def expire(self, key: QueueKey, now: Instant, limit: int) -> Chore:
        """Settle messages past max_age or max_wait, and bury those whose attempts ran out with their lease."""

    async def retain(self, key: QueueKey, now: Instant, limit: int) -> Chore:
        """Delete messages from the head of the log, as far as retention and clearing allow. The history notes passes with a change."""

    async def put_right(self, now: Instant, limit: int) -> Chore:
        """Note the time. If the clock was put back since the last note, correct deadlines and stamps that are ahead of it.

        The pass that notices it moves deadlines. Stamps are corrected after the clock has run on for ten minutes, up to ``limit``
        messages a pass.
        """

    async def sample(self, now: Instant) -> None:
        """Sample the counters of queues and groups that changed since the last sample, for rates and charts.

        It works in pieces, each a short transaction of its own, so that other calls come in between.
        """

    async def sweep(self, now: Instant, limit: int) -> Chore:
        """Remove expired deduplication keys, receipts, sessions and staged chunks, old histories and samples, and the data of deleted queues."""

    async def maintain(self) -> None:
        """The store's own chores (compaction, checkpoints); safe at any time."""
