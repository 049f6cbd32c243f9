"""Several processes on one port: started in order, replaced when they die, and stopped together.

The sockets are bound here and inherited, so that no connection is refused while a worker is replaced. Each worker has
its own engine; all they share is the database. An SQLite file is held by one more process, the owner, which starts first and
ends last. A process whose supervisor has gone stops in order.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import socket
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import structlog

from skep.access import presence
from skep.config import ServerSettings
from skep.observe.tally import keep_of_ended
from skep.runtime.private_files import FILE_MODE
from skep.runtime.signals import stop_signals
from skep.server.children import Child, Children
from skep.server.compose import Owned, Sockets, announce
from skep.server.owner import OwnerOrder
from skep.server.process import ProcessOrder, close, describe, open_sockets
from skep.server.stores import sqlite_file

SOCKET_PATH_MAX = 100
"""The longest path of the owner's socket. Systems allow slightly more, but not all the same."""

log = structlog.get_logger("skep.server")


class Supervisor:
    """Keeps workers running until it is told to stop."""

    def __init__(
        self, settings: ServerSettings, sockets: Sockets, tally_folder: Path, to_owner: ToOwner | None
    ) -> None:
        """``to_owner`` is there when the store is an SQLite file."""
        self._settings = settings
        self._sockets = sockets
        self._tally_folder = tally_folder
        self._to_owner = to_owner
        self._owner = Children(log, "the owner of the store ended and is replaced")
        self._owned: Owned | None = None
        self._about = describe(settings, sockets)
        self._numbers = itertools.count(1)
        self._workers = Children(log, "a worker ended and is replaced")

    async def run(self) -> int:
        """Run until a signal comes; the exit status."""
        with stop_signals(self._stop, self._kill):
            status = await (self._run_workers() if self._to_owner is None else self._run_on_file(self._to_owner))
        if status == 0:
            log.info("stopped", pid=os.getpid())
        return status

    async def _run_on_file(self, to_owner: ToOwner) -> int:
        """Run the owner around the workers."""
        owner = await self._start_owner(to_owner)
        if not await owner.is_ready():
            return await owner.process.wait()
        database = to_owner.database
        keeping = asyncio.create_task(self._owner.keep(owner, lambda: self._start_owner(to_owner)))
        try:
            if self._workers.stopping.is_set():  # while the owner started: the sockets are closed
                return 0
            self._owned = Owned(to_owner.path, announce(self._sockets.main, database))
            return await self._run_workers()
        finally:
            presence.withdraw(presence.file_of(database))
            self._owner.stop()
            await keeping

    async def _run_workers(self) -> int:
        # One worker first: it migrates the store, and when the store cannot be opened, the reason is logged once.
        first = await self._start_worker()
        if not await first.is_ready():
            return await first.process.wait()
        workers = [first]
        stopping = self._workers.stopping
        while len(workers) < self._settings.workers and not stopping.is_set():
            workers.append(await self._start_worker())
        ready = await asyncio.gather(*(worker.is_ready() for worker in workers[1:]))
        if all(ready) and not stopping.is_set():
            log.info("listening", **self._about)
        await asyncio.gather(*(self._workers.keep(one, self._start_worker, self._note_ended) for one in workers))
        return 0

    async def _start_worker(self) -> Child:
        numbers = [bound.fileno() for bound in self._sockets.main]
        queen_numbers = [bound.fileno() for bound in self._sockets.queen]
        name = f"worker-{next(self._numbers)}"
        order = ProcessOrder(self._settings, numbers, queen_numbers, name, str(self._tally_folder), self._owned)
        return await self._workers.start(name, "skep.server.process", order, [*numbers, *queen_numbers])

    async def _start_owner(self, to_owner: ToOwner) -> Child:
        number = to_owner.listening.fileno()
        return await self._owner.start("owner", "skep.server.owner", OwnerOrder(self._settings, number), [number])

    def _note_ended(self, worker: Child) -> None:
        keep_of_ended(self._tally_folder, worker.name, self._settings.http.metrics_queues)

    def _stop(self) -> None:
        self._workers.stop()
        close([*self._sockets.main, *self._sockets.queen])

    def _kill(self) -> None:
        self._workers.kill()
        self._owner.kill()


class ToOwner(NamedTuple):
    """How workers reach the owner of an SQLite file. The socket is bound here, so that a restarted owner takes over waiting connections."""

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


def serve_with_workers(settings: ServerSettings) -> int:
    """Serve with several processes; the exit status."""
    sockets = open_sockets(settings)
    database = sqlite_file(settings)
    with contextlib.ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="skep-workers-"))
        to_owner = None if database is None else stack.enter_context(_way_to_owner(database))
        # The plain loop: it has next to nothing to do, and uvloop cannot put a process into a group of its own.
        return asyncio.run(Supervisor(settings, sockets, Path(folder), to_owner).run())
