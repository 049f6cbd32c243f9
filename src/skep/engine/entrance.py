"""Which way a push goes: the one place that decides it, so that the order within a partition is decided in one place.

A batch goes one way as a whole (I15). By the time it comes here it has been checked and has its ids, so whatever happens to it
later, it is the same messages.
"""

from __future__ import annotations

from skep.clock import Clock
from skep.engine.across import AcrossQueues
from skep.engine.registry import Registry
from skep.engine.spooling.spool import Spool
from skep.engine.validate import Weight
from skep.errors import Code, SkepError
from skep.model import PushBatch, PushOutcome


class Entrance:
    """Takes a push that was checked, and brings it where it belongs now."""

    def __init__(self, registry: Registry, across: AcrossQueues, clock: Clock, spool: Spool | None = None) -> None:
        self._registry = registry
        self._across = across
        self._clock = clock
        self._spool = spool

    async def push(self, batch: PushBatch, weight: Weight) -> PushOutcome:
        """Bring a batch in, whole or not at all."""
        spool = self._spool
        if spool is None:
            return await self._direct(batch, weight)
        if spool.takes(batch):
            return await spool.push(batch)
        since = self._clock.now()
        try:
            return await self._direct(batch, weight)
        except SkepError as error:
            if error.code is not Code.STORE_UNAVAILABLE:
                raise
            # Nobody knows whether it was stored; the spool finds out when the store is back.
            return await spool.push_tried(batch, since)

    async def _direct(self, batch: PushBatch, weight: Weight) -> PushOutcome:
        """Into the log, in the lane of its queue."""
        if weight.queue is not None:
            return await self._registry.get(weight.queue).push(batch, weight.size_bytes, weight.deliver_at)
        return await self._across.push(batch, weight.size_bytes, weight.deliver_at)
