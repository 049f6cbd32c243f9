"""Queen's published client against a running server, on both stores. Each test has a tenant of its own, so a server lasts the session."""

from __future__ import annotations

import itertools
import signal
from collections.abc import AsyncIterator, Iterator

import pytest

from skep.clock import ManualClock
from skep.testing.server import RunningServer, running_server
from tests.http.conftest import MANY_QUEUES
from tests.queen.driver import Queen
from tests.support.postgres import PostgresServer

TENANTS = (f"tenant-{number}" for number in itertools.count(1))


@pytest.fixture(scope="session")
def sqlite_queen(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[RunningServer, ManualClock]]:
    """A server on an SQLite file, whose time is the test's."""
    clock = ManualClock()
    store = str(tmp_path_factory.mktemp("queen") / "skep.db")
    with running_server(store, limits=MANY_QUEUES, clock=clock, queen=True) as server:
        yield server, clock


@pytest.fixture(scope="session")
def postgres_queen(postgres_server: PostgresServer, tables_to_copy: str) -> Iterator[tuple[RunningServer, ManualClock]]:
    """A server on PostgreSQL, whose time is the test's."""
    clock = ManualClock()
    dsn = postgres_server.create_database(template=tables_to_copy)
    with running_server(dsn, limits=MANY_QUEUES, clock=clock, queen=True) as server:
        yield server, clock
    postgres_server.drop_database(dsn)


@pytest.fixture
def signals() -> Iterator[None]:
    """The client sets the process's handlers of signals, and takes them away when it is closed."""
    kept = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    yield
    for number, handler in kept.items():
        signal.signal(number, handler)


@pytest.fixture(params=["sqlite", "postgres"])
async def queen(request: pytest.FixtureRequest, signals: None) -> AsyncIterator[Queen]:
    """A client as a tenant that nobody else is."""
    server, clock = request.getfixturevalue(f"{request.param}_queen")
    async with Queen(server, clock, next(TENANTS)) as driver:
        yield driver
