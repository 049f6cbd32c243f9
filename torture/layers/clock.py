"""The layer `clock`: the clocks of one process, and its main thread."""

from __future__ import annotations

import time
from pathlib import Path

from torture.layers import Layer

CELLS = ("wall_ns", "drift_ppm", "drift_since_ns", "drift_wall_ns", "monotonic_ns", "block_ns", "blocked")
"""As clock.c has them."""
_MILLION = 1_000_000


class ProcessClock:
    """The clocks of a process that was started with the layer. What is given in seconds is added to what it is ahead by already."""

    def __init__(self, process: str, folder: Path) -> None:
        self.layer = Layer("clock", process, CELLS, folder)

    def put(self, seconds: float) -> None:
        """Put the wall clock ahead, or back; it goes on as before from there."""
        self.layer.write(wall_ns=self.layer.read("wall_ns") + _ns(seconds))

    def drift(self, rate: float) -> None:
        """Let the wall clock go at another rate from now on: 1 is the right one, and at 0 it stands still."""
        now, wall = time.monotonic_ns(), time.time_ns()
        ahead = self.layer.read("wall_ns")
        if self.layer.read("drift_ppm"):
            passed = now - self.layer.read("drift_since_ns")
            gained = passed * (_MILLION + self.layer.read("drift_ppm")) // _MILLION
            ahead += self.layer.read("drift_wall_ns") + gained - wall
        ppm = round((rate - 1) * _MILLION)
        self.layer.write(wall_ns=ahead, drift_ppm=ppm, drift_since_ns=now, drift_wall_ns=wall)

    def suspend(self, seconds: float) -> None:
        """Put all clocks ahead at once, as a machine that wakes up does."""
        self.layer.write(
            wall_ns=self.layer.read("wall_ns") + _ns(seconds),
            monotonic_ns=self.layer.read("monotonic_ns") + _ns(seconds),
        )

    def set_right(self) -> None:
        """Let the wall clock be what it would be without `put` and `drift`: after a `suspend` that is ahead of the machine's."""
        self.layer.write(wall_ns=self.layer.read("monotonic_ns"), drift_ppm=0)

    def block(self, seconds: float) -> None:
        """Block the main thread for so long as soon as it waits for events. Other threads go on."""
        self.layer.write(block_ns=_ns(seconds))

    @property
    def blocks(self) -> int:
        """How many blocks of the main thread are over."""
        return self.layer.read("blocked")


def _ns(seconds: float) -> int:
    return round(seconds * 1e9)
