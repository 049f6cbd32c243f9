"""The demand for connections: calls that have one and calls that wait. Exact, and as a moving average; and the expected wait."""

from __future__ import annotations

import math
import time

AVERAGED_SECONDS = 0.25


class Demand:
    """A context manager around each call, from its wish for a connection until it gives the connection back.

    The average fades exponentially. As the level is constant between changes, the average is exact whenever it is read, and costs
    nothing in between.
    """

    def __init__(self) -> None:
        self.present = 0
        self._average = 0.0
        self._since = time.monotonic()
        self._served = 0.0
        self._served_at = self._since

    def __enter__(self) -> None:
        self._average = self.average()
        if not self.present:
            self._served_at = self._since
        self.present += 1

    def __exit__(self, *raised: object) -> None:
        self._average = self.average()
        self.present -= 1
        self._served += 1.0
        self._served_at = self._since

    def average(self) -> float:
        """How many calls wanted a connection lately."""
        now = time.monotonic()
        faded = math.exp((self._since - now) / AVERAGED_SECONDS)
        self._since = now
        self._average = self.present + (self._average - self.present) * faded
        self._served *= faded
        return self._average

    def wait_seconds(self, room: int) -> float:
        """The expected wait of another call in a pool of ``room`` connections: the calls ahead of it, at the recent rate."""
        waiting = self.average() - room
        if waiting <= 0 or self.present <= room:
            return 0.0
        since_last = self._since - self._served_at
        # At a steady rate the faded count is the rate times AVERAGED_SECONDS. With fewer than one, the rate is not known yet.
        each = AVERAGED_SECONDS / self._served if self._served >= 1 else 0.0
        return waiting * max(each, since_last)
