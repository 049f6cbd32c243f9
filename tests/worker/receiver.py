"""A real receiver of webhooks: it notes what it gets, byte by byte, and answers as it was told."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from msgspec import Struct

OK = b"HTTP/1.1 204 No Content\r\n\r\n"


class Received(Struct):
    """One request."""

    line: str
    headers: dict[str, str]
    body: bytes


class Receiver:
    """Where it is, what it got, and what it answers: the next of ``answers``, the last one for ever."""

    def __init__(self) -> None:
        self.port = 0
        self.secure = False
        self.received: list[Received] = []
        self.answers: list[bytes | None] = [OK]
        self.reads_body = True
        self.hangs_up = True
        self.arrived = asyncio.Condition()

    @property
    def url(self) -> str:
        return f"http{'s' if self.secure else ''}://127.0.0.1:{self.port}/hook?x=1"

    async def until(self, count: int) -> list[Received]:
        """Wait until that many requests have come."""
        async with self.arrived:
            await self.arrived.wait_for(lambda: len(self.received) >= count)
        return self.received

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode()
            line, *lines = head.strip().split("\r\n")
            headers = {name.lower(): value for name, value in (one.split(": ", 1) for one in lines)}
            body = await reader.readexactly(int(headers["content-length"])) if self.reads_body else b""
            async with self.arrived:
                self.received.append(Received(line, headers, body))
                self.arrived.notify_all()
            answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
            if answer is None:
                await reader.read()  # say nothing until the other one goes
            else:
                writer.write(answer)
                await writer.drain()
                if not self.hangs_up:
                    await reader.read()
        except (OSError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()


@asynccontextmanager
async def receiver(context: ssl.SSLContext | None = None) -> AsyncIterator[Receiver]:
    one = Receiver()
    server = await asyncio.start_server(one.serve, "127.0.0.1", 0, ssl=context)
    one.port = server.sockets[0].getsockname()[1]
    one.secure = context is not None
    try:
        yield one
    finally:
        server.close()
        await server.wait_closed()


def answer(status: int, reason: str = "", **headers: str) -> bytes:
    """An answer with these headers, underscores for dashes."""
    lines = [f"HTTP/1.1 {status} Whatever", *(f"{name.replace('_', '-')}: {value}" for name, value in headers.items())]
    body = reason.encode()
    return "\r\n".join([*lines, f"Content-Length: {len(body)}", "", ""]).encode() + body
