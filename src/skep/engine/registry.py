"""The logical queues of this server: made on demand, dropped when idle."""

from __future__ import annotations

from collections.abc import Callable

from skep.clock import Clock, Instant, seconds
from skep.config import EngineSettings
from skep.engine.logical_queue import LogicalQueue
from skep.model import QueueKey

EVICTION_LOOKS = 16
"""How many of the least recently used queues are checked for idle ones, when a new queue needs room."""


class Registry:
    """Finds the one logical queue of a key. Only queues that are in use can exceed the limit."""

    def __init__(self, make: Callable[[QueueKey], LogicalQueue], clock: Clock, settings: EngineSettings) -> None:
        self._make = make
        self._clock = clock
        self._most = settings.limits.logical_queues
        self._idle = seconds(settings.idle_seconds)
        self._queues: dict[QueueKey, LogicalQueue] = {}

    def __len__(self) -> int:
        return len(self._queues)

    def get(self, key: QueueKey) -> LogicalQueue:
        """The logical queue of a key, made if need be."""
        queue = self._queues.get(key)
        if queue is None:
            self._make_room()
            queue = self._queues[key] = self._make(key)
        queue.is_used = True
        return queue

    def peek(self, key: QueueKey) -> LogicalQueue | None:
        """The logical queue of a key, if there is one."""
        return self._queues.get(key)

    def wake(self, key: QueueKey) -> None:
        """Wake polls of a queue, as messages may have become ready."""
        queue = self._queues.get(key)
        if queue is not None:
            queue.wake()

    def look_anew(self) -> None:
        """Wake all polls and watch all queues again, as the store may have gone back to an earlier state."""
        for queue in self._queues.values():
            queue.watched_until = Instant(0)
            queue.wake()

    async def drained(self) -> None:
        """Return once no store call is under way."""
        for queue in list(self._queues.values()):
            await queue.drained()

    @property
    def wait_seconds(self) -> float:
        """The longest wait in any queue."""
        return max((queue.wait_seconds for queue in self._queues.values()), default=0.0)

    def tick(self, now: Instant) -> None:
        """Drop queues that were idle for long, and sort the others by last use, so that `_make_room` drops from the front."""
        queues, self._queues = self._queues, {}
        for queue in queues.values():
            if queue.is_used:  # since the last tick; exact enough, and a call need not read the clock
                queue.is_used, queue.used_at = False, now
        for key, queue in sorted(queues.items(), key=lambda entry: entry[1].used_at):
            if not queue.idle or queue.used_at + self._idle > now:
                self._queues[key] = queue

    def _make_room(self) -> None:
        if len(self._queues) < self._most:
            return
        oldest = [queue for queue, _ in zip(self._queues.values(), range(EVICTION_LOOKS), strict=False)]
        for queue in oldest:
            if queue.idle:
                del self._queues[queue.key]
