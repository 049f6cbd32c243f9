"""Time, given and never taken from the air.

An ``Instant`` is whole microseconds since 1970 in UTC: exact, cheap to compare, the same in Python, SQLite
and PostgreSQL. Everything that needs the time takes a ``Clock``.
"""

from __future__ import annotations

import asyncio
import threading
import time
from typing import NewType, Protocol

Instant = NewType("Instant", int)

MICROS_PER_SECOND = 1_000_000
MICROS_PER_MS = 1_000


def seconds(value: float) -> int:
    """A duration in seconds as microseconds."""
    return round(value * MICROS_PER_SECOND)


class Clock(Protocol):
    """Tells the time, and waits for it."""

    def now(self) -> Instant:
        """The present instant."""
        ...

    async def sleep_until(self, deadline: Instant) -> None:
        """Return once ``deadline`` has been reached."""
        ...


class SystemClock:
    """The machine's clock, steered by an offset so that servers of one database agree on deadlines.

    It advances by the monotonic clock between corrections, so a jump of the wall clock does not move deadlines.
    """

    def __init__(self) -> None:
        self._base = time.time_ns() // 1_000 - time.monotonic_ns() // 1_000

    def now(self) -> Instant:
        """The present instant."""
        return Instant(self._base + time.monotonic_ns() // 1_000)

    async def sleep_until(self, deadline: Instant) -> None:
        """Return once ``deadline`` has been reached."""
        while (left := deadline - self.now()) > 0:
            await asyncio.sleep(left / MICROS_PER_SECOND)

    def follow(self, reference: Instant) -> None:
        """Agree with another clock (the database's) that shows ``reference`` at this moment."""
        self._base = reference - time.monotonic_ns() // 1_000


class ManualClock:
    """A clock that moves only when told to: what tests run on. The one who tells it may be in another thread."""

    def __init__(self, start: int = 1_750_000_000 * MICROS_PER_SECOND) -> None:
        self._now = start
        self._sleepers: list[tuple[int, asyncio.Future[None]]] = []
        self._lock = threading.Lock()

    def now(self) -> Instant:
        """The present instant."""
        return Instant(self._now)

    def advance(self, by_seconds: float) -> Instant:
        """Move time on and wake who slept until then."""
        with self._lock:
            self._now += seconds(by_seconds)
            due = [future for deadline, future in self._sleepers if deadline <= self._now]
            self._sleepers = [entry for entry in self._sleepers if entry[0] > self._now]
        for future in due:
            if not future.done():
                future.get_loop().call_soon_threadsafe(_finish, future)
        return Instant(self._now)

    async def sleep_until(self, deadline: Instant) -> None:
        """Return once ``deadline`` has been reached by ``advance``."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        entry = (int(deadline), future)
        # Whether it is time and the place among the sleepers go together, or an advance in between would wake nobody.
        with self._lock:
            if deadline <= self._now:
                return
            self._sleepers.append(entry)
        try:
            await future
        finally:
            with self._lock:
                if entry in self._sleepers:
                    self._sleepers.remove(entry)


def _finish(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
