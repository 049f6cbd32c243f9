"""The proxy between clients and servers: what it does to connections, beside cutting them."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from torture.proxy import Proxy

PATIENCE_SECONDS = 20.0


class Echo:
    """A server that sends back what it gets. ``closed`` is set when a client has closed its connection."""

    def __init__(self) -> None:
        self.closed = asyncio.Event()
        self.got = b""

    async def serve(self, source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
        while data := await source.read(4_096):
            self.got += data
            target.write(data)
        self.closed.set()
        target.close()


@asynccontextmanager
async def proxied() -> AsyncIterator[tuple[Echo, Proxy, int]]:
    """A server, the proxy before it, and the proxy's port."""
    echo = Echo()
    server = await asyncio.start_server(echo.serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    async with asyncio.timeout(PATIENCE_SECONDS), server, Proxy(f"tcp://127.0.0.1:{port}") as proxy:
        yield echo, proxy, int(proxy.dsn.rpartition(":")[2])


async def test_slow_connections_keep_the_order_of_their_bytes() -> None:
    sent = random.Random(1).randbytes(200_000)
    async with proxied() as (_, proxy, port):
        proxy.slow_down(random.Random(2), 0.005)
        source, target = await asyncio.open_connection("127.0.0.1", port)
        target.write(sent)
        got = await source.readexactly(len(sent))
        target.close()

    assert got == sent


async def test_a_lost_connection_carries_nothing_and_nobody_is_told() -> None:
    async with proxied() as (echo, proxy, port):
        source, target = await asyncio.open_connection("127.0.0.1", port)
        target.write(b"before")
        assert await source.readexactly(6) == b"before"
        proxy.abandon()
        target.write(b"lost")
        target.close()
        other_source, other_target = await asyncio.open_connection("127.0.0.1", port)
        other_target.write(b"after")

        assert await other_source.readexactly(5) == b"after"  # a new connection works
        assert echo.got == b"beforeafter"
        assert not echo.closed.is_set()
        other_target.close()
        await echo.closed.wait()  # of the second one


async def test_the_end_of_the_proxy_ends_lost_connections() -> None:
    async with proxied() as (echo, proxy, port):
        source, target = await asyncio.open_connection("127.0.0.1", port)
        target.write(b"before")
        await source.readexactly(6)
        proxy.abandon()

    assert await source.read() == b""
    await asyncio.wait_for(echo.closed.wait(), PATIENCE_SECONDS)
    target.close()
