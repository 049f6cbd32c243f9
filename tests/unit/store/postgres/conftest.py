"""A store on an empty database, a driver for it, and a session beside it.

The database is one for the session, emptied before each test, which takes a fraction of the time that making one does. Tests
that change the schema override `dsn` with `blank_dsn`. The store is one for each module, as is the loop: the sessions of a new one would
plan everything anew, which takes longer than most tests do. Tests that harm it, and those of another database, have one of their own.
"""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import asyncpg
import pytest
import pytest_asyncio

from skep.clock import ManualClock
from skep.store.postgres import PostgresStore
from tests.conftest import EMPTY
from tests.contract.driver import Driver
from tests.support.postgres import PostgresServer

TENANTS = (f"tenant {number}" for number in itertools.count(1))
FOLDER = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.is_relative_to(FOLDER) and pytest_asyncio.is_async_test(item):
            item.add_marker(pytest.mark.asyncio(loop_scope="module"), append=False)


@pytest.fixture(scope="session")
def emptied_dsn(postgres_server: PostgresServer, tables_to_copy: str) -> Iterator[str]:
    dsn = postgres_server.create_database(template=tables_to_copy)
    yield dsn
    postgres_server.drop_database(dsn)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def emptying_session(emptied_dsn: str) -> AsyncIterator[asyncpg.Connection[asyncpg.Record]]:
    """A session that empties the tables."""
    connection = await asyncpg.connect(emptied_dsn)
    yield connection
    await connection.close()


@pytest_asyncio.fixture(loop_scope="module")
async def dsn(emptied_dsn: str, emptying_session: asyncpg.Connection[asyncpg.Record]) -> str:
    await emptying_session.execute(EMPTY)
    return emptied_dsn


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def shared_store(emptied_dsn: str) -> AsyncIterator[PostgresStore]:
    store = PostgresStore(emptied_dsn)
    await store.open()
    yield store
    await store.close()


@pytest.fixture
def store(shared_store: PostgresStore, dsn: str) -> PostgresStore:
    """An open store: leave it open."""
    return shared_store


@pytest_asyncio.fixture(loop_scope="module")
async def own_store(dsn: str) -> AsyncIterator[PostgresStore]:
    """An open store that the test may close."""
    store = PostgresStore(dsn)
    await store.open()
    yield store
    await store.close()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def servers(emptied_dsn: str) -> AsyncIterator[tuple[PostgresStore, PostgresStore]]:
    """Two for all tests of a module, each in a tenant of its own: the sessions of new ones would plan everything anew."""
    stores = PostgresStore(emptied_dsn), PostgresStore(emptied_dsn)
    for store in stores:
        await store.open()
    yield stores
    for store in stores:
        await store.close()


@pytest.fixture
def driver(store: PostgresStore) -> Driver:
    return Driver(store, ManualClock(), next(TENANTS))


@pytest_asyncio.fixture(loop_scope="module")
async def other(store: PostgresStore, dsn: str) -> AsyncIterator[asyncpg.Connection[asyncpg.Record]]:
    """A session that is not the store's."""
    connection = await asyncpg.connect(dsn, server_settings={"search_path": "skep"})
    yield connection
    connection.terminate()
