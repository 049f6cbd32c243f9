"""Several processes on one port: started in order, replaced when they die, and stopped together.

The sockets are bound here and inherited, so that no connection is refused while a worker is replaced. Each worker has
its own engine; all they share is the database. An SQLite file is had by one more process, the owner, which is started first and
ends last. A process whose supervisor has gone stops in order.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import socket
import sys
import tempfile
import time
from asyncio.subprocess import PIPE, Process
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import msgspec
import structlog

from skep.access import presence
from skep.config import ServerSettings
from skep.observe.tally import keep_of_ended
from skep.runtime.private_files import FILE_MODE
from skep.runtime.signals import stop_signals
from skep.server.compose import Owned, announce, sqlite_file
from skep.server.owner import OwnerOrder
from skep.server.process import ProcessOrder, describe, open_sockets

STEADY_SECONDS = 10.0
"""A worker that lived this long did not die of its start; its successor is started at once."""
FIRST_PAUSE_SECONDS = 0.1
LONGEST_PAUSE_SECONDS = 10.0
SOCKET_PATH_MAX = 100
"""A system takes a little more, and not every system the same."""
OWNER_ENDED = "the owner of the store ended and is replaced"

log = structlog.get_logger("skep.server")


class Worker(NamedTuple):
    """A process that serves, or the owner of the store; its name is never another's."""

    name: str
    process: Process


class Supervisor:
    """Keeps workers running until it is told to stop."""

    def __init__(
        self, settings: ServerSettings, sockets: list[socket.socket], tally_folder: Path, to_owner: ToOwner | None
    ) -> None:
        """``to_owner`` is there when the store is an SQLite file."""
        self._settings = settings
        self._sockets = sockets
        self._tally_folder = tally_folder
        self._to_owner = to_owner
        self._owner: Worker | None = None
        self._owned: Owned | None = None
        self._about = describe(settings, sockets)
        self._numbers = itertools.count(1)
        self._workers: dict[str, Worker] = {}
        self._stopping = asyncio.Event()

    async def run(self) -> int:
        """Run until a signal comes; the exit status."""
        with stop_signals(self._stop, self._kill):
            status = await (self._run_workers() if self._to_owner is None else self._run_on_file(self._to_owner))
        if status == 0:
            log.info("stopped", pid=os.getpid())
        return status

    async def _run_on_file(self, to_owner: ToOwner) -> int:
        """Run the owner around the workers."""
        owner = await self._start_owner()
        if not await _is_ready(owner):
            return await owner.process.wait()
        database = to_owner.database
        self._owned = Owned(to_owner.path, announce(self._sockets, database))
        keeping = asyncio.create_task(self._keep(owner, self._start_owner))
        try:
            return await self._run_workers()
        finally:
            presence.withdraw(presence.file_of(database))
            self._stopping.set()
            if self._owner is not None:
                _stop_in_order(self._owner)
            await keeping

    async def _run_workers(self) -> int:
        # One first: it migrates the store, and says once what is wrong when it cannot be opened.
        first = await self._start_worker()
        if not await _is_ready(first):
            return await first.process.wait()
        workers = [first]
        while len(workers) < self._settings.workers and not self._stopping.is_set():
            workers.append(await self._start_worker())
        ready = await asyncio.gather(*(_is_ready(worker) for worker in workers[1:]))
        if all(ready) and not self._stopping.is_set():
            log.info("listening", **self._about)
        await asyncio.gather(*(self._keep(worker, self._start_worker) for worker in workers))
        return 0

    async def _keep(self, worker: Worker, start: Callable[[], Awaitable[Worker]]) -> None:
        """Replace a process whenever it ends, after a pause that grows while its successors end soon as well."""
        pause = 0.0
        while True:
            started = time.monotonic()
            status = await self._ended(worker)
            if self._stopping.is_set():
                return
            is_steady = time.monotonic() - started >= STEADY_SECONDS
            pause = 0.0 if is_steady else min(max(pause * 2, FIRST_PAUSE_SECONDS), LONGEST_PAUSE_SECONDS)
            told = OWNER_ENDED if worker is self._owner else "a worker ended and is replaced"
            log.warning(told, pid=worker.process.pid, status=status)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._stopping.wait(), pause)
            if self._stopping.is_set():
                return
            worker = await start()
            await _is_ready(worker)

    async def _start_worker(self) -> Worker:
        numbers = [bound.fileno() for bound in self._sockets]
        name = f"worker-{next(self._numbers)}"
        order = ProcessOrder(self._settings, numbers, name, str(self._tally_folder), self._owned)
        worker = self._workers[name] = await _started(name, "skep.server.process", numbers, order)
        if self._stopping.is_set():
            _stop_in_order(worker)
        return worker

    async def _start_owner(self) -> Worker:
        assert self._to_owner is not None
        number = self._to_owner.listening.fileno()
        order = OwnerOrder(self._settings, number)
        self._owner = await _started("owner", "skep.server.owner", [number], order)
        return self._owner

    async def _ended(self, worker: Worker) -> int:
        status = await worker.process.wait()
        if self._workers.pop(worker.name, None) is not None:
            keep_of_ended(self._tally_folder, worker.name, self._settings.http.metrics_queues)
        return status

    def _stop(self) -> None:
        self._stopping.set()
        for bound in self._sockets:
            bound.close()
        for worker in self._workers.values():
            _stop_in_order(worker)

    def _kill(self) -> None:
        for worker in (*self._workers.values(), self._owner):
            if worker is not None:
                _kill(worker)


