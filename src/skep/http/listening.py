"""The listening server: uvicorn, with a stop that answers those who wait.

When it is told to stop it closes the listener first, then lets waiting pops be answered, then waits for what is under way.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable

import uvicorn

from skep.http.app import App

BACKLOG = 2_048
KEEP_ALIVE_SECONDS = 75
DRAIN_SECONDS = 30


class Listener(uvicorn.Server):
    """Serves one application on one address."""

    def __init__(self, app: App, host: str, port: int, before_drain: Callable[[], None]) -> None:
        super().__init__(
            uvicorn.Config(
                app,
                host=host,
                port=port,
                http="httptools",
                ws="none",
                lifespan="off",
                interface="asgi3",
                log_config=None,
                access_log=False,
                server_header=False,
                proxy_headers=False,
                backlog=BACKLOG,
                timeout_keep_alive=KEEP_ALIVE_SECONDS,
                timeout_graceful_shutdown=DRAIN_SECONDS,
            )
        )
        self._before_drain = before_drain
        self.listening = asyncio.Event()

    @property
    def port(self) -> int:
        """The port it listens on, also when it was told to choose one."""
        name: tuple[str, int] = self.servers[0].sockets[0].getsockname()
        return name[1]

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Listen."""
        await super().startup(sockets)
        self.listening.set()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Take no more connections, answer who waits, finish what is under way."""
        for server in self.servers:
            server.close()
        self._before_drain()
        await super().shutdown(sockets)
