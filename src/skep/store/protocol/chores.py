"""Chores: bounded passes that the engine's timers run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from skep.clock import Instant
from skep.model import QueueKey
from skep.model.upkeep import Chore

if TYPE_CHECKING:  # the extra `arrow` need not be installed
    pass


class ChoreVerbs(Protocol):
    """The upkeep of queues and of the store."""

    async def promote(self, key: QueueKey, now: Instant, limit: int) -> Chore:
        """Let scheduled messages that are due enter the log, oldest due first."""

    async def expire(self, key: QueueKey, now: Instant, limit: int) -> Chore:
        """Settle messages past max_age or max_wait, and bury those whose attempts ran out with their lease."""

    async def retain(self, key: QueueKey, now: Instant, limit: int) -> Chore:
        """Delete from the head of the log what retention and clearing allow; adds a retention history row."""

    async def put_right(self, now: Instant, limit: int) -> Chore:
        """Note the time. When it has gone back since it was last noted, put right what was written ahead of it.

        Deadlines are moved in the pass that notices. Stamps, of up to ``limit`` messages a pass, are put right when the clock has
        gone on for ten minutes since.
        """

    async def sample(self, now: Instant) -> None:
        """Note the counters of queues and groups that changed since the last look, for rates and charts.

        In pieces, each a short transaction of its own: callers come in between.
        """

    async def sweep(self, now: Instant, limit: int) -> Chore:
        """Remove what has aged out: deduplication keys, receipts, histories, samples, and the data of deleted queues."""

    async def maintain(self) -> None:
        """The store's own upkeep (compaction, checkpoints); safe at any time."""
