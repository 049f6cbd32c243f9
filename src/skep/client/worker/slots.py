"""Slots: they limit the chains in work. A waiting chain gives its slot away and lines up for another."""

from __future__ import annotations

import asyncio
from collections import deque


class Slots:
    """A counted number of slots, given out in the order they were asked for."""

    def __init__(self, count: int) -> None:
        self.count = count
        self._taken = 0
        self._line: deque[asyncio.Future[None]] = deque()
        self._watching: list[asyncio.Future[None]] = []

    @property
    def free(self) -> int:
        """How many slots can be taken now. Chains in line come first."""
        return max(0, self.count - self._taken - len(self._line))

    def take(self) -> None:
        """Take a slot. After a pop of more messages than free slots, the number may exceed the limit."""
        self._taken += 1

    async def wait_for_one(self) -> None:
        """Line up, and take a slot."""
        if self._taken < self.count:
            self._taken += 1
            return
        ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._line.append(ready)
        await ready

    def give_back(self) -> None:
        """Give a slot back: the first in line gets it."""
        while self._line:
            ready = self._line.popleft()
            if not ready.done():
                ready.set_result(None)
                return
        self._taken -= 1
        watching, self._watching = self._watching, []
        for one in watching:
            if not one.done():
                one.set_result(None)

    def changed(self) -> asyncio.Future[None]:
        """A future that is done when the next slot is given back."""
        one: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._watching.append(one)
        return one
