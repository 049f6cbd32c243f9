"""Leases, seen from outside."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from skep.clock import Instant
from skep.model import LeaseInfo, QueueKey, Token
from skep.model.history import FinishedLease

if TYPE_CHECKING:  # the extra `arrow` need not be installed
    pass


class LeaseVerbs(Protocol):
    """Live leases and finished ones."""

    async def leases(
        self,
        tenant: str,
        now: Instant,
        key: QueueKey | None = None,
        expiring_before: Instant | None = None,
        limit: int = 100,
    ) -> list[LeaseInfo]:
        """Live leases by deadline; with ``expiring_before`` those about to run out."""

    async def end_leases(self, key: QueueKey, group: str, partition: str, now: Instant) -> int:
        """Let the leases of a partition run out now, whoever holds them; how many did."""

    async def release_lease(self, key: QueueKey, group: str, partition: str, token: Token, now: Instant) -> int:
        """Let the leases under a token run out now, and fence it: nothing that is said with it counts any more (I6). How many did.

        They count as any that ran out: the delivery was an attempt.
        """

    async def lease_history(
        self, key: QueueKey, after: int = 0, limit: int = 1000, since: Instant | None = None
    ) -> list[tuple[int, FinishedLease]]:
        """Finished leases with their position in the history, those after ``after`` that ended at or after ``since``.

        What ended before ``since`` is not walked over, however long the history is.
        """
