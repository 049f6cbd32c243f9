"""Rate limits: a bucket per key that fills evenly. Each server has its own buckets, so several allow so many times as much."""

from __future__ import annotations

from skep.clock import MICROS_PER_SECOND, Instant

BURST_SECONDS = 2.0
"""Who was quiet for so long may catch up at once."""
UNKNOWN_PER_SECOND = 20.0
"""Keys, and sessions, that are not known here and that the store is asked for: who makes them up does not keep it busy."""


class Bucket:
    """Allows so many requests per second, and some at once after a quiet while."""

    __slots__ = ("_at", "_burst", "_left", "_per_micro")

    def __init__(self, requests_per_second: float, now: Instant) -> None:
        self._per_micro = requests_per_second / MICROS_PER_SECOND
        self._burst = max(1.0, requests_per_second * BURST_SECONDS)
        self._left = self._burst
        self._at = now

    def take(self, now: Instant) -> float:
        """0 when a request may go on; else how many seconds until one may, and nothing is taken."""
        if now > self._at:  # a clock that is put right may go back
            self._left = min(self._burst, self._left + (now - self._at) * self._per_micro)
        self._at = now
        if self._left >= 1.0:
            self._left -= 1.0
            return 0.0
        return (1.0 - self._left) / self._per_micro / MICROS_PER_SECOND
