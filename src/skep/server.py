"""The composition root: the only place that names concrete stores and puts the parts together."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from random import Random, SystemRandom

import msgspec

from skep.clock import Clock, SystemClock
from skep.config import EngineSettings
from skep.engine import Engine
from skep.errors import Code, SkepError
from skep.http.app import App
from skep.http.listening import Listener
from skep.ids import IdMint
from skep.store.protocol import Store

SQLITE_SCHEME = "sqlite:///"
POSTGRES_SCHEMES = ("postgresql://", "postgres://")


def is_shared(url: str) -> bool:
    """Whether several servers may use the store at once."""
    return url.startswith(POSTGRES_SCHEMES)


def open_store(url: str, clock: Clock) -> Store:
    """The store a URL means, not opened yet: ``sqlite:///path``, a path, ``:memory:`` or ``postgresql://…``."""
    if is_shared(url):
        try:
            from skep.store.postgres import PostgresStore
        except ModuleNotFoundError as error:
            if error.name is None or not error.name.startswith("asyncpg"):
                raise
            message = "PostgreSQL needs the extra: pip install 'skep[postgres]'"
            raise SkepError(Code.STORE_UNAVAILABLE, message) from None
        return PostgresStore(url, clock=clock)
    from skep.store.sqlite import SqliteStore

    path = url.removeprefix(SQLITE_SCHEME)
    if "://" in path or not path:
        raise SkepError(Code.INVALID_REQUEST, "a store is sqlite:///path, a path, :memory: or postgresql://…")
    return SqliteStore(path)


@asynccontextmanager
async def open_engine(
    url: str,
    settings: EngineSettings | None = None,
    *,
    clock: Clock | None = None,
    random: Random | None = None,
) -> AsyncIterator[Engine]:
    """A started engine on a store; leaving it stops the engine first, then closes the store."""
    clock = clock or SystemClock()
    settings = settings or EngineSettings()
    if is_shared(url) and not settings.shared:
        settings = msgspec.structs.replace(settings, shared=True)
    store = open_store(url, clock)
    await store.open()
    try:
        engine = Engine(store, clock, IdMint(clock), random or SystemRandom(), settings)
        await engine.start()
        try:
            yield engine
        finally:
            await engine.stop()
    finally:
        await store.close()


async def serve(url: str, host: str, port: int, settings: EngineSettings | None = None) -> None:
    """Serve a store over HTTP until a signal says otherwise; then answer who waits, finish, and let go."""
    async with open_engine(url, settings) as engine:
        await Listener(App(engine), host, port, before_drain=engine.end_polls).serve()
