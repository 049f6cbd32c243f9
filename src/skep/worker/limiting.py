"""Rate limits: at most so many messages in so long, for each key, as a token bucket that this process keeps.

A bucket holds ``count`` tokens and fills up evenly over ``per_seconds``. Whoever finds none is told when there will be one, and has
a place in line: the token is taken in advance, so that those who wait go one by one and not all at once.
"""

from __future__ import annotations

from collections import OrderedDict

from skep.clock import MICROS_PER_SECOND, Instant

BUCKETS_MAX = 100_000
"""Keys that are remembered. Beyond that the one that was not seen for longest is forgotten, and starts afresh."""


class Limiter:
    """The buckets of one queue. A bucket is one number: when all that it promised has been filled up again."""

    def __init__(self, count: int, per_seconds: float) -> None:
        self._interval = per_seconds * MICROS_PER_SECOND / count
        self._span = per_seconds * MICROS_PER_SECOND
        self._full_at: OrderedDict[str, float] = OrderedDict()

    def take(self, key: str, now: Instant) -> Instant:
        """Take a token; returns from when on it may be used, which is now unless the bucket is empty."""
        full_at = max(float(now), self._full_at.get(key, 0.0)) + self._interval
        self._full_at[key] = full_at
        self._full_at.move_to_end(key)
        self._forget(now)
        return Instant(max(now, round(full_at - self._span)))

    def _forget(self, now: Instant) -> None:
        """A bucket that is full again says nothing; at most two are looked at, the longest unseen first."""
        for _ in range(2):
            key, full_at = next(iter(self._full_at.items()), ("", 0.0))
            if not self._full_at or (full_at > now and len(self._full_at) <= BUCKETS_MAX):
                return
            del self._full_at[key]
