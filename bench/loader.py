"""An HTTP loader: many connections from one process, with as little work per request as Python allows.

Each connection runs a script: a generator that yields the bytes of a request and is sent the status and body of its answer. It
runs in a process of its own, kept to one core, so that it takes nothing from the server but that core.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Generator
from functools import partial
from typing import cast

from msgspec import Struct

from bench.apart import apart, taken_answer

Script = Generator[bytes, tuple[int, bytes], None]


class Load(Struct, frozen=True):
    """What to drive a server with: a script per connection, until so many messages were moved or the time is up."""

    script: Callable[..., Script]
    arguments: tuple[object, ...]
    connections: int
    messages: int = 1 << 62
    seconds: float = 3600.0


class Driven(Struct):
    """What came of it: requests answered, how long each took, and messages moved, which the scripts count."""

    requests: int = 0
    messages: int = 0
    seconds: float = 0.0
    latencies: list[float] = []

    @property
    def requests_per_second(self) -> float:
        """The rate of requests."""
        return self.requests / self.seconds

    @property
    def messages_per_second(self) -> float:
        """The rate of messages."""
        return self.messages / self.seconds


def drive(port: int, load: Load) -> Driven:
    """Run a load in a process of its own, on the last core."""
    return apart(_drive, port, load)


async def _drive(port: int, load: Load) -> Driven:
    loop = asyncio.get_running_loop()
    driven = Driven()
    over: asyncio.Future[None] = loop.create_future()
    started = time.perf_counter()
    loop.call_later(load.seconds, _end, over)
    for number in range(load.connections):
        line = _Line(load.script(number, driven, *load.arguments), driven, load.messages, over)
        await loop.create_connection(partial(_same, line), "127.0.0.1", port)
    await over
    driven.seconds = time.perf_counter() - started
    return driven


def _same(line: _Line) -> _Line:
    return line


def _end(over: asyncio.Future[None], error: Exception | None = None) -> None:
    if not over.done():
        over.set_result(None) if error is None else over.set_exception(error)


class _Line(asyncio.Protocol):
    """One connection at work."""

    def __init__(self, script: Script, driven: Driven, goal: int, over: asyncio.Future[None]) -> None:
        self._script = script
        self._driven = driven
        self._goal = goal
        self._over = over
        self._received = bytearray()
        self._asked_at = 0.0
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is one in all but name
        self._ask(next(self._script))

    def _ask(self, request: bytes) -> None:
        assert self._transport is not None
        self._asked_at = time.perf_counter()
        self._transport.write(request)

    def data_received(self, data: bytes) -> None:
        self._received += data
        if (answer := taken_answer(self._received)) is not None:
            self._answered(*answer)

    def _answered(self, status: int, body: bytes) -> None:
        self._driven.requests += 1
        self._driven.latencies.append(time.perf_counter() - self._asked_at)
        try:
            request = self._script.send((status, body))
        except Exception as error:
            _end(self._over, error)
            return
        if self._driven.messages >= self._goal:
            _end(self._over)
        elif not self._over.done():
            self._ask(request)

    def connection_lost(self, exc: Exception | None) -> None:
        _end(self._over, exc or ConnectionError("the server closed the connection"))
