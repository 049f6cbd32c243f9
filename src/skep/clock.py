"""Time, given and never taken from the air.

An ``Instant`` is whole microseconds since 1970 in UTC: exact, cheap to compare, the same in Python, SQLite
and PostgreSQL. Everything that needs the time takes a ``Clock``.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Coroutine
from typing import Any, NamedTuple, NewType, Protocol

Instant = NewType("Instant", int)

MICROS_PER_SECOND = 1_000_000
MICROS_PER_MS = 1_000


def seconds(value: float) -> int:
    """A duration in seconds as microseconds."""
    return round(value * MICROS_PER_SECOND)


class Clock(Protocol):
    """Tells the time, and waits for it."""

    def now(self) -> Instant:
        """The present instant. It goes back when a clock that was ahead is put right."""
        ...

    def steady(self) -> Instant:
        """The present instant on a line that never goes back: for how long something has lasted in this process."""
        ...

    async def sleep_until(self, deadline: Instant) -> None:
        """Return once ``deadline``, as ``now`` tells the time at this moment, has been reached. A clock put back makes it no later."""
        ...


SLEW = 10
"""While it is put right without a step, the clock is fast or slow by a tenth."""
STEP_FORWARD_MICROS = 1 * MICROS_PER_SECOND
"""By more it goes forward at once: the machine was asleep, or its clock was set."""
STEP_BACK_MICROS = 10 * MICROS_PER_SECOND
"""By more it goes back at once: slewing would take minutes, and wrong stamps go on meanwhile."""
LOOK_MICROS = MICROS_PER_SECOND // 10
"""How often it is compared with the wall clock."""
LONGEST_SLEEP_SECONDS = 1.0
"""The longest single sleep: the clock may be put forward meanwhile."""


class _Line(NamedTuple):
    """How the time comes from the monotonic clock's: by an offset, and a correction that comes little by little."""

    offset: int
    correction: int
    since: int
    back: int
    """By how much, all together, it went back in steps."""

    def at(self, ticks: int) -> int:
        most = (ticks - self.since) // SLEW
        return self.offset + ticks + max(-most, min(self.correction, most))


class SystemClock:
    """The wall clock, or the database's where one leads it, run by the monotonic clock in between.

    It is compared with the wall clock ten times a second, as far as it is asked. What is off by little is slewed, so that the time
    never stands still or goes back for that; what is off by much is a step. `put_right` of the store sees to what was written before one.
    """

    def __init__(
        self, wall: Callable[[], int] = time.time_ns, monotonic: Callable[[], int] = time.monotonic_ns
    ) -> None:
        """``wall`` and ``monotonic`` tell nanoseconds."""
        self._wall = wall
        self._monotonic = monotonic
        self._is_led = False
        self._lock = threading.Lock()
        self._looked_at = self._ticks()
        # Replaced as a whole, so that who reads it needs no lock.
        self._line = _Line(wall() // 1_000 - self._looked_at, 0, self._looked_at, 0)

    def now(self) -> Instant:
        """The present instant."""
        return Instant(self._read()[0])

    def steady(self) -> Instant:
        """The present instant on a line that never goes back."""
        shown, back = self._read()
        return Instant(shown + back)

    def sleep_until(self, deadline: Instant) -> Coroutine[Any, Any, None]:
        """Return once ``deadline`` has been reached, as the time is told at this moment, which is that of the call."""
        return self._sleep(deadline + self._read()[1])

    async def _sleep(self, end: int) -> None:
        while (left := end - self.steady()) > 0:
            await asyncio.sleep(min(left / MICROS_PER_SECOND, LONGEST_SLEEP_SECONDS))

    def follow(self, reference: Instant, took: int = 0) -> None:
        """Agree with another clock, the database's, instead of the wall clock.

        It showed ``reference`` at some moment of the last ``took`` microseconds.
        """
        with self._lock:
            is_first, self._is_led = not self._is_led, True
            self._correct(reference, took, self._ticks(), at_once=is_first)

    def _ticks(self) -> int:
        return self._monotonic() // 1_000

    def _read(self) -> tuple[int, int]:
        """The present instant, and by how much the clock went back so far. A message asks for it a dozen times, so it is one function."""
        ticks = self._monotonic() // 1_000
        if ticks - self._looked_at >= LOOK_MICROS and not self._is_led:
            self._look(ticks)
        offset, correction, since, back = self._line
        if correction:
            most = (ticks - since) // SLEW
            if correction > most:
                correction = most
            elif correction < -most:
                correction = -most
        return offset + ticks + correction, back

    def _look(self, ticks: int) -> None:
        if self._lock.acquire(blocking=False):
            try:
                self._correct(Instant(self._wall() // 1_000), 0, ticks, at_once=False)
            finally:
                self._lock.release()

    def _correct(self, reference: Instant, took: int, ticks: int, *, at_once: bool) -> None:
        self._looked_at = ticks
        line = self._line
        shown = line.at(ticks)
        off = reference - shown
        if off < 0:
            off = min(0, off + took)
        if off > STEP_FORWARD_MICROS or off < -STEP_BACK_MICROS or (at_once and off):
            self._line = _Line(shown + off - ticks, 0, ticks, line.back + max(0, -off))
            if not at_once:
                import structlog  # which is slow to load, and clients have clocks too

                log = structlog.get_logger("skep.clock")
                log.warning("the clock was put right", by_seconds=round(off / MICROS_PER_SECOND, 3))
        else:
            self._line = _Line(shown - ticks, off, ticks, line.back)


class ManualClock:
    """A clock that moves only when told to: what tests run on. The one who tells it may be in another thread."""

    def __init__(self, start: int = 1_750_000_000 * MICROS_PER_SECOND) -> None:
        self._now = start
        self._back = 0
        self._sleepers: list[tuple[int, asyncio.Future[None]]] = []
        self._lock = threading.Lock()
        self.after_advance: Callable[[], None] | None = None
        """What ``advance`` does before it returns: the fixture waits here for a server that runs on this clock."""

    def now(self) -> Instant:
        """The present instant."""
        return Instant(self._now)

    def steady(self) -> Instant:
        """The present instant on a line that never goes back."""
        return Instant(self._now + self._back)

    def advance(self, by_seconds: float) -> Instant:
        """Move time on and wake who slept until then."""
        with self._lock:
            self._now += seconds(by_seconds)
            steady = self.steady()
            due = [future for end, future in self._sleepers if end <= steady]
            self._sleepers = [entry for entry in self._sleepers if entry[0] > steady]
        for future in due:
            if not future.done():
                future.get_loop().call_soon_threadsafe(_finish, future)
        if self.after_advance is not None:
            self.after_advance()
        return Instant(self._now)

    def put_back(self, by_seconds: float) -> Instant:
        """Put the clock back, as if it had been ahead. Who sleeps sleeps no longer for that."""
        with self._lock:
            self._now -= seconds(by_seconds)
            self._back += seconds(by_seconds)
        return Instant(self._now)

    def sleep_until(self, deadline: Instant) -> Coroutine[Any, Any, None]:
        """Return once ``deadline`` has been reached by ``advance``."""
        return self._sleep(deadline + self._back)

    async def _sleep(self, end: int) -> None:
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        entry = (end, future)
        # Whether it is time and the place among the sleepers go together, or an advance in between would wake nobody.
        with self._lock:
            if end <= self.steady():
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
