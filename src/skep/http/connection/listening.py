"""The listening server: uvicorn, with limits on its connections, and a stop that answers waiting pops.

A stop closes the listener first, then answers waiting pops, then waits for running requests. The server handles no signals: its
caller sets `should_exit`, and `force_exit` when there is no more time.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, cast

import structlog
import uvicorn
from starlette.types import ASGIApp

from skep.config import HttpLimits
from skep.http.connection.hosts import Hosts
from skep.http.connection.protocol import LimitedProtocol
from skep.http.connection.refusal import TellRefusal
from skep.http.connection.unsent import UnsentAnswers
from skep.http.request.peers import PeerConnections, Peers
from skep.http.request.statuses import error_answer

BACKLOG = 2_048
PEERS = 4
"""By default, this many client addresses together may have all connections."""
DRAIN_SECONDS = 30.0
DRAIN_LOOK_SECONDS = 0.02

log = structlog.get_logger("skep.http")


class Listener(uvicorn.Server):
    """Serves one application on bound sockets."""

    def __init__(
        self,
        app: ASGIApp,
        sockets: Sequence[socket.socket],
        *,
        before_drain: Callable[[], None],
        limits: HttpLimits | None = None,
        hosts: Hosts | None = None,
        drain_seconds: float = DRAIN_SECONDS,
        tell_refusal: TellRefusal = error_answer,
    ) -> None:
        limits = limits or HttpLimits()
        hosts = hosts or Hosts(limits.hosts, is_guarded=False)
        most = limits.peer_connections or max(1, limits.max_connections // PEERS)
        crowd = PeerConnections(Peers(limits.trusted_proxies), most)
        unsent = UnsentAnswers(limits.unsent_answers_bytes)
        protocol = partial(
            LimitedProtocol, limits=limits, hosts=hosts, crowd=crowd, unsent=unsent, tell_refusal=tell_refusal
        )
        super().__init__(
            uvicorn.Config(
                # uvicorn's types for ASGI and Starlette's describe the same thing
                cast("Any", app),
                http=cast("Any", protocol),
                ws="none",
                lifespan="off",
                interface="asgi3",
                log_config=None,
                access_log=False,
                server_header=False,
                proxy_headers=False,
                backlog=BACKLOG,
            )
        )
        self._sockets = list(sockets)
        self._before_drain = before_drain
        self._drain_seconds = drain_seconds
        self.listening = asyncio.Event()

    @property
    def port(self) -> int:
        """The port it listens on, also when it was told to choose one."""
        name: tuple[str, int] = self._sockets[0].getsockname()
        return name[1]

    async def listen(self) -> None:
        """Serve until told to stop."""
        await self.serve(sockets=self._sockets)

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Signals are left alone."""
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Listen."""
        await super().startup(sockets)
        self.listening.set()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Accept no more connections, answer waiting pops, finish running requests."""
        for server in self.servers:
            server.close()
        for bound in sockets or []:
            bound.close()
        for connection in list(self.server_state.connections):
            connection.shutdown()
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._drain_seconds
        while (self.server_state.connections or self.server_state.tasks) and not self.force_exit:
            if loop.time() >= deadline:
                self._give_up()
                break
            # Again and again, since a request that had only just arrived may have begun to wait meanwhile.
            self._before_drain()
            await asyncio.sleep(DRAIN_LOOK_SECONDS)

    def _give_up(self) -> None:
        left = list(self.server_state.connections)
        log.warning("requests were still under way when the time for a stop was over", connections=len(left))
        for connection in left:
            connection.transport.abort()
