"""One queue at work: it pops what it can begin at once, for each tenant in turn, works through each partition in order, and settles.

Messages of one lease are a chain: done one after the other. Chains run side by side, at most ``concurrency`` of them; one that waits
for its rate limit or its endpoint keeps its lease and gives its place to another. Commands of the entity store are not done chain by
chain but in whole batches, each one transaction, unless they are rate limited.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Sequence
from contextlib import suppress
from enum import Enum, auto
from functools import partial

from skep.client.worker.failing import Failure
from skep.clock import Clock, Instant
from skep.entities import PERMANENT
from skep.errors import Code, SkepError
from skep.spec import off_loop
from skep.spec.ir import Fairness
from skep.wire.messages import AckStatus, PoppedMessage
from skep.worker.access import Access, given_back, given_up
from skep.worker.committing import Committing
from skep.worker.endpoints import Breaker
from skep.worker.execute import Execution
from skep.worker.limiting import Limiter
from skep.worker.plan import Plan
from skep.worker.rotation import Rotation, Turn
from skep.worker.slots import Slots

CONCURRENCY = 8
BATCH = 10
"""What holds for functions and deliveries when the spec does not say."""
COMMAND_CONCURRENCY = 2
COMMAND_BATCH = 500
"""The same for the entity store: batches at once, and messages of one batch."""
HELD_MAX = 256
"""Chains that may wait for their rate limit or endpoint, on top of those that are worked on."""
PAUSE_SECONDS = 1.0
"""How long to wait before asking a server again that is away, or looking again at an endpoint that rests."""

log = logging.getLogger("skep.worker")


class Start(Enum):
    """Whether a message is begun."""

    NOW = auto()
    NOT_YET = auto()
    """Its rate limit or its endpoint does not let it, and there is no time left to wait."""
    GIVEN_UP = auto()


class Runner:
    """The work of one queue."""

    def __init__(
        self, plan: Plan, work: Committing | Execution, clock: Clock, stopping: asyncio.Event, rotation: Rotation
    ) -> None:
        self.plan = plan
        self.rotation = rotation
        self.handled = 0
        """Messages that were done, well or not."""
        limit = plan.spec.rate_limit
        self._limiter = Limiter(limit.count, limit.per_seconds) if limit is not None else None
        self._work = work
        self._whole = isinstance(work, Committing) and self._limiter is None
        self._clock = clock
        self._stopping = stopping
        self._batch = plan.spec.batch or (COMMAND_BATCH if self._whole else BATCH)
        self._slots = Slots(plan.spec.concurrency or (COMMAND_CONCURRENCY if self._whole else CONCURRENCY))
        self._time = asyncio.get_running_loop().time
        self._tasks: set[asyncio.Task[None]] = set()
        self._popping_ended = asyncio.Event()

    # --- popping ---

    async def run(self) -> None:
        """Work until it is time to stop; then finish what was begun."""
        await self._finished(self._pop_and_begin(None))

    async def until_empty(self) -> int:
        """Work until nothing is left to be had now; returns how many messages that was."""
        before = self.handled
        await self._finished(self._pop_and_begin(set()))
        return self.handled - before

    async def _finished(self, work: Awaitable[None]) -> None:
        self._popping_ended.clear()
        try:
            await work
        finally:
            self._popping_ended.set()
            await asyncio.gather(*self._tasks)

    async def _pop_and_begin(self, empty: set[Access] | None) -> None:
        """Pop as long as there are free slots. With a set, note who had nothing, and end when all have."""
        while not self._stopping.is_set():
            if not self._slots.free:
                await self._either(self._slots.changed())
                continue
            if len(self._tasks) >= self._slots.count + HELD_MAX:
                await self._either(self._one_ended())
                continue
            turn = self.rotation.next()
            if turn is None:
                await self._either(asyncio.sleep(min(self.rotation.due_in(), PAUSE_SECONDS)))
            elif await self._is_up(turn) and await self._pop_once(turn, wait=empty is None):
                if empty is not None:
                    empty.clear()
            elif empty is not None:
                empty.add(turn.access)
                if len(empty) == len(self.rotation.accesses):
                    if not self._tasks:
                        return
                    await self._either(self._one_ended())
                    empty.clear()

    async def _one_ended(self) -> None:
        await asyncio.wait(set(self._tasks), return_when=asyncio.FIRST_COMPLETED)

    async def _is_up(self, turn: Turn) -> bool:
        """Whether anything may be delivered for that tenant now; if not, its turn comes later."""
        breaker = self._breaker(turn.access)
        if breaker is None or (await breaker.rests_until() is None and not (breaker.probing and turn.access.busy)):
            return True
        self.rotation.put_off(turn, PAUSE_SECONDS)
        return False

    def _breaker(self, access: Access) -> Breaker | None:
        return self._work.breaker(access) if isinstance(self._work, Execution) else None

    async def _pop_once(self, turn: Turn, *, wait: bool) -> bool:
        access = turn.access
        share = self.rotation.share(self._slots.free)
        batch, partitions = self._batch, share
        if self._whole:
            partitions = 0
        elif not self.plan.ordered:
            batch, partitions = min(batch, share), 0
        if (breaker := self._breaker(access)) is not None and breaker.probing:
            batch, partitions = 1, 1
        begun = self._time()
        try:
            popped = await access.pop(batch, partitions, self.rotation.wait_seconds if wait else 0.0)
        except SkepError as error:
            if error.code is not Code.QUEUE_NOT_FOUND:
                if not error.retryable or not wait:
                    raise
                log.warning("popping %s failed and is tried again: %s", self.plan.queue, error)
            self.rotation.put_off(turn, PAUSE_SECONDS if wait else 0.0)
            return False
        if not popped:
            self.rotation.nothing(turn, waited=not wait or self._time() - begun >= self.rotation.wait_seconds / 2 > 0)
            return False
        self.rotation.found(turn)
        self._begin(access, popped)
        return True

    def _begin(self, access: Access, popped: Sequence[PoppedMessage]) -> None:
        chains: dict[object, list[PoppedMessage]] = {}
        for one in popped:
            key = None if self._whole else one.lease_id if self.plan.ordered else (one.lease_id, one.seq)
            chains.setdefault(key, []).append(one)
        for chain in chains.values():
            self._slots.take()
            access.busy += 1
            task = asyncio.create_task(self._guarded(access, chain))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    # --- working ---

    async def _guarded(self, access: Access, chain: list[PoppedMessage]) -> None:
        leases = list(dict.fromkeys(one.lease_id for one in chain))
        for lease in leases:
            access.hold(lease)
        try:
            if self._whole:
                await self._all_at_once(access, chain)
            else:
                await self._work_through(access, chain)
        except SkepError as error:
            log.warning("%d messages of %s could not be settled and come again: %s", len(chain), self.plan.queue, error)
        except Exception:  # a fault of ours: their leases run out, and the others go on
            log.exception("%d messages of %s come again", len(chain), self.plan.queue)
        finally:
            for lease in leases:
                access.release(lease)
            access.busy -= 1
            self._slots.give_back()

    async def _all_at_once(self, access: Access, chain: list[PoppedMessage]) -> None:
        assert isinstance(self._work, Committing)
        await self._work.run(access, chain)
        self.handled += len(chain)

    async def _work_through(self, access: Access, chain: list[PoppedMessage]) -> None:
        lease = chain[0].lease_id
        for position, message in enumerate(chain):
            start = await self._start(access, message)
            if start is Start.GIVEN_UP:
                continue
            if access.keeping.lost(lease):
                log.warning("a lease was lost: %d messages of %s are not begun", len(chain) - position, self.plan.queue)
                return
            # What came alone may be on its last attempt, and given back it would be a dead letter that nobody worked on.
            if start is Start.NOT_YET or (self._stopping.is_set() and len(chain) > 1):
                await self._give_back(access, chain[position:])
                return
            ended = await self._one(access, message)
            self.handled += 1
            if ended and self.plan.ordered:
                return

    async def _one(self, access: Access, message: PoppedMessage) -> bool:
        """Do one message; whether that ended its lease, so that those after it come again."""
        if isinstance(self._work, Committing):
            await self._work.run(access, [message])
            return False
        said = await self._work.run(access, message)
        return said is None or said.status in (AckStatus.FAILED, AckStatus.RETRY)

    async def _start(self, access: Access, message: PoppedMessage) -> Start:
        """Wait for the rate limit, then while the endpoint rests."""
        if self._limiter is not None:
            try:
                key = await off_loop(partial(self.plan.limited_by, message))
            except SkepError as error:
                if error.code not in PERMANENT:
                    raise
                await access.settle(message, given_up(message, error), Failure(message, str(error)))
                self.handled += 1
                return Start.GIVEN_UP
            steady = self._clock.steady()
            left = self._limiter.take(f"{access.tenant} {key}", steady) - steady
            if not await self._held_until(Instant(self._clock.now() + left)):
                return Start.NOT_YET
        breaker = self._breaker(access)
        while breaker is not None and (until := await breaker.rests_until()) is not None:
            if breaker.stopped or not await self._held_until(until):
                return Start.NOT_YET
        return Start.NOW

    async def _held_until(self, until: Instant) -> bool:
        """Wait, and let others have the place meanwhile; False when the stop came before."""
        if until > self._clock.now():
            self._slots.give_back()
            try:
                await self._either(self._clock.sleep_until(until))
            finally:
                await self._slots.wait_for_one()
        return until <= self._clock.now()

    async def _give_back(self, access: Access, rest: Sequence[PoppedMessage]) -> None:
        # Or the poll that is still under way would be handed what is given back.
        await self._popping_ended.wait()
        await asyncio.gather(*(access.settle(message, given_back(message)) for message in rest))

    async def _either(self, wait: Awaitable[object]) -> None:
        """Wait for this, or for the stop."""
        waiting = asyncio.ensure_future(wait)
        stopped = asyncio.ensure_future(self._stopping.wait())
        try:
            await asyncio.wait({waiting, stopped}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in (waiting, stopped):
                task.cancel()
            with suppress(asyncio.CancelledError):
                await asyncio.gather(waiting, stopped, return_exceptions=True)


def is_fair(plan: Plan) -> bool:
    """Whether tenants get equal shares of a queue's workers."""
    return plan.spec.fairness is Fairness.TENANT
