"""The owner: the process that holds the SQLite file for the workers of a server. It serves the store's verbs to them only.

It is started by `skep.server.supervisor` before the workers: its order comes on stdin, and when stdin ends, the supervisor has gone. Told to
stop, it stays until the last worker has left, since each of them finishes first what it has begun.
"""

from __future__ import annotations

import asyncio
import os
import socket
import sys

import structlog
from msgspec import Struct

from skep.clock import SystemClock
from skep.config import ServerSettings
from skep.errors import SkepError
from skep.runtime.child import on_stdin_end, read_order, tell_ready
from skep.runtime.interpreter import exit_status, tune_interpreter
from skep.runtime.logs import configure_logs
from skep.runtime.loop import run
from skep.runtime.signals import stop_signals
from skep.server.stores import open_store, store_url
from skep.store.remote.owner import Owner

log = structlog.get_logger("skep.server")


class OwnerOrder(Struct):
    """The order to the owner: settings, and the number of the socket that it inherits."""

    settings: ServerSettings
    socket: int


async def own(settings: ServerSettings, listening: socket.socket) -> None:
    """Hold the store until a signal comes, or stdin ends."""
    stop = asyncio.Event()
    tune_interpreter()
    with stop_signals(stop.set):
        on_stdin_end(stop.set)
        clock = SystemClock()
        store = open_store(store_url(settings), clock)
        await store.open()
        try:
            owner = Owner(store, clock)
            await owner.listen(listening)
            log.info("owner of the store listening", pid=os.getpid())
            tell_ready()
            await stop.wait()
            await owner.idle()
            await owner.close()
        finally:
            await store.close()


def main() -> int:
    """Be the owner."""
    order = read_order(OwnerOrder)
    configure_logs(order.settings.log_level, order.settings.log_format)
    try:
        run(own(order.settings, socket.socket(fileno=order.socket)))
    except SkepError as error:
        sys.stderr.write(f"skep: {error.shown}\n")
        return exit_status(error)
    return 0


if __name__ == "__main__":
    sys.exit(main())
