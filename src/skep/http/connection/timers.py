"""What a connection waits for: one thing that must come in time, and the next request while it rests.

No timer is set for a request that arrives in one piece, and one looks after many rests. So the usual request costs none.
"""

from __future__ import annotations

from asyncio import AbstractEventLoop, TimerHandle
from collections.abc import Callable


class Deadline:
    """Until when what is waited for must come: a head, a body, or the end. It is one at a time."""

    __slots__ = ("_loop", "handle")

    def __init__(self, loop: AbstractEventLoop) -> None:
        self._loop = loop
        self.handle: TimerHandle | None = None
        """The timer; None while nothing is waited for."""

    def set(self, seconds: float, then: Callable[[], None]) -> None:
        """Wait for something else from now on."""
        self.stop()
        self.handle = self._loop.call_later(seconds, then)

    def stop(self) -> None:
        """It has come."""
        if self.handle is not None:
            self.handle.cancel()
            self.handle = None


class Rest:
    """The time between two requests, and for how long it may last."""

    __slots__ = ("_handle", "_loop", "_seconds", "_then", "since")

    def __init__(self, loop: AbstractEventLoop, seconds: float, then: Callable[[], None]) -> None:
        self._loop = loop
        self._seconds = seconds
        self._then = then
        self._handle: TimerHandle | None = None
        self.since: float | None = None
        """When it began; None while something is asked."""

    def begin(self) -> None:
        """Nothing is asked. Most rests are short, so the timer of an earlier one is left as it is."""
        self.since = self._loop.time()
        if self._handle is None:
            self._handle = self._loop.call_later(self._seconds, self.look)

    def look(self) -> None:
        """See whether nothing was asked for long enough; if not yet, look again when that will be so."""
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
