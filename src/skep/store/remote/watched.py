"""Queues with waiting polls, each watched until an instant."""

from __future__ import annotations

from collections.abc import Iterable

from skep.clock import Instant
from skep.model import QueueKey


class Watched:
    """The watched queues. A watcher renews its watch before it ends. Ended watches are dropped once they may be half of all."""

    def __init__(self) -> None:
        self._until: dict[QueueKey, Instant] = {}
        self._kept = 0

    def add(self, keys: Iterable[QueueKey], until: Instant, now: Instant) -> None:
        """Watch these queues."""
        self._until.update(dict.fromkeys(keys, until))
        if len(self._until) > 2 * self._kept:
            self._until = self.live(now)
            self._kept = max(1, len(self._until))

    def has(self, key: QueueKey, now: Instant) -> bool:
        """Whether a queue is watched."""
        return self._until.get(key, 0) > now

    def live(self, now: Instant) -> dict[QueueKey, Instant]:
        """All watched queues, and the end of each watch."""
        return {key: until for key, until in self._until.items() if until > now}
