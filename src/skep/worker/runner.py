"""The work of one queue of a spec, for each tenant in turn: a function, a delivery, an entity command, or only follow-up messages.

A chain that waits for its rate limit or its endpoint keeps its lease and gives its slot to another. Commands of the entity store are
not done chain by chain but in whole batches, each one transaction, unless they are rate limited.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial

from skep.client import calls
from skep.client.worker.failing import FailedMessage
from skep.client.worker.loop import Chain, ConsumerLoop, MessageStart
from skep.client.worker.source import Source
from skep.clock import Clock, Instant
from skep.entities import PERMANENT
from skep.errors import SkepError
from skep.runtime.token_bucket import TokenBuckets
from skep.spec import off_loop
from skep.spec.ir import Fairness
from skep.wire.messages import AckStatus, PoppedMessage
from skep.worker.acks import given_up
from skep.worker.committing import Committing
from skep.worker.endpoints import Breaker
from skep.worker.execute import Execution
from skep.worker.plan import Plan

CONCURRENCY = 8
BATCH = 10
"""The defaults for functions and deliveries."""
COMMAND_CONCURRENCY = 2
COMMAND_BATCH = 500
"""The defaults for the entity store: concurrent batches, and messages of one batch."""


class Runner:
    """The work of one queue."""

    def __init__(self, plan: Plan, work: Committing | Execution, clock: Clock, stopping: asyncio.Event) -> None:
        self.plan = plan
        limit = plan.spec.rate_limit
        self._limiter = TokenBuckets(limit.count, limit.per_seconds) if limit is not None else None
        self._work = work
        self._clock = clock
        self.whole = work.run if isinstance(work, Committing) and self._limiter is None else None
        self._batch = plan.spec.batch or (COMMAND_BATCH if self.whole else BATCH)
        concurrency = plan.spec.concurrency or (COMMAND_CONCURRENCY if self.whole else CONCURRENCY)
        fair = plan.spec.fairness is Fairness.TENANT
        self.loop: ConsumerLoop[PoppedMessage] = ConsumerLoop(self, plan.queue, concurrency, clock, stopping, fair=fair)

    async def may_pop(self, source: Source) -> bool:
        """Whether the endpoint takes anything now: it does not rest, and is not being tried."""
        breaker = self._breaker(source)
        return breaker is None or (await breaker.rests_until() is None and not (breaker.probing and source.busy))

    async def pop(self, source: Source, free: int, wait_seconds: float) -> Sequence[PoppedMessage]:
        """Pop as many messages as can be begun. ``partitions`` of 0 means as many partitions as fill the batch."""
        batch, partitions = self._batch, free
        if self.whole:
            partitions = 0
        elif not self.plan.ordered:
            batch, partitions = min(batch, free), 0
        if (breaker := self._breaker(source)) is not None and breaker.probing:
            batch, partitions = 1, 1
        options: calls.PopOptions = {
            "batch": batch,
            "partitions": partitions,
            "lease_seconds": source.lease_seconds,
            "wait_seconds": wait_seconds,
        }
        return await source.pop(calls.pop(source.queue, options))

    def chain_key(self, message: PoppedMessage) -> object:
        """The key of a chain: one for the whole batch, one per lease, or one per message."""
        return None if self.whole else message.lease_id if self.plan.ordered else (message.lease_id, message.seq)

    async def begin(self, source: Source, message: PoppedMessage) -> MessageStart:
        """Wait for the rate limit, then while the endpoint rests."""
        if self._limiter is not None:
            try:
                key = await off_loop(partial(self.plan.limited_by, message))
            except SkepError as error:
                if error.code not in PERMANENT:
                    raise
                await source.settle(message, given_up(message, error), FailedMessage(message, str(error)))
                return MessageStart.GIVEN_UP
            steady = self._clock.steady()
            left = self._limiter.take(f"{source.tenant} {key}", steady) - steady
            if not await self.loop.held_until(Instant(self._clock.now() + left)):
                return MessageStart.NOT_YET
        breaker = self._breaker(source)
        while breaker is not None and (until := await breaker.rests_until()) is not None:
            if breaker.stopped or not await self.loop.held_until(until):
                return MessageStart.NOT_YET
        return MessageStart.NOW

    async def run(self, chain: Chain[PoppedMessage], message: PoppedMessage) -> bool:
        """Do a message and settle it."""
        if isinstance(self._work, Committing):
            await self._work.run(chain.source, [message])
            return False
        said = await self._work.run(chain.source, message)
        ended = said is None or said.status in (AckStatus.FAILED, AckStatus.RETRY)
        return ended and self.plan.ordered

    def _breaker(self, source: Source) -> Breaker | None:
        return self._work.breaker(source) if isinstance(self._work, Execution) else None
