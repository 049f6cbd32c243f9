"""Leasing messages."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

from skep.clock import Instant
from skep.model import PopRequest, PopResult, PushBatch, PushOutcome, Settlement, SettleResult

if TYPE_CHECKING:  # the extra `arrow` need not be installed
    pass


class PopVerbs(Protocol):
    """Leases messages, alone or in the transaction that makes them ready."""

    async def pop(self, requests: Sequence[PopRequest], now: Instant) -> list[PopResult]:
        """Lease messages for each request in turn. An unknown queue is QUEUE_NOT_FOUND; a paused one gives nothing."""

    async def push_and_pop(
        self, batches: Sequence[PushBatch], requests: Sequence[PopRequest], now: Instant, create_queues: bool = True
    ) -> tuple[list[PushOutcome], list[PopResult | None]]:
        """As `push`, and then as `pop` for those who wait for it, in one transaction where that is cheaper.

        None where nobody looked: its caller pops by itself.
        """

    async def settle_and_pop(
        self, settlements: Sequence[Settlement], requests: Sequence[PopRequest], now: Instant
    ) -> tuple[list[SettleResult], list[PopResult | None]]:
        """As `settle`, and then as `pop` for those who wait for what that frees, in one transaction where that is cheaper.

        None where nobody looked: its caller pops by itself, if something was freed.
        """
