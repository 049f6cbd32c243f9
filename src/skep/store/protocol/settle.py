"""Settling and renewing what is leased."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

from skep.clock import Instant
from skep.model import Renewal, RenewResult, Settlement, SettleResult

if TYPE_CHECKING:  # the extra `arrow` need not be installed
    pass


class SettleVerbs(Protocol):
    """Answers of those who hold leases."""

    async def settle(self, settlements: Sequence[Settlement], now: Instant) -> list[SettleResult]:
        """Settle each message on its own merits; a refused one changes nothing and does not hinder the others.

        ACK_THROUGH completes what a lease, that is a token in a partition, has up to a seq and the call does not name: NOT_IN_LEASE
        when that is nothing.
        """

    async def renew(self, renewals: Sequence[Renewal], now: Instant) -> list[RenewResult]:
        """Move the deadline of each lease whose token is still good."""
