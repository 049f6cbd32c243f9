"""The size of a chore's pieces: as many messages as take a moment, by the time of the last piece.

A chore touches many messages and can be done in pieces: retention, promotion, replay, purge, sweeping. Each piece is a transaction of
its own, so that other calls come in between, and finished pieces stay done.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

FIRST = 100
"""The size of the first piece of a kind, before any was measured."""
LEAST = 20
"""The least size of a piece: a smaller piece would cost more than its messages."""
TOO_LONG = 10
"""A piece is long when it took this many times its target time."""
HELPED = 2 / 3
"""If a piece of at most half the size took more than this share of the time, the time does not depend on the messages."""


class Pieces:
    """The sizes of pieces, by the kind of chore."""

    def __init__(self, seconds: float) -> None:
        """``seconds`` is the target time of a piece."""
        self.seconds = seconds
        self._sizes: dict[str, int] = {}
        self._last: dict[str, tuple[int, float]] = {}
        self._long: set[str] = set()

    def size(self, kind: str, most: int) -> int:
        """How many messages the next piece may touch, at most ``most``."""
        return min(most, max(LEAST, self._sizes.get(kind, FIRST)))

    def is_long(self, kind: str) -> bool:
        """Whether the last piece took far too long."""
        return kind in self._long

    def measured(self, kind: str, most: int, work: Callable[[int], T], more: Callable[[T], bool]) -> T:
        """Do a piece, and measure its time."""
        size = self.size(kind, most)
        begun = time.perf_counter()
        done = work(size)
        self.took(kind, size, time.perf_counter() - begun, more(done))
        return done

    def took(self, kind: str, size: int, seconds: float, more: bool) -> None:
        """Make the next piece smaller when this one took too long; larger when it was short, and there is ``more`` to do.

        Larger also when a much smaller piece took hardly less time: then each piece has a high fixed cost, and fewer are better.
        """
        last_size, last_seconds = self._last.get(kind, (size, seconds))
        self._last[kind] = (size, seconds)
        if seconds <= self.seconds:
            if more and seconds * 2 < self.seconds:
                self._sizes[kind] = size * 2
        elif last_size >= size * 2 and seconds > last_seconds * HELPED:
            self._sizes[kind] = last_size * 2
        else:
            self._sizes[kind] = int(size * self.seconds / seconds)
        if seconds > self.seconds * TOO_LONG:
            self._long.add(kind)
        else:
            self._long.discard(kind)
