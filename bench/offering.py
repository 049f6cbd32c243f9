"""An open loader: requests come at their rate, whether or not the earlier ones have been answered.

That is what overload is: users do not wait for each other. It runs in a process of its own, kept to one core. A request that
finds no free connection waits for one, and its time counts from when it came.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter, deque
from typing import cast

from msgspec import Struct

from bench.apart import apart, taken_answer

TICK_SECONDS = 0.005
PATIENCE_SECONDS = 60.0
"""How long answers are waited for after the last request came."""


class Offer(Struct, frozen=True):
    """So many requests a second, taken from ``requests`` in turn, for so long, over so many connections."""

    requests: list[bytes]
    per_second: float
    seconds: float
    connections: int


class Answered(Struct):
    """How many requests came, what they were answered with (0: nothing), and how long those took that were accepted."""

    offered: int = 0
    statuses: dict[int, int] = {}
    accepted_seconds: list[float] = []


def offer(port: int, wanted: Offer) -> Answered:
    """Make the offer from a process of its own, on the last core."""
    return apart(_make, port, wanted)


async def _make(port: int, wanted: Offer) -> Answered:
    return await _Offering(port, wanted).make()


class _Offering:
    """The requests that have come and the connections that are free."""

    def __init__(self, port: int, wanted: Offer) -> None:
        self._port = port
        self._wanted = wanted
        self._came: deque[float] = deque()
        self._free: list[_Line] = []
        self._statuses: Counter[int] = Counter()
        self._accepted: list[float] = []
        self._answered = 0
        self._sent = 0

    async def make(self) -> Answered:
        loop = asyncio.get_running_loop()
        for _ in range(self._wanted.connections):
            _, line = await loop.create_connection(lambda: _Line(self), "127.0.0.1", self._port)
            self._free.append(line)
        started, offered = time.perf_counter(), 0
        while (passed := time.perf_counter() - started) < self._wanted.seconds:
            due = int(passed * self._wanted.per_second)
            self._came.extend([time.perf_counter()] * (due - offered))
            offered = max(offered, due)
            self._send()
            await asyncio.sleep(TICK_SECONDS)
        give_up = time.perf_counter() + PATIENCE_SECONDS
        while self._answered < offered and time.perf_counter() < give_up:
            self._send()
            await asyncio.sleep(TICK_SECONDS)
        self._statuses[0] += offered - self._answered
        return Answered(offered, dict(self._statuses), self._accepted)

    def _send(self) -> None:
        requests = self._wanted.requests
        while self._came and self._free:
            self._free.pop().ask(requests[self._sent % len(requests)], self._came.popleft())
            self._sent += 1

    def answered(self, line: _Line, status: int, came_at: float) -> None:
        """A request was answered, and its connection is free."""
        self._answered += 1
        self._statuses[status] += 1
        if status in (200, 201, 202):
            self._accepted.append(time.perf_counter() - came_at)
        self._free.append(line)
        self._send()


class _Line(asyncio.Protocol):
    """One connection."""

    def __init__(self, offering: _Offering) -> None:
        self._offering = offering
        self._received = bytearray()
        self._came_at = 0.0
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is one in all but name

    def ask(self, request: bytes, came_at: float) -> None:
        """Send a request that came at this moment."""
        assert self._transport is not None
        self._came_at = came_at
        self._transport.write(request)

    def data_received(self, data: bytes) -> None:
        self._received += data
        if (answer := taken_answer(self._received)) is not None:
            self._offering.answered(self, answer[0], self._came_at)
