"""Listing and ending leases."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from skep.clock import Instant
from skep.model import LeasedMessage, LeaseFilter, LeaseInfo, QueueKey, Token
from skep.model.history import FinishedLease


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

    async def leased_messages(self, wanted: Sequence[LeaseFilter], now: Instant) -> list[list[LeasedMessage]]:
        """For each filter the unsettled messages under live leases, by partition and seq; none when queue or group is unknown.

        A lease may end right after. So whoever settles what is found here does it with the token, which fences the settlement.
        """

    async def end_leases(self, key: QueueKey, group: str, partition: str, now: Instant) -> int:
        """Let the leases of a partition run out now; returns how many."""

    async def release_lease(self, key: QueueKey, group: str, partition: str, token: Token, now: Instant) -> int:
        """Let the leases of a token run out now, and fence the token: its settlements are refused (I6). Returns how many.

        Like any lease that ran out, the delivery counts as an attempt.
        """

    async def lease_history(
        self, key: QueueKey, after: int = 0, limit: int = 1000, since: Instant | None = None
    ) -> list[tuple[int, FinishedLease]]:
        """Finished leases with their positions in the history: after position ``after``, ended at or after ``since``.

        Leases that ended before ``since`` are not read, however long the history is.
        """
