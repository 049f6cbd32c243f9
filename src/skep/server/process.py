"""One serving process, from settings to exit: addresses, open files, signals, and the log line of its start.

Run as a module it is a worker of `skep.server.supervisor`: its order comes on stdin, and when stdin ends, the supervisor has gone.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import resource
import socket
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec
import structlog
from msgspec import Struct

import skep
from skep.config import ServerSettings
from skep.config.load import hide_password, without_password
from skep.errors import Code, SkepError
from skep.http.connection.address import bind, check_exposure, resolve, url_of
from skep.observe.tally import Tally
from skep.runtime.child import on_stdin_end, read_order, tell_ready
from skep.runtime.interpreter import exit_status, tune_interpreter
from skep.runtime.logs import configure_logs
from skep.runtime.loop import run
from skep.runtime.signals import stop_signals
from skep.server.compose import Owned, Sockets, serve
from skep.server.stores import MEMORY, is_shared

FILES_FOR_OTHERS = 256
"""Open files that are not connections of clients: the store's, the program's own."""

log = structlog.get_logger("skep.server")


class ProcessOrder(Struct):
    """The order to a worker: settings, the numbers of its inherited sockets, its name, and the folder of the counters.

    ``owned`` is there when the store is an SQLite file.
    """

    settings: ServerSettings
    sockets: list[int]
    queen_sockets: list[int]
    name: str
    tally_folder: str
    owned: Owned | None = None


def open_sockets(settings: ServerSettings) -> Sockets:
    """The sockets that the settings ask for, if the server may listen there."""
    if settings.workers > 1 and settings.store == MEMORY:
        raise SkepError(
            Code.INVALID_SETTING,
            f"what is in memory belongs to one process, so it cannot have {settings.workers} workers: use a file, "
            "--store postgresql://…, or one worker",
        )
    addresses = resolve(settings.host, settings.port)
    # Beyond loopback there is a gate, unless the settings switch it off.
    check_exposure(addresses, insecure=settings.insecure, authenticated=settings.access.required is not False)
    main = bind(addresses)
    if settings.queen_port is None:
        return Sockets(main)
    try:
        # A second socket could be bound there as long as nobody listens: the system takes this process for one that follows itself.
        if settings.queen_port == main[0].getsockname()[1]:
            raise SkepError(
                Code.INVALID_SETTING,
                f"{settings.queen_port} is the port of Skep's own interface: clients of Queen need another with --queen-port",
            )
        return Sockets(main, bind(resolve(settings.host, settings.queen_port), "--queen-port"))
    except SkepError:
        close(main)
        raise


def close(sockets: Sequence[socket.socket]) -> None:
    """Close sockets."""
    for bound in sockets:
        bound.close()


def describe(settings: ServerSettings, sockets: Sockets) -> dict[str, object]:
    """The fields of the log line about the start, without passwords."""
    queen = {"queen": ", ".join(url_of(bound) for bound in sockets.queen)} if sockets.queen else {}
    return {
        "address": ", ".join(url_of(bound) for bound in sockets.main),
        **queen,
        "store": "postgresql" if is_shared(settings.store or "") else "sqlite",
        "where": without_password(settings.store or settings.data_folder),
        "workers": settings.workers,
        "version": skep.__version__,
        "pid": os.getpid(),
    }


async def serve_here(
    settings: ServerSettings,
    sockets: Sockets,
    listening: Callable[[], None],
    tally: Tally | None = None,
    owned: Owned | None = None,
) -> None:
    """Serve in this process until a signal comes. One of several processes (with a ``tally``) also stops when stdin ends."""
    stop = asyncio.Event()
    tune_interpreter()
    with stop_signals(stop.set):
        if tally is not None:
            on_stdin_end(stop.set)
        try:
            await serve(with_room(settings), sockets, stop, listening, tally, owned=owned)
        except SkepError as error:
            raise SkepError(error.code, hide_password(error.message, settings.store or "")) from error
        log.info("stopped", pid=os.getpid())


def serve_alone(settings: ServerSettings) -> None:
    """Serve with one process: this one."""
    sockets = open_sockets(settings)
    about = describe(settings, sockets)
    run(serve_here(settings, sockets, lambda: log.info("listening", **about)))


def with_room(settings: ServerSettings) -> ServerSettings:
    """The settings, with fewer connections per port if the system's limit of open files does not allow as many."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
            soft = hard
    ports = 1 if settings.queen_port is None else 2
    room = (
        max(1, (soft - FILES_FOR_OTHERS) // ports) if soft != resource.RLIM_INFINITY else settings.http.max_connections
    )
    if room >= settings.http.max_connections:
        return settings
    log.warning("the limit of open files allows fewer connections than max_connections", connections=room)
    return msgspec.structs.replace(settings, http=msgspec.structs.replace(settings.http, max_connections=room))


def main() -> int:
    """Be a worker."""
    order = read_order(ProcessOrder)
    settings = order.settings
    configure_logs(settings.log_level, settings.log_format)
    sockets = Sockets(
        *([socket.socket(fileno=number) for number in part] for part in (order.sockets, order.queen_sockets))
    )

    def listening() -> None:
        log.info("worker listening", pid=os.getpid())
        tell_ready()

    try:
        run(serve_here(settings, sockets, listening, Tally(Path(order.tally_folder), order.name), order.owned))
    except SkepError as error:
        sys.stderr.write(f"skep: {error.shown}\n")
        return exit_status(error)
    return 0


if __name__ == "__main__":
    sys.exit(main())
