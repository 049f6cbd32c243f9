"""A worker process that is killed at a chosen point: it talks to the server through a relay that counts its requests."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable
from pathlib import Path
from urllib.parse import urlsplit

from tests.support.process import SkepProcess

_METHODS = (b"GET ", b"POST ", b"PUT ")


class Relay:
    """Passes requests on. When the wanted one (of those to ``path``) comes it calls ``kill``: before it is passed on, or once it is answered."""

    def __init__(self, url: str, wanted: int, *, answered: bool, kill: Callable[[], None], path: str = "") -> None:
        parts = urlsplit(url)
        self._target = (parts.hostname, parts.port)
        self._wanted = wanted
        self._answered = answered
        self._kill = kill
        self._path = path
        self.requests: list[str] = []
        self._server: asyncio.Server | None = None
        self._serving: set[asyncio.Task[None]] = set()

    async def start(self) -> str:
        """Begin; where it is."""
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        return f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    async def stop(self) -> None:
        assert self._server is not None
        self._server.close()
        for task in self._serving:
            task.cancel()
        await asyncio.gather(*self._serving, return_exceptions=True)

    async def _accept(self, client_in: asyncio.StreamReader, client_out: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._serving.add(task)
        server_in, server_out = await asyncio.open_connection(*self._target)
        doomed = asyncio.Event()
        pumps = [
            asyncio.create_task(self._requests(client_in, server_out, doomed)),
            asyncio.create_task(self._answers(server_in, client_out, doomed)),
        ]
        try:
            await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for pump in pumps:
                pump.cancel()
            await asyncio.gather(*pumps, return_exceptions=True)
            for writer in (client_out, server_out):
                writer.close()
            self._serving.discard(task)

    async def _requests(
        self, source: asyncio.StreamReader, target: asyncio.StreamWriter, doomed: asyncio.Event
    ) -> None:
        while data := await source.read(1 << 20):
            if data.startswith(_METHODS):
                self.requests.append(data.split(b" HTTP/")[0].decode().split("?")[0])
                if sum(self._path in one for one in self.requests) == self._wanted and self._path in self.requests[-1]:
                    if not self._answered:
                        self._kill()
                        return
                    doomed.set()
            target.write(data)
            await target.drain()

    async def _answers(self, source: asyncio.StreamReader, target: asyncio.StreamWriter, doomed: asyncio.Event) -> None:
        while data := await source.read(1 << 20):
            if doomed.is_set():
                self._kill()
                return
            target.write(data)
            await target.drain()


async def killed_at(url: str, spec: Path, tenant: str, wanted: int, *, answered: bool) -> tuple[list[str], int]:
    """Run ``skep work`` until nothing is left or until it is killed at a request; what it asked for, and how it ended."""
    process: SkepProcess | None = None

    def kill() -> None:
        assert process is not None
        os.kill(process.pid, signal.SIGKILL)

    relay = Relay(url, wanted, answered=answered, kill=kill)
    address = await relay.start()
    process = SkepProcess(
        "work", str(spec), "--url", address, "--tenant", tenant, "--until-empty", "--log-level", "error"
    )
    status = await asyncio.to_thread(process.wait, 60)
    await relay.stop()
    return relay.requests, status
