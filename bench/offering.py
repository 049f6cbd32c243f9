"""An open loader: requests come at their rate, whether or not the earlier ones have been answered.

That is what overload is: users do not wait for each other. It runs in a process of its own, kept to one core. A request is sent at
once, over a connection that is open and free, and its time counts from then. When none is free it is not sent at all: how long it
would wait in the loader says nothing of the server.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from contextlib import suppress
from typing import cast

import asyncpg
from msgspec import Struct

from bench.apart import apart, taken_answer

TICK_SECONDS = 0.005
PATIENCE_SECONDS = 60.0
"""How long answers are waited for after the last request came."""
ACCEPTED = (200, 201, 202)
STORED = """
SELECT coalesce(sum((SELECT max(seq) FROM message WHERE queue_id = queue.id)), 0)::bigint FROM queue WHERE deleted_at IS NULL
"""


class Offer(Struct, frozen=True):
    """So many requests a second, taken from ``requests`` in turn, for so long, over so many connections.

    Without a rate a request comes whenever a connection is free. ``dsn`` is the server's database, whose messages are counted.
    """

    requests: list[bytes]
    seconds: float
    connections: int
    dsn: str
    per_second: float | None = None


class Answered(Struct):
    """What came of an offer.

    ``unsent`` requests found no free connection. ``statuses`` counts answers (0: none); ``accepted_seconds`` are the times of those
    that were accepted. ``stored`` messages came into the logs while the offer lasted, and ``cpu_share`` of its core the loader used then.
    """

    unsent: int = 0
    statuses: dict[int, int] = {}
    accepted_seconds: list[float] = []
    stored: int = 0
    cpu_share: float = 0.0

    @property
    def offered(self) -> int:
        """How many requests came."""
        return self.unsent + sum(self.statuses.values())

    @property
    def accepted(self) -> int:
        """How many requests were accepted."""
        return sum(self.statuses.get(status, 0) for status in ACCEPTED)


def offer(port: int, wanted: Offer) -> Answered:
    """Make the offer from a process of its own, on the last core."""
    return apart(_make, port, wanted)


async def _make(port: int, wanted: Offer) -> Answered:
    return await _Offering(port, wanted).make()


async def stored(database: asyncpg.Connection) -> int:
    """How many messages the logs have got, as the database itself says: the server is busy."""
    return int(await database.fetchval(STORED))


class _Offering:
    """The connections that are free, and what was answered."""

    def __init__(self, port: int, wanted: Offer) -> None:
        self._port = port
        self._wanted = wanted
        self._free: list[_Line] = []
        self._statuses: Counter[int] = Counter()
        self._accepted: list[float] = []
        self._unsent = 0
        self._sent = 0
        self._over = False
        self._last = asyncio.Event()

    async def make(self) -> Answered:
        loop = asyncio.get_running_loop()
        for _ in range(self._wanted.connections):
            _, line = await loop.create_connection(lambda: _Line(self), "127.0.0.1", self._port)
            self._free.append(line)
        database = await asyncpg.connect(self._wanted.dsn)
        try:
            before, cpu = await stored(database), time.process_time()
            await self._come()
            cpu = time.process_time() - cpu
            gained = await stored(database) - before
        finally:
            await database.close()
        with suppress(TimeoutError):
            await asyncio.wait_for(self._last.wait(), PATIENCE_SECONDS)
        self._statuses[0] += self._sent - self._statuses.total()
        return Answered(self._unsent, dict(self._statuses), self._accepted, gained, cpu / self._wanted.seconds)

    async def _come(self) -> None:
        """Let requests come until the time is up."""
        wanted = self._wanted
        started, came = time.perf_counter(), 0
        while (passed := time.perf_counter() - started) < wanted.seconds:
            due = len(self._free) if wanted.per_second is None else int(passed * wanted.per_second) - came
            came += due
            for _ in range(min(due, len(self._free))):
                self._send(self._free.pop())
                due -= 1
            self._unsent += due
            await asyncio.sleep(TICK_SECONDS)
        self._over = True
        self._see_end()

    def _see_end(self) -> None:
        if self._over and self._statuses.total() == self._sent:
            self._last.set()

    def _send(self, line: _Line) -> None:
        requests = self._wanted.requests
        line.ask(requests[self._sent % len(requests)])
        self._sent += 1

    def answered(self, line: _Line, status: int, seconds: float) -> None:
        """A request was answered, and its connection is free."""
        self._statuses[status] += 1
        if status in ACCEPTED:
            self._accepted.append(seconds)
        if self._wanted.per_second is None and not self._over:
            self._send(line)
        else:
            self._free.append(line)
        if self._over:
            self._see_end()


class _Line(asyncio.Protocol):
    """One connection."""

    def __init__(self, offering: _Offering) -> None:
        self._offering = offering
        self._received = bytearray()
        self._asked_at = 0.0
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is one in all but name

    def ask(self, request: bytes) -> None:
        """Send a request."""
        assert self._transport is not None
        self._asked_at = time.perf_counter()
        self._transport.write(request)

    def data_received(self, data: bytes) -> None:
        self._received += data
        if (answer := taken_answer(self._received)) is not None:
            self._offering.answered(self, answer[0], time.perf_counter() - self._asked_at)
