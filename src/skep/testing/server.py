"""A whole Skep server in a thread of the test's own process: with a real socket, and a store and clock of your choice."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from functools import partial
from typing import Any, TypeVar

from skep.clock import Clock, SystemClock
from skep.config import AccessSettings, EngineSettings, HttpLimits
from skep.crypto.master import MasterKeys
from skep.http.app import HttpApp
from skep.http.connection.address import bind, resolve
from skep.http.connection.hosts import Hosts
from skep.http.connection.listening import Listener
from skep.http.connection.refusal import TellRefusal
from skep.http.queen.app import QueenApp
from skep.http.queen.door import refuse as tell_queens_client
from skep.http.request.statuses import error_answer
from skep.server.compose import Opened, open_gate, open_server, pages_of
from skep.webhooks.functions import FunctionsByName

T = TypeVar("T")
START_SECONDS = 30
QUIET_SECONDS = 60
"""How long a server may take to do what is due; after that the test fails instead of hanging."""
LOOK_SECONDS = 0.001


class RunningServer:
    """A running server: its URL, and its parts for tests that look behind the wire."""

    def __init__(
        self, listeners: Sequence[Listener], app: HttpApp, opened: Opened, loop: asyncio.AbstractEventLoop
    ) -> None:
        listener = listeners[0]
        self.port = listener.port
        self.url = f"http://127.0.0.1:{self.port}"
        self.queen_url = f"http://127.0.0.1:{listeners[-1].port}"
        """The URL for clients of Queen, on a server that serves them."""
        self.app = app
        self.engine = opened.engine
        self.catalogue = opened.catalogue
        self.schedules = opened.schedules
        self._listener = listener
        self._loop = loop

    @property
    def connections(self) -> int:
        """The number of open connections."""
        return len(self._listener.server_state.connections)

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine in the server's own loop, such as a call of its engine."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    def until_quiet(self) -> None:
        """Wait until the server has done what is due by its clock: scheduled messages are in the log, old ones have expired."""

        async def quiet() -> None:
            async with asyncio.timeout(QUIET_SECONDS):
                while not (self.engine.is_quiet and self.schedules.is_quiet):  # noqa: ASYNC110 - the engine has no such event
                    await asyncio.sleep(LOOK_SECONDS)

        self.run(quiet())


def _listening(
    limits: HttpLimits | None,
    hosts: Hosts,
    app: HttpApp | QueenApp,
    end_polls: Callable[[], None],
    tell_refusal: TellRefusal,
) -> Listener:
    sockets = bind(resolve("127.0.0.1", 0))
    return Listener(app, sockets, before_drain=end_polls, limits=limits, hosts=hosts, tell_refusal=tell_refusal)


@contextmanager
def running_server(
    store: str = ":memory:",
    *,
    clock: Clock | None = None,
    settings: EngineSettings | None = None,
    limits: HttpLimits | None = None,
    environment: Mapping[str, str] | None = None,
    functions: FunctionsByName | None = None,
    access: AccessSettings | None = None,
    masters: MasterKeys | None = None,
    queen: bool = False,
) -> Iterator[RunningServer]:
    """Run a server on a free port of loopback, and stop it in order at the end of the block.

    ``environment`` has the secrets of its apps. ``functions`` run the commands of webhooks (`skep.worker.inline`). ``access`` turns
    on authentication. ``masters`` wrap the keys of encrypted queues. ``queen`` opens a second port, for clients of Queen.
    """
    clock = clock or SystemClock()
    started: Future[RunningServer] = Future()
    listeners: list[Listener] = []

    async def main() -> None:
        async with open_server(store, settings, clock=clock, environment=environment, masters=masters) as opened:
            engine = opened.engine
            gate = None if access is None else await open_gate(engine, clock, access, is_exposed=False)
            app = HttpApp(
                engine, opened.catalogue, limits, functions=functions, pages=pages_of(engine, gate=gate), gate=gate
            )
            names = None if limits is None else limits.hosts
            hosts = Hosts(names, is_guarded=gate is not None)
            listening = partial(_listening, limits, hosts)
            listeners.append(listening(app, engine.end_polls, error_answer))
            if queen:
                door = QueenApp(app, engine)
                listeners.append(listening(door, door.end_polls, tell_queens_client))
            serving = [asyncio.create_task(listener.listen()) for listener in listeners]
            for listener in listeners:
                await listener.listening.wait()
            started.set_result(RunningServer(listeners, app, opened, asyncio.get_running_loop()))
            await asyncio.gather(*serving)

    def body() -> None:
        try:
            asyncio.run(main())
        except BaseException as error:  # the thread that waits for the start raises it
            if started.done():
                raise
            started.set_exception(error)

    thread = threading.Thread(target=body, name="skep-server")
    thread.start()
    try:
        yield started.result(START_SECONDS)
    finally:
        for listener in listeners:
            listener.should_exit = True
        thread.join()
