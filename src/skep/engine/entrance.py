"""Which way a push goes: the one place that decides it, so that the order within a partition is decided in one place.

A batch goes one way as a whole (I15). By the time it comes here it has been checked and has its ids, so whatever happens to it
later, it is the same messages.
"""

from __future__ import annotations

from skep.engine.across import AcrossQueues
from skep.engine.registry import Registry
from skep.engine.validate import Weight
from skep.model import PushBatch, PushOutcome


class Entrance:
    """Takes a push that was checked, and brings it where it belongs now."""

    def __init__(self, registry: Registry, across: AcrossQueues) -> None:
        self._registry = registry
        self._across = across

    async def push(self, batch: PushBatch, weight: Weight) -> PushOutcome:
        """Bring a batch in, whole or not at all."""
        return await self._direct(batch, weight)

    async def _direct(self, batch: PushBatch, weight: Weight) -> PushOutcome:
        """Into the log, in the lane of its queue."""
        if weight.queue is not None:
            return await self._registry.get(weight.queue).push(batch, weight.size_bytes, weight.deliver_at)
        return await self._across.push(batch, weight.size_bytes, weight.deliver_at)
