"""A connection without a socket: what would go to the kernel, and what comes from it when the test says so."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any

import uvicorn
from uvicorn.server import ServerState

from skep.config import HttpLimits
from skep.http.connection.hosts import Hosts
from skep.http.connection.protocol import LimitedProtocol
from skep.http.connection.unsent import UnsentAnswers
from skep.http.request.call import Receive, Scope, Send
from skep.http.request.peers import PeerConnections, Peers


class Recorder(asyncio.Transport):
    """Notes what would go to the kernel, call by call, and whether the connection is read from."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[list[bytes]] = []
        self.closed = False
        self.aborted = False
        self.ended = False
        self.is_read = True

    @property
    def sent(self) -> bytes:
        """All that the client would see."""
        return b"".join(piece for call in self.calls for piece in call)

    def is_closing(self) -> bool:
        return self.closed

    def close(self) -> None:
        self.closed = True

    def abort(self) -> None:
        self.closed = self.aborted = True

    def write_eof(self) -> None:
        self.ended = True

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.calls.append([bytes(data)])

    def writelines(self, list_of_data: Iterable[bytes | bytearray | memoryview]) -> None:
        self.calls.append([bytes(data) for data in list_of_data])

    def get_write_buffer_size(self) -> int:
        return 0

    def pause_reading(self) -> None:
        self.is_read = False

    def resume_reading(self) -> None:
        self.is_read = True


async def no_app(scope: Scope, receive: Receive, send: Send) -> None:
    raise AssertionError("nothing is asked of it")


class Connected:
    """A client's connection to an application."""

    def __init__(self, app: Any = no_app, limits: HttpLimits | None = None) -> None:
        limits = limits or HttpLimits()
        config = uvicorn.Config(app, lifespan="off", ws="none", interface="asgi3", log_config=None)
        config.load()
        self.state = ServerState()
        self.state.default_headers = [(b"date", b"today")]
        self.protocol = LimitedProtocol(
            config, self.state, {}, limits=limits, hosts=Hosts(None, is_guarded=False), crowd=PeerConnections(Peers(""), 10),
            unsent=UnsentAnswers(limits.unsent_answers_bytes),
        )  # fmt: skip
        self.recorder = Recorder()
        self.protocol.connection_made(self.recorder)

    def send(self, data: bytes) -> None:
        """The client sends a piece."""
        self.protocol.data_received(data)

    def leave(self) -> None:
        """The client goes."""
        self.recorder.closed = True
        self.protocol.connection_lost(None)

    async def until_quiet(self) -> None:
        """Let every request that has begun end."""
        while tasks := self.state.tasks:
            await asyncio.wait(set(tasks))
