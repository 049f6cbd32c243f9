"""How many want a connection at once, those who have one and those who wait: exactly, and averaged over a moment; and how long one waits."""

from __future__ import annotations

import math
import time

AVERAGED_SECONDS = 0.25


class Demand:
    """Entered by whoever wants a connection, and left with it.

    The average is that of a level that stays what it is between changes, with the past fading exponentially, so it is
    exact whenever it is asked for and costs nothing in between.
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
        """How many wanted one lately."""
        now = time.monotonic()
        faded = math.exp((self._since - now) / AVERAGED_SECONDS)
        self._since = now
        self._average = self.present + (self._average - self.present) * faded
        self._served *= faded
        return self._average

    def wait_seconds(self, room: int) -> float:
        """How long one more would wait, who finds ``room`` for so many: those in front of it, at the rate at which they left lately."""
        waiting = self.average() - room
        if waiting <= 0 or self.present <= room:
            return 0.0
        since_last = self._since - self._served_at
        # The faded count of a steady rate is that rate times the time of fading. Of a few the rate is not known yet.
        each = AVERAGED_SECONDS / self._served if self._served >= 1 else 0.0
        return waiting * max(each, since_last)
