"""How large a piece of a chore is: so many messages as are done in a moment, going by how long the last piece took.

A chore is whatever touches many messages and can be done bit by bit: retention, promotion, replay, purge, sweeping. Each piece is a
transaction of its own, so that callers come in between, and what was done stays done.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

FIRST = 100
"""Messages of the first piece of a kind, before anything is known."""
TOO_LONG = 10
"""A piece that took so many times as long as it should cannot be made short: something else than its messages takes the time."""


class Pieces:
    """The sizes of pieces, by the kind of chore."""

    def __init__(self, seconds: float) -> None:
        """A piece should take about so many ``seconds``."""
        self._seconds = seconds
        self._sizes: dict[str, int] = {}
        self._long: set[str] = set()

    def size(self, kind: str, most: int) -> int:
        """How many messages the next piece may touch, at most ``most``."""
        return max(1, min(most, self._sizes.get(kind, FIRST)))

    def is_long(self, kind: str) -> bool:
        """Whether the last piece took far too long."""
        return kind in self._long

    def measured(self, kind: str, most: int, work: Callable[[int], T], more: Callable[[T], bool]) -> T:
        """Do a piece, and learn from how long it takes."""
        size = self.size(kind, most)
        begun = time.perf_counter()
        done = work(size)
        self.took(kind, size, time.perf_counter() - begun, more(done))
        return done

    def took(self, kind: str, size: int, seconds: float, more: bool) -> None:
        """Make the next piece smaller when this one took too long; larger when it was short, and there is ``more`` to do."""
        if seconds > self._seconds:
            self._sizes[kind] = max(1, int(size * self._seconds / seconds))
        elif more and seconds * 2 < self._seconds:
            self._sizes[kind] = size * 2
        if seconds > self._seconds * TOO_LONG:
            self._long.add(kind)
        else:
            self._long.discard(kind)
