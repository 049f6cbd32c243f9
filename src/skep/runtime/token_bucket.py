"""Rate limits: token buckets that this process keeps. A bucket holds some tokens and fills up evenly.

Times are those of `Clock.steady`, which never goes back. Each process has its own buckets, so two processes allow twice as much.
"""

from __future__ import annotations

from collections import OrderedDict

from skep.clock import MICROS_PER_SECOND, Instant

BUCKETS_MAX = 100_000
"""How many keys are remembered. Beyond that the longest unused one is forgotten, and starts with a full bucket."""


class TokenBucket:
    """``count`` tokens at once, and as many again in ``per_seconds``."""

    __slots__ = ("_at", "_interval", "_owed", "_span")

    def __init__(self, count: float, per_seconds: float) -> None:
        self._span = per_seconds * MICROS_PER_SECOND
        self._interval = self._span / count
        self._owed = 0.0
        """The microseconds that the bucket needed, at ``_at``, to fill up again."""
        self._at = Instant(0)

    def take(self, now: Instant) -> Instant:
        """Take a token; returns from when on it may be used, which is now unless the bucket is empty.

        From an empty bucket a token is taken in advance, so that waiting callers go one by one and not all at once.
        """
        self._owed, self._at = self._owed_at(now) + self._interval, now
        return Instant(now + max(0, round(self._owed - self._span)))

    def missing_seconds(self, now: Instant) -> float:
        """0 when there is a token, which is taken; else how many seconds until there will be one, and nothing is taken."""
        owed = self._owed_at(now) + self._interval
        missing = owed - self._span
        if missing >= 1:
            return missing / MICROS_PER_SECOND
        self._owed, self._at = owed, now
        return 0.0

    def is_full(self, now: Instant) -> bool:
        """Whether the bucket is full, as a new one is."""
        return self._owed_at(now) == 0

    def _owed_at(self, now: Instant) -> float:
        return max(0.0, self._owed - (now - self._at))


class TokenBuckets:
    """A bucket for each key."""

    def __init__(self, count: float, per_seconds: float) -> None:
        self._count = count
        self._per_seconds = per_seconds
        self._buckets: OrderedDict[str, TokenBucket] = OrderedDict()

    def take(self, key: str, now: Instant) -> Instant:
        """Take a token of a key; returns from when on it may be used."""
        bucket = self._buckets.get(key)
        if bucket is None:
            bucket = self._buckets[key] = TokenBucket(self._count, self._per_seconds)
        usable_at = bucket.take(now)
        self._buckets.move_to_end(key)
        self._forget(now)
        return usable_at

    def _forget(self, now: Instant) -> None:
        """Forget up to two buckets, the longest unused first: full ones, and any beyond `BUCKETS_MAX`."""
        for _ in range(2):
            key, bucket = next(iter(self._buckets.items()))
            if not bucket.is_full(now) and len(self._buckets) <= BUCKETS_MAX:
                return
            del self._buckets[key]
