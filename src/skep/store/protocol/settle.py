"""Settling leased messages and renewing leases."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from skep.clock import Instant
from skep.model import Renewal, RenewResult, Settlement, SettleResult


class SettleVerbs(Protocol):
    """The calls of lease holders: settlements and renewals."""

    async def settle(self, settlements: Sequence[Settlement], now: Instant) -> list[SettleResult]:
        """Settle each message by itself; a refused settlement changes nothing and does not affect the others.

        ACK_THROUGH completes the messages of a lease (a token in a partition) up to a seq that the call does not name: NOT_IN_LEASE
        when there are none.
        """

    async def renew(self, renewals: Sequence[Renewal], now: Instant) -> list[RenewResult]:
        """Move the deadline of each lease whose token is still valid."""
