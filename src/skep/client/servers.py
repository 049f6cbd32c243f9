"""Choose the server to ask (failover): the current one, the others when it fails, and the first again after a while.

A state machine that takes the outcomes of calls with their times. Threads may share it.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator

from skep.client.breaker import Breaker, BreakerState
from skep.client.failures import CircuitOpenError
from skep.client.settings import ClientSettings
from skep.clock import MICROS_PER_SECOND, Clock, Instant, seconds

_ONLY = (0,)


class Servers:
    """The servers of one store in the order of preference, each with its circuit breaker."""

    def __init__(self, settings: ClientSettings) -> None:
        self.urls = settings.urls
        open_micros = seconds(settings.breaker_open_seconds)
        self._breakers = [Breaker(settings.breaker_failures, open_micros) for _ in self.urls]
        self._failback_micros = seconds(settings.failback_seconds)
        self._current = 0
        self._moved_at = 0
        self._lock = threading.Lock()

    def candidates(self, clock: Clock) -> Iterable[int]:
        """The servers to ask in turn until one answers; each is asked about when its turn comes, not before."""
        if len(self.urls) == 1 and self._breakers[0].untroubled:
            return _ONLY  # the usual case, which needs neither a lock nor the time
        return self._in_turn(clock.steady())

    def _in_turn(self, now: Instant) -> Iterator[int]:
        first = self._preferred(now)
        for step in range(len(self.urls)):
            index = (first + step) % len(self.urls)
            with self._lock:
                admitted = self._breakers[index].admits(now)
            if admitted:
                yield index

    def succeeded(self, index: int) -> None:
        """This server answered."""
        if index == self._current and self._breakers[index].untroubled:
            return  # nearly always; nothing changes, so nothing is locked
        with self._lock:
            self._breakers[index].succeeded()
            self._current = index

    def failed(self, index: int, now: Instant) -> None:
        """This server did not answer, or said that it is not well."""
        with self._lock:
            self._breakers[index].failed(now)
            if index == self._current:
                self._current = (index + 1) % len(self.urls)
            self._moved_at = now

    def closed_to_all(self, now: Instant) -> CircuitOpenError:
        """The error for when no server may be asked."""
        with self._lock:
            opened_until = min(breaker.opened_until for breaker in self._breakers)
        return CircuitOpenError(max(0, opened_until - now) / MICROS_PER_SECOND)

    def states(self, now: Instant) -> dict[str, BreakerState]:
        """Every server's circuit, by URL."""
        with self._lock:
            return {url: breaker.state(now) for url, breaker in zip(self.urls, self._breakers, strict=True)}

    def _preferred(self, now: Instant) -> int:
        if self._current and now - self._moved_at >= self._failback_micros:
            return 0
        return self._current
