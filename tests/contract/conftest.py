"""Every test here runs on every store. Each has a tenant of its own, so those of the default run last the session, as does the loop.

A session of PostgreSQL plans each statement and function when it first runs it, which takes longer than most tests do. A file of SQLite
is opened and closed in a third of the time that most take.
"""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import cast

import pytest
import pytest_asyncio

from skep.clock import ManualClock
from skep.store.postgres import PostgresStore
from skep.store.protocol import Store
from skep.store.sqlite import SqliteStore
from tests.contract.driver import Driver
from tests.contract.queueing import Ops
from tests.support.owned_store import OwnedStore
from tests.support.postgres import PostgresServer
from tests.support.reference_store import ReferenceStore

TENANTS = (f"tenant-{number}" for number in itertools.count(1))
FOLDER = Path(__file__).parent
STORES = ["sqlite-file", "postgres"]
SHARED = {"sqlite-file": "shared_sqlite", "postgres": "shared_postgres"}
ALL_STORES = ["reference", "sqlite-memory", "sqlite-file", "sqlite-workers", "postgres"]
"""With --all. In memory SQLite does the same as in a file, and so it does for the process that has the file for workers. That the
reference does what the stores do is what `test_state_machine` holds."""


@pytest.hookimpl(tryfirst=True)
def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Make no tests that would be left out: there are thousands, and each run would collect them."""
    if "make_store" in metafunc.fixturenames:
        stores = ALL_STORES if metafunc.config.getoption("--all") else STORES
        metafunc.parametrize("make_store", stores, indirect=True)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.is_relative_to(FOLDER) and pytest_asyncio.is_async_test(item):
            item.add_marker(pytest.mark.asyncio(loop_scope="session"), append=False)


@pytest.fixture(scope="session")
def shared_dsn(postgres_server: PostgresServer, tables_to_copy: str) -> Iterator[str]:
    """One database for all tests of a worker."""
    dsn = postgres_server.create_database(template=tables_to_copy)
    yield dsn
    postgres_server.drop_database(dsn)


@pytest.fixture
def make_store(request: pytest.FixtureRequest) -> Callable[[], Store]:
    """Make a store on the same data each time, where it keeps any. Most tests have one that is there, and need no folder for it."""
    match request.param:
        case "sqlite-memory":
            return lambda: SqliteStore(":memory:")
        case "sqlite-file":
            return lambda: SqliteStore(request.getfixturevalue("tmp_path") / "skep.db")
        case "sqlite-workers":
            return lambda: cast(Store, OwnedStore(request.getfixturevalue("tmp_path") / "skep.db", ManualClock()))
        case "postgres":
            dsn = request.getfixturevalue("shared_dsn")
            return lambda: PostgresStore(dsn)
        case _:
            return ReferenceStore


@pytest_asyncio.fixture(loop_scope="session")
async def own_store(make_store: Callable[[], Store]) -> AsyncIterator[Store]:
    """An open store that the test may close."""
    store = make_store()
    await store.open()
    yield store
    await store.close()


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def shared_postgres(shared_dsn: str) -> AsyncIterator[PostgresStore]:
    store = PostgresStore(shared_dsn)
    await store.open()
    yield store
    await store.close()


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def shared_sqlite(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[SqliteStore]:
    store = SqliteStore(tmp_path_factory.mktemp("shared") / "skep.db")
    await store.open()
    yield store
    await store.close()


@pytest.fixture
def store(request: pytest.FixtureRequest, make_store: Callable[[], Store]) -> Store:
    """An open store: leave it open."""
    store: Store = request.getfixturevalue(SHARED.get(request.node.callspec.params["make_store"], "own_store"))
    return store


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def driver(store: Store, clock: ManualClock) -> Driver:
    """A store with short verbs, in a tenant nobody else uses."""
    return Driver(store, clock, next(TENANTS))


@pytest_asyncio.fixture(loop_scope="session")
async def ops(driver: Driver) -> Ops:
    """Short verbs for operations. They are claimed over all tenants, so those of earlier tests must be gone."""
    if isinstance(driver.store, PostgresStore):
        async with driver.store.pool.connection() as session:
            await session.execute("DELETE FROM operation")
    elif isinstance(driver.store, SqliteStore):
        await driver.store._write(lambda session: session.db.execute("DELETE FROM operation"))
    return Ops(driver)
