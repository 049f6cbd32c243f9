"""A receiver of deliveries: it takes what workers post, fails at times, and notes every request."""

from __future__ import annotations

import asyncio
import random
import time
from contextlib import suppress
from types import TracebackType
from typing import Self

from msgspec import Struct

from skep.clock import SystemClock
from skep.ids import Id, parse_id
from skep.model import QueueKey
from torture.history import Call

FAILURES = 0.15
"""The share of requests that fail."""
MOST_FAILURES_IN_A_ROW = 3
"""An endpoint that fails five times in a row rests, and a round would have to wait for it."""
SLOWNESS = 0.05
SLOW_SECONDS = 0.2
TAKEN = 200
HEAD_BYTES = 65_536


class Receipt(Struct, frozen=True):
    """One message as it was posted."""

    queue: QueueKey
    id: Id
    payload: bytes


class Receiver:
    """Takes posts whose path names the queue. A call is answered when it was answered well; ``ended`` is before the answer is sent."""

    def __init__(self, seed: str) -> None:
        self._chance = random.Random(seed)
        self._failures = 0
        self._calls: list[Call] = []
        self._clock = SystemClock()
        self._server: asyncio.Server | None = None

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._take, "127.0.0.1", 0, limit=HEAD_BYTES)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._server is not None
        self._server.close()
        await self._server.wait_closed()

    @property
    def url(self) -> str:
        assert self._server is not None
        return f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    def calls(self) -> list[Call]:
        """What came since the last time, and is forgotten now."""
        found, self._calls = self._calls, []
        return found

    async def _take(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        started, now = time.monotonic_ns(), self._clock.now()
        with suppress(OSError, asyncio.IncompleteReadError):
            receipt = await _receipt(reader)
            if self._chance.random() < SLOWNESS:
                await asyncio.sleep(SLOW_SECONDS)
            answer = self.answer()
            is_well = answer == TAKEN
            ended = time.monotonic_ns() if is_well else None
            self._calls.append(Call("receiver", "receive", started, ended, now, receipt, is_well))
            if answer is not None:
                writer.write(f"HTTP/1.1 {answer} \r\nContent-Length: 0\r\nConnection: close\r\n\r\n".encode())
                await writer.drain()
        writer.close()

    def answer(self) -> int | None:
        """The status of the next answer; None for a connection that ends without one."""
        if self._failures < MOST_FAILURES_IN_A_ROW and self._chance.random() < FAILURES:
            self._failures += 1
            return self._chance.choice((500, 404, 429, None))
        self._failures = 0
        return TAKEN


async def _receipt(reader: asyncio.StreamReader) -> Receipt:
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in head[1:])}
    body = await reader.readexactly(int(headers["content-length"]))
    return Receipt(QueueKey(head[0].split(" ")[1].lstrip("/")), parse_id(headers["webhook-id"]), body)
