"""Recent rates per second, from totals that are read now and then."""

from __future__ import annotations

from collections import deque

from skep.clock import MICROS_PER_SECOND, Instant, seconds

WINDOW_SECONDS = 60.0
STEP_SECONDS = 1.0
"""The least time between two remembered readings, which bounds memory."""


class Throughput:
    """The growth of totals over the last minute, or since the last reading before it."""

    def __init__(self, now: Instant) -> None:
        self._seen: deque[tuple[Instant, dict[str, int]]] = deque([(now, {})])

    def per_second(self, now: Instant, totals: dict[str, int]) -> dict[str, float]:
        """How fast each total grows."""
        while len(self._seen) > 1 and self._seen[1][0] <= now - seconds(WINDOW_SECONDS):
            self._seen.popleft()
        at, before = self._seen[0]
        elapsed = (now - at) / MICROS_PER_SECOND
        if now - self._seen[-1][0] >= seconds(STEP_SECONDS):
            self._seen.append((now, dict(totals)))
        if elapsed <= 0:
            return dict.fromkeys(totals, 0.0)
        return {name: (total - before.get(name, 0)) / elapsed for name, total in totals.items()}
