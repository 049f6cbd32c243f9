"""Several processes on one port: started in order, replaced when they die, and stopped together.

The sockets are bound here and inherited, so that no connection is refused while a worker is replaced. Each worker has
its own engine and pool; all they share is the database. A worker whose supervisor has gone stops in order.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import sys
import time
from asyncio.subprocess import PIPE, Process

import msgspec
import structlog

from skep.config import ServerSettings
from skep.serving import Order, describe, open_sockets
from skep.signals import stop_signals

STEADY_SECONDS = 10.0
"""A worker that lived this long did not die of its start; its successor is started at once."""
FIRST_PAUSE_SECONDS = 0.1
LONGEST_PAUSE_SECONDS = 10.0

log = structlog.get_logger("skep.server")


class Supervisor:
    """Keeps workers running until it is told to stop."""

    def __init__(self, settings: ServerSettings, sockets: list[socket.socket]) -> None:
        self._settings = settings
        self._sockets = sockets
        self._about = describe(settings, sockets)
        self._workers: dict[int, Process] = {}
        self._stopping = asyncio.Event()

    async def run(self) -> int:
        """Run until a signal comes; the exit status."""
        with stop_signals(self._stop, self._kill):
            # One first: it migrates the store, and says once what is wrong when it cannot be opened.
            first = await self._start()
            if not await self._is_ready(first):
                return await first.wait()
            keeping = [asyncio.create_task(self._keep(first))]
            others = [await self._start() for _ in range(1, self._settings.workers)]
            ready = await asyncio.gather(*(self._is_ready(worker) for worker in others))
            keeping += [asyncio.create_task(self._keep(worker)) for worker in others]
            if all(ready) and not self._stopping.is_set():
                log.info("listening", **self._about)
            await asyncio.gather(*keeping)
        log.info("stopped", pid=os.getpid())
        return 0

    async def _keep(self, worker: Process) -> None:
        pause = 0.0
        while True:
            started = time.monotonic()
            status = await self._ended(worker)
            if self._stopping.is_set():
                return
            lived = time.monotonic() - started
            pause = 0.0 if lived >= STEADY_SECONDS else min(max(pause * 2, FIRST_PAUSE_SECONDS), LONGEST_PAUSE_SECONDS)
            log.warning("a worker ended and is replaced", pid=worker.pid, status=status)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._stopping.wait(), pause)
            if self._stopping.is_set():
                return
            worker = await self._start()
            await self._is_ready(worker)

    async def _start(self) -> Process:
        numbers = [bound.fileno() for bound in self._sockets]
        worker = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "skep.serving", stdin=PIPE, stdout=PIPE, pass_fds=numbers,
            # In a group of its own: Ctrl-C on a terminal reaches the supervisor only, which passes it on once.
            process_group=0,
        )  # fmt: skip
        self._workers[worker.pid] = worker
        assert worker.stdin is not None
        worker.stdin.write(msgspec.json.encode(Order(self._settings, numbers)) + b"\n")
        return worker

    async def _is_ready(self, worker: Process) -> bool:
        """Wait until it listens or has ended."""
        assert worker.stdout is not None
        if self._stopping.is_set():
            self._signal(worker, signal.SIGTERM)
        return bool(await worker.stdout.readline())

    async def _ended(self, worker: Process) -> int:
        status = await worker.wait()
        self._workers.pop(worker.pid, None)
        return status

    def _stop(self) -> None:
        self._stopping.set()
        for bound in self._sockets:
            bound.close()
        for worker in list(self._workers.values()):
            self._signal(worker, signal.SIGTERM)

    def _kill(self) -> None:
        for worker in list(self._workers.values()):
            self._signal(worker, signal.SIGKILL)

    def _signal(self, worker: Process, number: int) -> None:
        # Through the process, which knows when it was waited for; its number may then be another's.
        with contextlib.suppress(ProcessLookupError):
            worker.send_signal(number)


def serve_with_workers(settings: ServerSettings) -> int:
    """Serve with several processes; the exit status."""
    # The plain loop: it has next to nothing to do, and uvloop cannot put a process into a group of its own.
    return asyncio.run(Supervisor(settings, open_sockets(settings)).run())