async def _started(name: str, module: str, sockets: list[int], order: ProcessOrder | OwnerOrder) -> Worker:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", module, stdin=PIPE, stdout=PIPE, pass_fds=sockets,
        # In a group of its own: Ctrl-C on a terminal reaches the supervisor only, which passes it on once.
        process_group=0,
    )  # fmt: skip
    assert process.stdin is not None
    process.stdin.write(msgspec.json.encode(order) + b"\n")
    return Worker(name, process)


async def _is_ready(worker: Worker) -> bool:
    """Wait until it listens, or has ended without."""
    assert worker.process.stdout is not None
    return bool(await worker.process.stdout.readline())


def _stop_in_order(worker: Worker) -> None:
    # Not by a signal: whoever stops all processes of a service at once has sent it one already, and a second one means "now".
    assert worker.process.stdin is not None
    worker.process.stdin.close()


def _kill(worker: Worker) -> None:
    # Through the process, which knows when it was waited for; its number may then be another's.
    with contextlib.suppress(ProcessLookupError):
        worker.process.kill()


class ToOwner(NamedTuple):
    """How workers reach the owner of an SQLite file. The socket is bound here, so that one that is started anew takes who waits."""

    database: Path
    path: str
    listening: socket.socket


@contextlib.contextmanager
def _way_to_owner(database: Path) -> Iterator[ToOwner]:
    """A socket in a folder for this account alone."""
    with contextlib.ExitStack() as stack:
        path = stack.enter_context(tempfile.TemporaryDirectory(prefix="skep-owner-")) + "/store"
        if len(path) > SOCKET_PATH_MAX:
            path = stack.enter_context(tempfile.TemporaryDirectory(prefix="skep-owner-", dir="/tmp")) + "/store"
        listening = stack.enter_context(socket.socket(socket.AF_UNIX))
        listening.bind(path)
        Path(path).chmod(FILE_MODE)
        listening.listen()
        yield ToOwner(database, path, listening)


async def _run(
    settings: ServerSettings, sockets: list[socket.socket], tally_folder: Path, to_owner: ToOwner | None
) -> int:
    return await Supervisor(settings, sockets, tally_folder, to_owner).run()


def serve_with_workers(settings: ServerSettings) -> int:
    """Serve with several processes; the exit status."""
    sockets = open_sockets(settings)
    database = sqlite_file(settings)
    with contextlib.ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="skep-workers-"))
        to_owner = None if database is None else stack.enter_context(_way_to_owner(database))
        # The plain loop: it has next to nothing to do, and uvloop cannot put a process into a group of its own.
        return asyncio.run(_run(settings, sockets, Path(folder), to_owner))
