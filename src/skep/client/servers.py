"""Choose the server to ask (failover): the current one, the others when it fails, and the first again after a while.

Requests that are to be spread over all servers have an order of servers of their own, by rendezvous hashing: each server has a score for
the text that the request is spread by, and the one with the highest score is asked first. The order depends on nothing else, so all
processes that name the same servers agree on it; and when a server is away, only its own requests go elsewhere.
A state machine that takes the outcomes of calls with their times. Threads may share it.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Sequence
from hashlib import blake2b

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
        self._failed_at = [0] * len(self.urls)
        self._lock = threading.Lock()

    def candidates(self, clock: Clock, spread_by: str = "") -> Iterable[int]:
        """The servers to ask in turn until one answers; each is asked about when its turn comes, not before."""
        if len(self.urls) == 1 and self._breakers[0].untroubled:
            return _ONLY  # the usual case, which needs neither a lock nor the time
        return self._in_turn(clock.steady(), spread_by)

    def _in_turn(self, now: Instant, spread_by: str) -> Iterator[int]:
        if spread_by:
            # A server that failed just now comes last: to find out that a machine is off takes seconds.
            order = sorted(ranked(self.urls, spread_by), key=lambda index: self._failed_lately(index, now))
        else:
            first = self._preferred(now)
            order = [(first + step) % len(self.urls) for step in range(len(self.urls))]
        for index in order:
            with self._lock:
                admitted = self._breakers[index].admits(now)
            if admitted:
                yield index

    def succeeded(self, index: int, spread_by: str = "") -> None:
        """This server answered. Only requests that are not spread make it the current one."""
        if self._breakers[index].untroubled and (spread_by or index == self._current):
            return  # nearly always; nothing changes, so nothing is locked
        with self._lock:
            self._breakers[index].succeeded()
            if not spread_by:
                self._current = index

    def failed(self, index: int, now: Instant) -> None:
        """This server did not answer, or said that it is not well."""
        with self._lock:
            self._breakers[index].failed(now)
            self._failed_at[index] = now
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

    def _failed_lately(self, index: int, now: Instant) -> bool:
        return not self._breakers[index].untroubled and now - self._failed_at[index] < self._failback_micros


def ranked(urls: Sequence[str], spread_by: str) -> list[int]:
    """The servers by their scores for a text, the highest first (rendezvous hashing). The order of the URLs does not matter."""
    scores = [blake2b(f"{url} {spread_by}".encode(), digest_size=8).digest() for url in urls]
    return sorted(range(len(urls)), key=lambda index: scores[index], reverse=True)
