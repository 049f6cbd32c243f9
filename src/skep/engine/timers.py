"""Callbacks at instants of the injected clock: one sleeping task, set to the earliest of them.

A timer is kept by how long it is until its time: a clock that is put back makes it no later.
"""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Callable
from itertools import count

from skep.clock import Clock, Instant

COMPACT_ABOVE = 1_000
"""Cancelled timers are thrown out of the heap once they are more than this many and more than half."""


class Timer:
    """One callback to come; ``cancel`` makes it never happen."""

    __slots__ = ("_timers", "callback", "deadline")

    def __init__(self, timers: Timers, deadline: Instant, callback: Callable[[], None]) -> None:
        self._timers = timers
        self.deadline = deadline
        self.callback: Callable[[], None] | None = callback

    def cancel(self) -> None:
        """Forget the callback."""
        if self.callback is not None:
            self.callback = None
            self._timers.cancelled()


class Timers:
    """All timers of an engine. A callback must be short and must not raise."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._heap: list[tuple[Instant, int, Timer]] = []
        self._order = count()
        self._cancelled = 0
        self._sleeper: asyncio.Task[None] | None = None
        self._armed_for: Instant | None = None

    @property
    def overdue(self) -> bool:
        """Whether a timer's time has come and it has not been called yet."""
        return bool(self._heap) and self._heap[0][0] <= self._clock.steady()

    def at(self, deadline: Instant, callback: Callable[[], None]) -> Timer:
        """Call ``callback`` once ``deadline`` has been reached, as the clock tells the time at this moment."""
        timer = Timer(self, deadline, callback)
        end = Instant(self._clock.steady() + deadline - self._clock.now())
        heapq.heappush(self._heap, (end, next(self._order), timer))
        self._arm()
        return timer

    def cancelled(self) -> None:
        """Count a cancelled timer, and tidy up when there are many."""
        self._cancelled += 1
        if self._cancelled > COMPACT_ABOVE and self._cancelled * 2 > len(self._heap):
            self._heap = [entry for entry in self._heap if entry[2].callback is not None]
            heapq.heapify(self._heap)
            self._cancelled = 0

    def close(self) -> None:
        """End the sleeping task; what has not been called never will be."""
        self._heap.clear()
        if self._sleeper is not None:
            self._sleeper.cancel()
            self._sleeper = None

    def _arm(self) -> None:
        if not self._heap:
            return
        earliest = self._heap[0][0]
        if self._sleeper is not None:
            if self._armed_for is not None and self._armed_for <= earliest:
                return
            self._sleeper.cancel()
        self._armed_for = earliest
        self._sleeper = asyncio.get_running_loop().create_task(self._sleep(earliest))

    async def _sleep(self, end: Instant) -> None:
        while (left := end - self._clock.steady()) > 0:
            await self._clock.sleep_until(Instant(self._clock.now() + left))
        self._sleeper = None
        steady = self._clock.steady()
        while self._heap and self._heap[0][0] <= steady:
            timer = heapq.heappop(self._heap)[2]
            if timer.callback is None:
                self._cancelled = max(0, self._cancelled - 1)
                continue
            callback, timer.callback = timer.callback, None
            callback()
        # A callback may have armed an earlier sleeper already; then this one has nothing more to do.
        if self._sleeper is None:
            self._arm()
