"""An ack of a lease costs the same however many messages it has: statements, rows written, and what is sent to the store."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, nullcontext
from typing import Any, NamedTuple

import asyncpg
import pytest

from skep.clock import ManualClock
from skep.model import Ordering
from skep.store.postgres import PostgresStore
from skep.store.postgres.connection import SESSION, _prepare
from skep.store.protocol import Store
from skep.store.sqlite import SqliteStore
from skep.store.sqlite.session import Session
from tests.contract.driver import Driver
from tests.support.postgres import PostgresServer

FEW, MANY = 10, 100


class Cost(NamedTuple):
    """What a call cost the store."""

    statements: int
    rows_written: int


Work = Callable[[], Awaitable[object]]


class Counted(NamedTuple):
    """A store, and what a call to it costs."""

    driver: Driver
    cost: Callable[[Work], Awaitable[Cost]]


async def on_sqlite(store: SqliteStore) -> Counted:
    statements = 0

    def executed(*_: Any) -> bool:
        nonlocal statements
        statements += 1
        return True

    async def cost(work: Work) -> Cost:
        def begin(session: Session) -> int:
            session.db.exec_trace = executed
            return session.db.total_changes()

        def end(session: Session) -> int:
            session.db.exec_trace = None
            return session.db.total_changes()

        written = await store._write(begin)
        before = statements
        await work()
        return Cost(statements - before, await store._write(end) - written)

    return Counted(_driver(store), cost)


async def on_postgres(store: PostgresStore, session: asyncpg.Connection[asyncpg.Record]) -> Counted:
    """All calls of the store run in this one session."""
    await _prepare(session)
    store.pool.connection = lambda: nullcontext(session)  # type: ignore[method-assign, assignment, return-value]
    statements: list[object] = []
    session.add_query_logger(statements.append)

    async def rows_written() -> int:
        await session.execute("SELECT pg_stat_force_next_flush()")
        return int(await session.fetchval("SELECT sum(n_tup_ins + n_tup_upd + n_tup_del) FROM pg_stat_user_tables"))

    async def cost(work: Work) -> Cost:
        written = await rows_written()
        statements.clear()
        await work()
        count = len(statements)
        return Cost(count, await rows_written() - written)

    return Counted(_driver(store), cost)


def _driver(store: Store) -> Driver:
    return Driver(store, ManualClock(), "tenant", checks=False)


@pytest.fixture(params=["sqlite", "postgres"])
async def counted(request: pytest.FixtureRequest) -> AsyncIterator[Counted]:
    async with AsyncExitStack() as made:
        if request.param == "sqlite":
            memory = SqliteStore(":memory:")
            await memory.open()
            made.push_async_callback(memory.close)
            yield await on_sqlite(memory)
            return
        server: PostgresServer = request.getfixturevalue("postgres_server")
        dsn = server.create_database()
        made.callback(server.drop_database, dsn)
        store = PostgresStore(dsn, max_connections=1)
        await store.open()
        made.push_async_callback(store.close)
        session = await asyncpg.connect(dsn, server_settings=SESSION)
        made.push_async_callback(session.close)
        yield await on_postgres(store, session)


@pytest.mark.parametrize("ordering", [Ordering.PER_KEY, Ordering.UNORDERED])
async def test_an_ack_of_a_lease_costs_the_same_however_many_messages_it_has(
    counted: Counted, ordering: Ordering
) -> None:
    driver, cost = counted
    await driver.create(ordering=ordering)
    costs = []
    for size in (FEW, FEW, MANY):  # the first one pays for what is noted once a minute
        await driver.push(*("x" for _ in range(size)))
        held = await driver.pop(batch=size)
        assert len(held) == size
        costs.append(await cost(lambda held=held: driver.ack_leases(*held)))  # type: ignore[misc]

    _, few, many = costs
    assert many == few
    # The lease's row, one of the history, and the group's count.
    assert many.rows_written == 3


@pytest.mark.parametrize("ordering", [Ordering.PER_KEY, Ordering.UNORDERED])
async def test_an_ack_of_several_leases_writes_two_rows_for_each(counted: Counted, ordering: Ordering) -> None:
    driver, cost = counted
    await driver.create(ordering=ordering)
    await driver.push("x")
    await driver.ack_leases(*await driver.pop())
    await driver.push_messages(*(driver.message("x", partition=f"p{n % 5}") for n in range(MANY)))
    held = await driver.pop(batch=MANY)
    assert len(held) == MANY

    found = await cost(lambda: driver.ack_leases(*held))

    assert found.rows_written == 2 * 5 + 1
