"""A histogram of latencies that costs a fraction of a microsecond to add to."""

from __future__ import annotations

from bisect import bisect_left

BOUNDS_SECONDS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
"""The upper bounds of the buckets; one more bucket has the calls that took longer."""


class Histogram:
    """The counts of calls by duration, and the sum of all durations."""

    __slots__ = ("buckets", "seconds")

    def __init__(self) -> None:
        self.buckets = [0] * (len(BOUNDS_SECONDS) + 1)
        self.seconds = 0.0

    def add(self, seconds: float) -> None:
        """Count one."""
        self.buckets[bisect_left(BOUNDS_SECONDS, seconds)] += 1
        self.seconds += seconds

    @property
    def count(self) -> int:
        """How many there were."""
        return sum(self.buckets)

    @property
    def mean_seconds(self) -> float:
        """The mean; 0 when there were none."""
        return self.seconds / (self.count or 1)

    def quantile_seconds(self, share: float) -> float:
        """The quantile ``share``, interpolated within its bucket."""
        rank = share * self.count
        below = 0
        for bucket, size in enumerate(self.buckets):
            if size and below + size >= rank:
                low = BOUNDS_SECONDS[bucket - 1] if bucket else 0.0
                # The last bucket has no upper bound, so its lower bound is returned.
                high = BOUNDS_SECONDS[bucket] if bucket < len(BOUNDS_SECONDS) else low
                return low + (high - low) * max(0.0, rank - below) / size
            below += size
        return 0.0
