"""A TCP proxy that treats a connection badly: cuts it after so many bytes, stalls it, slows it down, loses it without a word, refuses it.

Bytes are counted from when the proxy is told, so that a test can cut a call at every point of its conversation.
"""

from __future__ import annotations

import asyncio
import random
from contextlib import suppress
from types import TracebackType
from typing import Self
from urllib.parse import urlsplit, urlunsplit

CHUNK_BYTES = 65_536


class Proxy:
    """Stands between a client and the server of a dsn.

    ``sent`` and ``received`` are what went to and came from the server since the last `count`.
    """

    def __init__(self, dsn: str) -> None:
        parts = urlsplit(dsn)
        assert parts.hostname is not None
        assert parts.port is not None
        self._parts = parts
        self._target = (parts.hostname, parts.port)
        self._server: asyncio.Server | None = None
        self._writers: set[asyncio.StreamWriter] = set()
        self._pumps: set[asyncio.Task[None]] = set()
        self._accepting: set[asyncio.Task[None]] = set()
        self._flowing = asyncio.Event()
        self._flowing.set()
        self._refusing = False
        self._slow: tuple[random.Random, float] | None = None
        self._lines = 0
        self._lost_lines = 0
        self._limits: dict[str, int | None] = {"sent": None, "received": None}
        self._bytes = {"sent": 0, "received": 0}
        self.cuts = 0
        self.was_cut = asyncio.Event()
        """Set at the first cut by a limit."""
        self.held_back = asyncio.Event()
        """Set when something is held back by `stall`."""

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._server is not None
        self._server.close()
        self._flowing.set()
        self.cut()
        await asyncio.gather(*self._pumps, *self._accepting, return_exceptions=True)
        await self._server.wait_closed()

    @property
    def dsn(self) -> str:
        """The address of the same database by way of the proxy."""
        assert self._server is not None
        port = self._server.sockets[0].getsockname()[1]
        user = f"{self._parts.username}@" if self._parts.username else ""
        return urlunsplit(self._parts._replace(netloc=f"{user}127.0.0.1:{port}"))

    @property
    def sent(self) -> int:
        return self._bytes["sent"]

    @property
    def received(self) -> int:
        return self._bytes["received"]

    def count(self) -> None:
        """Begin to count anew, with no limit."""
        self.cut_after(None, None)

    def cut_after(self, sent: int | None, received: int | None) -> None:
        """Cut all connections once so many more bytes have gone to the server, or have come from it."""
        self._bytes = {"sent": 0, "received": 0}
        self._limits = {"sent": sent, "received": received}

    def cut(self) -> None:
        """Cut all connections now."""
        for writer in self._writers:
            writer.transport.abort()

    def lead_to(self, dsn: str) -> None:
        """Lead whoever connects from now on to another server; who is connected stays where he is."""
        parts = urlsplit(dsn)
        assert parts.hostname is not None
        assert parts.port is not None
        self._target = (parts.hostname, parts.port)

    def stall(self) -> None:
        """Let nothing through, without a word, until `resume`."""
        self.held_back.clear()
        self._flowing.clear()

    def resume(self) -> None:
        self._flowing.set()

    def slow_down(self, chance: random.Random, most_seconds: float) -> None:
        """Pass everything on in pieces, each after a pause of up to so long, until `speed_up`. What one side sends stays in order."""
        self._slow = (chance, most_seconds)

    def speed_up(self) -> None:
        self._slow = None

    def abandon(self) -> None:
        """Let nothing through on the connections that are open now, for ever, and tell neither side, not even that the other one closed."""
        self._lost_lines = self._lines

    def refuse(self, refusing: bool = True) -> None:
        """Hang up on whoever connects."""
        self._refusing = refusing

    async def _accept(self, client_in: asyncio.StreamReader, client_out: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._accepting.add(task)
        task.add_done_callback(self._accepting.discard)
        if self._refusing:
            client_out.transport.abort()
            return
        try:
            server_in, server_out = await asyncio.open_connection(*self._target)
        except OSError:
            client_out.transport.abort()
            return
        self._writers |= {client_out, server_out}
        self._lines += 1
        line = self._lines
        pumps = [
            asyncio.ensure_future(self._pump(line, client_in, server_out, "sent")),
            asyncio.ensure_future(self._pump(line, server_in, client_out, "received")),
        ]
        self._pumps.update(pumps)
        await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
        if self._is_lost(line):
            await asyncio.wait(pumps)
        # Ended by one side or by a limit; what was let through until then still arrives.
        for writer in (client_out, server_out):
            writer.close()
        await asyncio.gather(*pumps, return_exceptions=True)
        self._writers -= {client_out, server_out}
        self._pumps.difference_update(pumps)

    def _is_lost(self, line: int) -> bool:
        return line <= self._lost_lines

    async def _pump(self, line: int, source: asyncio.StreamReader, target: asyncio.StreamWriter, way: str) -> None:
        with suppress(OSError):
            while True:
                data = await source.read(CHUNK_BYTES)
                if not data:
                    return
                if not self._flowing.is_set():
                    self.held_back.set()
                await self._flowing.wait()
                if self._slow is not None:
                    data = await self._first_late(data, target, way, *self._slow)
                if self._is_lost(line):
                    continue
                limit = self._limits[way]
                room = len(data) if limit is None else limit - self._bytes[way]
                target.write(data[: max(0, room)])
                await target.drain()
                self._bytes[way] += min(len(data), max(0, room))
                if room < len(data):
                    self.cuts += 1
                    self.was_cut.set()
                    return

    async def _first_late(
        self, data: bytes, target: asyncio.StreamWriter, way: str, chance: random.Random, most_seconds: float
    ) -> bytes:
        """Pass on a first piece after a pause; the rest, which comes after another pause, is returned."""
        await asyncio.sleep(chance.uniform(0.0, most_seconds))
        size = chance.randrange(len(data))
        target.write(data[:size])
        self._bytes[way] += size
        await asyncio.sleep(chance.uniform(0.0, most_seconds))
        return data[size:]
