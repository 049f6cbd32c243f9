"""Callbacks at instants of the injected clock: one sleeping task, set to the earliest of them.

A timer keeps the time left until its deadline, so a clock that is put back does not delay it.
"""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Callable
from itertools import count

from skep.clock import Clock, Instant

COMPACT_ABOVE = 1_000
"""Cancelled timers are removed from the heap once they are more than this many and more than half of it."""


class Timer:
    """One future callback; ``cancel`` prevents it."""

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
        """Whether a timer is due and has not been called yet."""
        return bool(self._heap) and self._heap[0][0] <= self._clock.steady()

    def at(self, deadline: Instant, callback: Callable[[], None]) -> Timer:
        """Call ``callback`` at ``deadline``. The time left is computed now; later changes of the clock do not matter."""
        timer = Timer(self, deadline, callback)
        end = Instant(self._clock.steady() + deadline - self._clock.now())
        heapq.heappush(self._heap, (end, next(self._order), timer))
        self._arm()
        return timer

    def after(self, micros: int, callback: Callable[[], None]) -> Timer:
        """Call ``callback`` in so many microseconds."""
        return self.at(Instant(self._clock.now() + micros), callback)

    def cancelled(self) -> None:
        """Count a cancelled timer, and tidy up when there are many."""
        self._cancelled += 1
        if self._cancelled > COMPACT_ABOVE and self._cancelled * 2 > len(self._heap):
            self._heap = [entry for entry in self._heap if entry[2].callback is not None]
            heapq.heapify(self._heap)
            self._cancelled = 0

    def close(self) -> None:
        """End the sleeping task. Pending callbacks are never called."""
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
        # A callback may have started a new sleeping task already; then this one ends.
        if self._sleeper is None:
            self._arm()
