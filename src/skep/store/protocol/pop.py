"""Pops: leases (visibility timeouts) on messages."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from skep.clock import Instant
from skep.model import PopRequest, PopResult, PushBatch, PushOutcome, Settlement, SettleResult


class PopVerbs(Protocol):
    """Verbs that lease messages, alone or in the transaction that makes them ready."""

    async def pop(self, requests: Sequence[PopRequest], now: Instant) -> list[PopResult]:
        """Lease messages for each request in turn. An unknown queue is QUEUE_NOT_FOUND; a paused one gives nothing."""

    async def push_and_pop(
        self, batches: Sequence[PushBatch], requests: Sequence[PopRequest], now: Instant, create_queues: bool = True
    ) -> tuple[list[PushOutcome], list[PopResult | None]]:
        """Like `push`, then `pop` for waiting requests, in one transaction where that is cheaper.

        A result is None when the store did not look for it; the caller then pops by itself.
        """

    async def settle_and_pop(
        self, settlements: Sequence[Settlement], requests: Sequence[PopRequest], now: Instant
    ) -> tuple[list[SettleResult], list[PopResult | None]]:
        """Like `settle`, then `pop` for requests that wait for the freed messages, in one transaction where that is cheaper.

        A result is None when the store did not look for it; the caller then pops by itself, if messages were freed.
        """
