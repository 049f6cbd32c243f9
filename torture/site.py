"""What a run works on: a real server process on loopback, the PostgreSQL below it if there is one, and a proxy before it."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys
from contextlib import AsyncExitStack, suppress
from pathlib import Path
from types import TracebackType
from typing import Literal, Self

from skep.client import AsyncClient
from skep.errors import SkepError
from skep.testing.postgres import PostgresServer
from torture.proxy import Proxy

StoreName = Literal["sqlite", "postgres"]
START_SECONDS = 60.0
STOP_SECONDS = 30.0
LOOK_SECONDS = 0.02


class Server:
    """`skep serve` as a process. Its port and its store stay the same from the first start to the last."""

    def __init__(self, store: str, folder: Path) -> None:
        self._store = store
        self._folder = folder
        self._process: subprocess.Popen[bytes] | None = None
        self.port = free_port()
        self.starts = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    async def start(self) -> None:
        """Start it, and return once it answers."""
        self._launch()
        self.starts += 1
        async with AsyncClient(self.url, attempts=1, breaker_failures=10**9) as client, asyncio.timeout(START_SECONDS):
            while True:
                with suppress(SkepError):
                    await client.request("GET", "/health")
                    return
                if self.has_ended:
                    raise RuntimeError(f"the server ended by itself: {self.last_words()}")
                await asyncio.sleep(LOOK_SECONDS)

    def _launch(self) -> None:
        environment = {name: value for name, value in os.environ.items() if not name.startswith("SKEP_")}
        with (self._folder / "server.log").open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-m", "skep", "serve", "--store", self._store, "--port", str(self.port)],
                cwd=self._folder,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )

    @property
    def pid(self) -> int | None:
        """Its process id while it runs."""
        return None if self._process is None or self._process.poll() is not None else self._process.pid

    @property
    def has_ended(self) -> bool:
        return self._process is None or self._process.poll() is not None

    def last_words(self) -> str:
        return (self._folder / "server.log").read_text(errors="replace")[-2000:]

    def send(self, number: signal.Signals) -> None:
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(number)

    async def ended(self) -> None:
        """Wait for its end; one that takes too long is killed."""
        if self._process is not None:
            try:
                await asyncio.to_thread(self._process.wait, STOP_SECONDS)
            except subprocess.TimeoutExpired:
                self.kill()

    def kill(self) -> None:
        """End it at once, in the midst of whatever it does."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


class Site:
    """Server, proxy and, for that store, PostgreSQL. Clients connect by way of the proxy."""

    def __init__(self, store: StoreName, folder: Path) -> None:
        self.store = store
        self.folder = folder
        self.postgres: PostgresServer | None = None
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> Self:
        address = str(self.folder / "torture.db")
        if self.store == "postgres":
            self.postgres = PostgresServer()
            self._stack.callback(self.postgres.close)
            self.postgres.start()
            address = self.postgres.create_database()
        self.server = Server(address, self.folder)
        self._stack.callback(self.server.kill)
        await self.server.start()
        self.proxy = await self._stack.enter_async_context(Proxy(self.server.url))
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._stack.aclose()

    @property
    def url(self) -> str:
        return self.proxy.dsn
