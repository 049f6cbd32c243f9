"""The timers of a connection: a deadline for what must come next, and the idle time between requests (keep-alive).

A request that arrives in one piece sets no timer, and one timer serves many idle times. So the usual request costs none.
"""

from __future__ import annotations

from asyncio import AbstractEventLoop, TimerHandle
from collections.abc import Callable


class Deadline:
    """The deadline of the one thing that the connection waits for: a head, a body, or the end."""

    __slots__ = ("_loop", "handle")

    def __init__(self, loop: AbstractEventLoop) -> None:
        self._loop = loop
        self.handle: TimerHandle | None = None
        """The timer; None while nothing is waited for."""

    def set(self, seconds: float, then: Callable[[], None]) -> None:
        """Set a new deadline."""
        self.stop()
        self.handle = self._loop.call_later(seconds, then)

    def stop(self) -> None:
        """Remove the deadline: the awaited thing has come."""
        if self.handle is not None:
            self.handle.cancel()
            self.handle = None


class Rest:
    """The idle time between two requests, and its limit."""

    __slots__ = ("_handle", "_loop", "_seconds", "_then", "since")

    def __init__(self, loop: AbstractEventLoop, seconds: float, then: Callable[[], None]) -> None:
        self._loop = loop
        self._seconds = seconds
        self._then = then
        self._handle: TimerHandle | None = None
        self.since: float | None = None
        """When the idle time began; None while a request runs."""

    def begin(self) -> None:
        """Begin an idle time. Most are short, so the timer of an earlier one stays as it is."""
        self.since = self._loop.time()
        if self._handle is None:
            self._handle = self._loop.call_later(self._seconds, self.look)

    def look(self) -> None:
        """Close the connection if it was idle for long enough; else look again when it will be."""
        self._handle = None
        if self.since is None:
            return
        left = self.since + self._seconds - self._loop.time()
        if left > 0:
            self._handle = self._loop.call_later(left, self.look)
        else:
            self._then()

    def stop(self) -> None:
        """The connection is over."""
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None
