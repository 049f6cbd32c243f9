"""Wait for several queues at once, with one long poll for each queue.

A wait ends when one poll is answered, but the other polls cannot be cancelled. They stay open, and the next wait uses
them. Otherwise a busy queue among idle ones would leave polls and threads behind with every batch.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait

Poll = Callable[[str, int], int]
"""Waits for a message after a seq of a queue, for a bounded time; returns the last seq."""


class Watch:
    """The open polls, by queue."""

    def __init__(self, poll: Poll, most_queues: int) -> None:
        self._poll = poll
        self._most = most_queues
        self._pool = ThreadPoolExecutor(most_queues, "skep-watch")
        self._polls: dict[str, Future[int]] = {}

    def news(self, start: Mapping[str, int], queues: Sequence[str], seconds: float) -> bool:
        """Whether a queue of this wait, or of an earlier one, got a message after ``start`` within so many seconds."""
        until = time.monotonic() + seconds
        while True:
            for queue in queues:
                if queue not in self._polls and len(self._polls) < self._most:
                    self._polls[queue] = self._pool.submit(self._poll, queue, start.get(queue, 0))
            heard, _ = wait(self._polls.values(), max(0.0, until - time.monotonic()), FIRST_COMPLETED)
            answers = {queue: poll.result() for queue, poll in self._polls.items() if poll in heard}
            for queue in answers:
                del self._polls[queue]
            if any(last > start.get(queue, 0) for queue, last in answers.items()):
                return True
            if not heard:
                return False
