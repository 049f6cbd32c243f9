"""`skep run`: a server in this process, the app applied to it, and worker processes that are replaced when they die.

A stop begins with the workers: they finish their running messages and return the rest. Then the server drains.
"""

from __future__ import annotations

import asyncio
import os
import secrets
from concurrent.futures import ThreadPoolExecutor

import structlog

from skep.client.async_client import AsyncClient
from skep.config import ServerSettings
from skep.config.load import hide_password
from skep.errors import Code, SkepError
from skep.http.connection.address import local_url
from skep.runtime.signals import stop_signals
from skep.server.children import Child, Children
from skep.server.compose import Sockets, serve
from skep.server.process import describe, open_sockets, with_room
from skep.spec import secret_problems
from skep.worker import App
from skep.worker.inline import inline_functions
from skep.worker.loading import load_app
from skep.worker.plan import plans
from skep.worker.process import WorkerOrder

FUNCTION_THREADS = 32
"""The number of threads for plain (not async) functions of webhooks; further calls wait for a thread."""

TOKEN_BYTES = 32

log = structlog.get_logger("skep.run")


def load_sound_app(target: str) -> App:
    """Load an app that can be run: every command has a function or an entity, and every secret is there."""
    app = load_app(target)
    plans(app.spec, app.functions)
    with ThreadPoolExecutor(1) as pool:
        inline_functions(app, pool)
    missing = secret_problems(app.spec, os.environ)
    if missing:
        raise SkepError(Code.INVALID_SETTING, f"{app.name} cannot start: {'; '.join(one.message for one in missing)}")
    return app


class Crew:
    """The worker processes."""

    def __init__(self, order: WorkerOrder, count: int) -> None:
        self._order = order
        self._count = count
        self._children = Children(log, "a worker ended and is replaced")
        self.stop = self._children.stop
        self.kill = self._children.kill

    async def run(self) -> None:
        """Keep them all running until `stop`, and wait for their end."""
        await asyncio.gather(*(self._keep(f"worker-{number}") for number in range(1, self._count + 1)))

    async def _keep(self, name: str) -> None:
        async def start() -> Child:
            child = await self._children.start(name, "skep.worker.process", self._order, says_ready=False)
            log.info("worker started", pid=child.process.pid)
            return child

        if not self._children.stopping.is_set():
            await self._children.keep(await start(), start)


async def run_here(
    settings: ServerSettings, sockets: Sockets, target: str, app: App, workers: int, *, allow_private: bool
) -> None:
    """Serve, apply and work until a signal comes."""
    url = local_url(sockets.main[0])
    # Its own workers need no key of the store: they get a token of this process, which ends with it.
    token = secrets.token_urlsafe(TOKEN_BYTES)
    order = WorkerOrder(target, url, allow_private, settings.log_level, settings.log_format, token)
    crew = Crew(order, workers if plans(app.spec, app.functions) else 0)
    stop_server, stopping, listening = asyncio.Event(), asyncio.Event(), asyncio.Event()
    pool = ThreadPoolExecutor(FUNCTION_THREADS, thread_name_prefix="skep-webhook")
    with stop_signals(stopping.set, crew.kill):
        serving = asyncio.create_task(
            serve(
                with_room(settings),
                sockets,
                stop_server,
                listening.set,
                functions=inline_functions(app, pool),
                own_token=token,
            )
        )
        working: asyncio.Task[None] | None = None
        try:
            await _first(serving, listening.wait())
            if not serving.done():
                await _apply(app, url, token)
                log.info("listening", app=app.name, **describe(settings, sockets))
                working = asyncio.create_task(crew.run())
                await _first(serving, stopping.wait())
        finally:
            crew.stop()
            if working is not None:
                await working
            stop_server.set()
            try:
                await serving
            except SkepError as error:
                raise SkepError(error.code, hide_password(error.message, settings.store or "")) from error
            finally:
                # Functions that still run had the time to drain; their senders will repeat the requests.
                pool.shutdown(wait=False, cancel_futures=True)
    log.info("stopped", pid=os.getpid())


def run_app(settings: ServerSettings, target: str, workers: int, *, allow_private: bool) -> None:
    """Run an app with a server of its own."""
    if settings.workers > 1:
        raise SkepError(
            Code.INVALID_SETTING,
            "skep run serves with one process; for more, use skep serve --workers, and skep work for the app",
        )
    app = load_sound_app(target)
    sockets = open_sockets(settings)
    # The plain loop: uvloop cannot put a process into a group of its own.
    asyncio.run(run_here(settings, sockets, target, app, workers, allow_private=allow_private))


async def _apply(app: App, url: str, token: str) -> None:
    async with AsyncClient(url, token=token) as client:
        applied = await client.apply(app.spec)
    for change in applied.changes:
        for setting in change.changes:
            if setting.danger:
                log.warning(
                    "a setting was changed that could lose something", queue=change.queue, setting=setting.setting,
                    before=setting.before, after=setting.after, danger=setting.danger,
                )  # fmt: skip


async def _first(serving: asyncio.Task[None], other: object) -> None:
    """Return when ``other`` is done, or when the server has ended."""
    waiting = asyncio.ensure_future(other)  # type: ignore[call-overload] # a coroutine of any kind
    try:
        await asyncio.wait({serving, waiting}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        waiting.cancel()
