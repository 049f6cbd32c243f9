"""What a call to a store costs, without a clock: SQLite's steps, PostgreSQL's statements and the index entries they read."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import NamedTuple

import asyncpg
from asyncpg.connection import LoggedQuery

from skep.clock import ManualClock
from skep.store.postgres import PostgresStore
from skep.store.protocol import Store
from skep.store.sqlite import SqliteStore
from tests.contract.driver import Driver
from tests.support.postgres import PostgresServer

STEPS = 100
"""SQLite's steps are counted by the hundred."""
TYPES = ("typeinfo_tree", "current_setting('jit')")
"""By these asyncpg asks for a type that a session has not met before."""

Work = Callable[[], Awaitable[object]]


class Cost(NamedTuple):
    """``work``: steps by the hundred, or index entries. ``statements`` is 0 for SQLite, where one costs as good as nothing."""

    work: int
    statements: int = 0


class Counted(NamedTuple):
    """A store, and what calls to it cost."""

    driver: Driver
    cost: Callable[[Work], Awaitable[Cost]]


MakeCounted = Callable[[], Awaitable[Counted]]


@asynccontextmanager
async def counted_sqlite() -> AsyncIterator[Counted]:
    """A store in memory."""
    store = SqliteStore(":memory:")
    await store.open()
    steps = 0

    def step() -> bool:
        nonlocal steps
        steps += 1
        return False

    async def cost(work: Work) -> Cost:
        await store._write(lambda session: session.db.set_progress_handler(step, STEPS))
        before = steps
        await work()
        await store._write(lambda session: session.db.set_progress_handler(None, STEPS))
        return Cost(steps - before)

    try:
        yield Counted(_driver(store), cost)
    finally:
        await store.close()


@asynccontextmanager
async def counted_postgres(server: PostgresServer, tables: str) -> AsyncIterator[Counted]:
    """A store with one session, in a database of its own: a copy of one with empty tables."""
    dsn = server.create_database(template=tables)
    store = PostgresStore(dsn, max_connections=1)
    await store.open()
    observer = await asyncpg.connect(dsn, server_settings={"search_path": "skep"})

    async def entries() -> int:
        async with store.pool.connection() as session:
            await session.execute("SELECT pg_stat_force_next_flush()")
        return int(await observer.fetchval("SELECT sum(idx_tup_read) FROM pg_stat_user_indexes"))

    said: list[str] = []

    def note(statement: LoggedQuery) -> None:
        if not any(words in statement.query for words in TYPES):
            said.append(statement.query)

    async with store.pool.connection() as session:
        session.add_query_logger(note)

    async def cost(work: Work) -> Cost:
        await observer.execute("VACUUM message, partition_lease, set_lease, dead_letter, scheduled")
        before, told = await entries(), len(said)
        await work()
        after = await entries()  # which is one statement
        return Cost(after - before, len(said) - told - 1)

    try:
        yield Counted(_driver(store), cost)
    finally:
        await observer.close()
        await store.close()
        server.drop_database(dsn)


def _driver(store: Store) -> Driver:
    return Driver(store, ManualClock(), "tenant", checks=False)
