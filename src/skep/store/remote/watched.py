"""Queues that somebody waits at, each until an instant."""

from __future__ import annotations

from collections.abc import Iterable

from skep.clock import Instant
from skep.model import QueueKey


class Watched:
    """Who watches says so again before the time is over; what is over is dropped when it would outnumber the rest."""

    def __init__(self) -> None:
        self._until: dict[QueueKey, Instant] = {}
        self._kept = 0

    def add(self, keys: Iterable[QueueKey], until: Instant, now: Instant) -> None:
        """Watch these."""
        self._until.update(dict.fromkeys(keys, until))
        if len(self._until) > 2 * self._kept:
            self._until = self.live(now)
            self._kept = max(1, len(self._until))

    def has(self, key: QueueKey, now: Instant) -> bool:
        """Whether a call waits there."""
        return self._until.get(key, 0) > now

    def live(self, now: Instant) -> dict[QueueKey, Instant]:
        """All that are watched, and until when."""
        return {key: until for key, until in self._until.items() if until > now}
