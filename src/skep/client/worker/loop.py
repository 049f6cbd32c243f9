"""The consumer loop: it pops only messages that it can begin at once, works through each chain in order, and finishes begun messages.

Messages of one lease are a chain: done one after the other. Chains run side by side, at most ``concurrency`` of them; one that has to
wait keeps its lease and gives its slot to another. `skep.Worker` and the worker of a spec use this loop, and differ in their `Work`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from enum import Enum, auto
from typing import Any, Generic, Protocol, TypeVar

from skep.client.worker.rotation import Rotation, Turn
from skep.client.worker.settling import Settled
from skep.client.worker.slots import Slots
from skep.client.worker.source import Source
from skep.clock import Clock, Instant
from skep.errors import Code, SkepError
from skep.wire.messages import AckResult

HELD_MAX = 256
"""The most chains that may wait for a rate limit or an endpoint, besides the chains in work."""
PAUSE_SECONDS = 1.0
"""How long to wait before asking again for a queue that is not there yet, or a server that is away."""

M = TypeVar("M", bound=Settled)

log = logging.getLogger("skep.worker")


class MessageStart(Enum):
    """Whether a message is begun."""

    NOW = auto()
    NOT_YET = auto()
    """The message cannot be begun, and there is no time left to wait: it goes back to its queue."""
    GIVEN_UP = auto()
    """The message is settled, and the next one is begun."""


class Chain(Generic[M]):
    """Messages that are done one after the other, or all at once."""

    def __init__(self, source: Source, messages: list[M]) -> None:
        self.source = source
        self.messages = messages
        self.told: list[asyncio.Future[AckResult | None]] = []
        """Settlements that nobody has waited for yet. The chain ends when they are answered."""


class Work(Protocol[M]):
    """The work on the messages of a queue: the part of a loop that differs. A method that is None is not called."""

    @property
    def may_pop(self) -> Callable[[Source], Awaitable[bool]] | None:
        """Whether anything of a source could be done now; if not, its turn comes later."""

    async def pop(self, source: Source, free: int, wait_seconds: float) -> Sequence[M]:
        """Lease messages for so many free slots."""

    def chain_key(self, message: M) -> object:
        """The key that all messages of one chain have."""

    @property
    def whole(self) -> Callable[[Source, list[M]], Awaitable[None]] | None:
        """Do a chain all at once, and settle it. Without it messages are begun and done one by one."""

    @property
    def begin(self) -> Callable[[Source, M], Awaitable[MessageStart]] | None:
        """Wait until a message may be begun."""

    async def run(self, chain: Chain[M], message: M) -> bool:
        """Handle a message and settle it. Returns whether that ended the lease, so that the messages after it come again."""


class ConsumerLoop(Generic[M]):
    """The loop of one queue. It starts when its `rotation` has a source."""

    def __init__(
        self, work: Work[M], queue: str, concurrency: int, clock: Clock, stopping: asyncio.Event, *, fair: bool = False
    ) -> None:
        loop = asyncio.get_running_loop()
        self.rotation = Rotation(fair, loop.time)
        self.handled = 0
        """Messages that were done, well or not."""
        self._work = work
        self._queue = queue
        self._clock = clock
        self._slots = Slots(concurrency)
        self._time = loop.time
        self._tasks: set[asyncio.Task[None]] = set()
        self._stopping = stopping
        self._stopped: asyncio.Future[Any] = loop.create_future()
        self._popping_ended = asyncio.Event()

    # popping

    async def run(self) -> None:
        """Work until the stop; then finish the messages that were begun."""
        await self._finished(self._pop_and_begin(None))

    async def until_empty(self) -> int:
        """Work until no message can be popped; returns the number of messages."""
        before = self.handled
        await self._finished(self._pop_and_begin(set()))
        return self.handled - before

    async def _finished(self, work: Awaitable[None]) -> None:
        self._popping_ended.clear()
        self._stopped = asyncio.create_task(self._stopping.wait())
        try:
            await work
        except BaseException:
            self._stopping.set()  # who cannot go on, or is cancelled, begins nothing more, and neither do the others
            raise
        finally:
            self._popping_ended.set()
            await asyncio.gather(*self._tasks)
            self._stopped.cancel()

    async def _pop_and_begin(self, empty: set[Source] | None) -> None:
        """Pop as long as there are free slots. With a set, note who had nothing, and end when all have."""
        while not self._stopping.is_set():
            if not self._slots.free:
                await self._or_stop(self._slots.changed())
                continue
            if len(self._tasks) >= self._slots.count + HELD_MAX:
                await self._one_ended()
                continue
            turn = self.rotation.next()
            if turn is None:
                await self._or_stop(asyncio.sleep(min(self.rotation.due_in(), PAUSE_SECONDS)))
            elif await self._is_up(turn) and await self._pop_once(turn, wait=empty is None):
                if empty is not None:
                    empty.clear()
            elif empty is not None:
                empty.add(turn.source)
                if len(empty) == len(self.rotation.sources):
                    if not self._tasks:
                        return
                    await self._one_ended()
                    empty.clear()

    async def _one_ended(self) -> None:
        await asyncio.wait({self._stopped, *self._tasks}, return_when=asyncio.FIRST_COMPLETED)

    async def _is_up(self, turn: Turn) -> bool:
        may_pop = self._work.may_pop
        if may_pop is None or await may_pop(turn.source):
            return True
        self.rotation.put_off(turn, PAUSE_SECONDS)
        return False

    async def _pop_once(self, turn: Turn, *, wait: bool) -> bool:
        wait_seconds = self.rotation.wait_seconds if wait else 0.0
        begun = self._time()
        try:
            popped = await self._work.pop(turn.source, self.rotation.share(self._slots.free), wait_seconds)
        except SkepError as error:
            if error.code is not Code.QUEUE_NOT_FOUND:
                if not error.retryable or not wait:
                    raise
                log.warning("popping %s failed and is tried again: %s", self._queue, error)
            self.rotation.put_off(turn, PAUSE_SECONDS if wait else 0.0)
            return False
        if not popped:
            self.rotation.nothing(turn, waited=not wait or self._time() - begun >= wait_seconds / 2 > 0)
            return False
        self.rotation.found(turn)
        self._begin(turn.source, popped)
        return True

    def _begin(self, source: Source, popped: Sequence[M]) -> None:
        chains: dict[object, list[M]] = {}
        for one in popped:
            chains.setdefault(self._work.chain_key(one), []).append(one)
        for messages in chains.values():
            self._slots.take()
            source.busy += 1
            leases = list(dict.fromkeys(one.lease_id for one in messages))
            for lease in leases:
                source.hold(lease)
            task = asyncio.create_task(self._guarded(Chain(source, messages), leases))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    # working

    async def _guarded(self, chain: Chain[M], leases: list[str]) -> None:
        source, count = chain.source, len(chain.messages)
        try:
            if (whole := self._work.whole) is not None:
                await whole(source, chain.messages)
                self.handled += count
            else:
                await self._work_through(chain)
            await asyncio.gather(*chain.told)
        except SkepError as error:
            log.warning("%d messages of %s could not be settled and come again: %s", count, self._queue, error)
        except Exception:  # a fault of ours: their leases run out, and the others go on
            log.exception("%d messages of %s come again", count, self._queue)
        finally:
            for lease in leases:
                source.release(lease)
            source.busy -= 1
            self._slots.give_back()

    async def _work_through(self, chain: Chain[M]) -> None:
        source, messages, begin, run = chain.source, chain.messages, self._work.begin, self._work.run
        for position, message in enumerate(messages):
            start = MessageStart.NOW if begin is None else await begin(source, message)
            if start is MessageStart.GIVEN_UP:
                self.handled += 1
                continue
            if source.keeping.lost(message.lease_id):
                log.warning("a lease was lost: %d messages of %s are not begun", len(messages) - position, self._queue)
                return
            # A message that came alone may be on its last attempt: given back, it would be a dead letter that nobody worked on.
            if start is MessageStart.NOT_YET or (self._stopping.is_set() and len(messages) > 1):
                # Wait for the poll that is still under way: it would get the messages that are given back.
                await self._popping_ended.wait()
                chain.told += [source.give_back(rest) for rest in messages[position:]]
                return
            ended = await run(chain, message)
            self.handled += 1
            if ended:
                return

    async def held_until(self, until: Instant) -> bool:
        """Let a chain wait, and others have its slot meanwhile; False when the stop came before."""
        if until > self._clock.now():
            self._slots.give_back()
            try:
                await self._or_stop(self._clock.sleep_until(until))
            finally:
                await self._slots.wait_for_one()
        return until <= self._clock.now()

    async def _or_stop(self, wait: Awaitable[object]) -> None:
        """Wait for this, or for the stop."""
        waiting = asyncio.ensure_future(wait)
        try:
            await asyncio.wait({waiting, self._stopped}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            waiting.cancel()
            await asyncio.gather(waiting, return_exceptions=True)


async def _no_more() -> None:
    """Nothing that could bring more work."""


async def run_loops(
    loops: Sequence[ConsumerLoop[Any]],
    stopping: asyncio.Event,
    *,
    until_empty: bool,
    look_again: Callable[[], Awaitable[None]] = _no_more,
) -> int:
    """Run loops side by side until the stop, or until none has anything left. Returns how many messages they did.

    If one fails, all end. Work of one loop may push messages for another, so all run until none did anything.
    """
    if until_empty:
        while not stopping.is_set() and any(await _all([one.until_empty() for one in loops])):
            await look_again()
    else:
        await _all([one.run() for one in loops])
    return sum(one.handled for one in loops)


async def _all(works: Sequence[Awaitable[Any]]) -> list[Any]:
    """Wait for all, also when one fails; then raise that."""
    results = await asyncio.gather(*works, return_exceptions=True)
    for result in results:
        if isinstance(result, BaseException):
            raise result
    return results
