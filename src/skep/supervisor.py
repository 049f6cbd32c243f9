"""Several processes on one port: started in order, replaced when they die, and stopped together.

The sockets are bound here and inherited, so that no connection is refused while a worker is replaced. Each worker has
its own engine and pool; all they share is the database. A worker whose supervisor has gone stops in order.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import signal
import socket
import sys
import tempfile
import time
from asyncio.subprocess import PIPE, Process
from pathlib import Path
from typing import NamedTuple

import msgspec
import structlog

from skep.config import ServerSettings
from skep.observe.tally import keep_of_ended
from skep.serving import Order, describe, open_sockets
from skep.signals import stop_signals

STEADY_SECONDS = 10.0
"""A worker that lived this long did not die of its start; its successor is started at once."""
FIRST_PAUSE_SECONDS = 0.1
LONGEST_PAUSE_SECONDS = 10.0

log = structlog.get_logger("skep.server")


class Worker(NamedTuple):
    """A process that serves; its name is never another's."""

    name: str
    process: Process


class Supervisor:
    """Keeps workers running until it is told to stop."""

    def __init__(self, settings: ServerSettings, sockets: list[socket.socket], tally_folder: Path) -> None:
        self._settings = settings
        self._sockets = sockets
        self._tally_folder = tally_folder
        self._about = describe(settings, sockets)
        self._numbers = itertools.count(1)
        self._workers: dict[str, Worker] = {}
        self._stopping = asyncio.Event()

    async def run(self) -> int:
        """Run until a signal comes; the exit status."""
        with stop_signals(self._stop, self._kill):
            # One first: it migrates the store, and says once what is wrong when it cannot be opened.
            first = await self._start()
            if not await _is_ready(first):
                return await first.process.wait()
            workers = [first]
            while len(workers) < self._settings.workers and not self._stopping.is_set():
                workers.append(await self._start())
            ready = await asyncio.gather(*(_is_ready(worker) for worker in workers[1:]))
            if all(ready) and not self._stopping.is_set():
                log.info("listening", **self._about)
            await asyncio.gather(*(self._keep(worker) for worker in workers))
        log.info("stopped", pid=os.getpid())
        return 0

    async def _keep(self, worker: Worker) -> None:
        """Replace a worker whenever it ends, after a pause that grows while its successors end soon as well."""
        pause = 0.0
        while True:
            started = time.monotonic()
            status = await self._ended(worker)
            if self._stopping.is_set():
                return
            is_steady = time.monotonic() - started >= STEADY_SECONDS
            pause = 0.0 if is_steady else min(max(pause * 2, FIRST_PAUSE_SECONDS), LONGEST_PAUSE_SECONDS)
            log.warning("a worker ended and is replaced", pid=worker.process.pid, status=status)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._stopping.wait(), pause)
            if self._stopping.is_set():
                return
            worker = await self._start()
            await _is_ready(worker)

    async def _start(self) -> Worker:
        numbers = [bound.fileno() for bound in self._sockets]
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "skep.serving", stdin=PIPE, stdout=PIPE, pass_fds=numbers,
            # In a group of its own: Ctrl-C on a terminal reaches the supervisor only, which passes it on once.
            process_group=0,
        )  # fmt: skip
        worker = Worker(f"worker-{next(self._numbers)}", process)
        self._workers[worker.name] = worker
        if self._stopping.is_set():
            _signal(worker, signal.SIGTERM)
        order = Order(self._settings, numbers, worker.name, str(self._tally_folder))
        assert process.stdin is not None
        process.stdin.write(msgspec.json.encode(order) + b"\n")
        return worker

    async def _ended(self, worker: Worker) -> int:
        status = await worker.process.wait()
        del self._workers[worker.name]
        keep_of_ended(self._tally_folder, worker.name, self._settings.http.metrics_queues)
        return status

    def _stop(self) -> None:
        self._stopping.set()
        for bound in self._sockets:
            bound.close()
        for worker in self._workers.values():
            _signal(worker, signal.SIGTERM)

    def _kill(self) -> None:
        for worker in list(self._workers.values()):
            _signal(worker, signal.SIGKILL)


async def _is_ready(worker: Worker) -> bool:
    """Wait until it listens, or has ended without."""
    assert worker.process.stdout is not None
    return bool(await worker.process.stdout.readline())


def _signal(worker: Worker, number: int) -> None:
    # Through the process, which knows when it was waited for; its number may then be another's.
    with contextlib.suppress(ProcessLookupError):
        worker.process.send_signal(number)


async def _run(settings: ServerSettings, sockets: list[socket.socket], tally_folder: Path) -> int:
    return await Supervisor(settings, sockets, tally_folder).run()


def serve_with_workers(settings: ServerSettings) -> int:
    """Serve with several processes; the exit status."""
    sockets = open_sockets(settings)
    with tempfile.TemporaryDirectory(prefix="skep-workers-") as folder:
        # The plain loop: it has next to nothing to do, and uvloop cannot put a process into a group of its own.
        return asyncio.run(_run(settings, sockets, Path(folder)))
