"""How many want a connection at once, those who have one and those who wait: exactly, and averaged over a moment."""

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

    def __enter__(self) -> None:
        self._average = self.average()
        self.present += 1

    def __exit__(self, *raised: object) -> None:
        self._average = self.average()
        self.present -= 1

    def average(self) -> float:
        """How many wanted one lately."""
        now = time.monotonic()
        faded = math.exp((self._since - now) / AVERAGED_SECONDS)
        self._since = now
        self._average = self.present + (self._average - self.present) * faded
        return self._average
