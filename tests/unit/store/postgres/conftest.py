"""A store on an empty database, a driver for it, and a session beside it.

The database is one for the session, emptied before each test, which takes a fraction of the time that making one does. Tests
that change the schema override `dsn` with `blank_dsn`.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Iterator

import asyncpg
import pytest
import pytest_asyncio

from skep.clock import ManualClock
from skep.store.postgres import PostgresStore
from tests.conftest import EMPTY
from tests.contract.driver import Driver
from tests.support.postgres import PostgresServer, make_tables

TENANTS = (f"tenant {number}" for number in itertools.count(1))


@pytest.fixture(scope="session")
def emptied_dsn(postgres_server: PostgresServer) -> Iterator[str]:
    dsn = postgres_server.create_database()
    asyncio.run(make_tables(dsn))
    yield dsn
    postgres_server.drop_database(dsn)


@pytest.fixture
async def dsn(emptied_dsn: str) -> str:
    connection = await asyncpg.connect(emptied_dsn)
    await connection.execute(EMPTY)
    await connection.close()
    return emptied_dsn


@pytest.fixture
async def store(dsn: str) -> AsyncIterator[PostgresStore]:
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
    return Driver(store, ManualClock(), "tenant")


@pytest.fixture
async def other(store: PostgresStore, dsn: str) -> AsyncIterator[asyncpg.Connection[asyncpg.Record]]:
    """A session that is not the store's."""
    connection = await asyncpg.connect(dsn, server_settings={"search_path": "skep"})
    yield connection
    connection.terminate()
