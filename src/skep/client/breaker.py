"""A circuit breaker as a state machine: it takes the outcomes of calls with their times, and says whether a server may be asked.

While it is closed, every call passes. After a number of failures in a row it opens, and no call passes until its time is over. Then it
is half open: one call passes as a probe, and its outcome closes the circuit or opens it again.
"""

from __future__ import annotations

from enum import StrEnum

from skep.clock import Instant


class BreakerState(StrEnum):
    """What a breaker lets through: everything, nothing, one probe."""

    CLOSED = "closed"
    OPEN = "open"
    HALF_OPEN = "half_open"


class Breaker:
    """The circuit of one server. Not safe for threads by itself; `Servers` guards it."""

    __slots__ = ("_failures", "_max_failures", "_open_micros", "_opened_until", "_probe_until")

    def __init__(self, max_failures: int, open_micros: int) -> None:
        self._max_failures = max_failures
        self._open_micros = open_micros
        self._failures = 0
        self._opened_until: int | None = None
        self._probe_until = 0

    def state(self, now: Instant) -> BreakerState:
        """The state at this moment."""
        if self._opened_until is None:
            return BreakerState.CLOSED
        return BreakerState.OPEN if now < self._opened_until else BreakerState.HALF_OPEN

    @property
    def untroubled(self) -> bool:
        """Whether it is closed and no failure counts."""
        return self._failures == 0

    @property
    def opened_until(self) -> int:
        """The time of the next probe; zero while all calls pass."""
        return max(self._opened_until or 0, self._probe_until)

    def admits(self, now: Instant) -> bool:
        """Whether a call may pass; a yes while half open makes it the probe."""
        match self.state(now):
            case BreakerState.CLOSED:
                return True
            case BreakerState.OPEN:
                return False
            case BreakerState.HALF_OPEN:
                # A probe that never reports (its caller was cancelled) must not hold the circuit open for ever.
                if now < self._probe_until:
                    return False
                self._probe_until = now + self._open_micros
                return True

    def succeeded(self) -> None:
        """A call got an answer."""
        self._failures = 0
        self._opened_until = None
        self._probe_until = 0

    def failed(self, now: Instant) -> None:
        """A call got no answer, or an answer that says that the server is not well."""
        self._failures += 1
        if self._opened_until is not None or self._failures >= self._max_failures:
            self._opened_until = now + self._open_micros
            self._probe_until = 0
