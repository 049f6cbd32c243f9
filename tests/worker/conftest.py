"""Workers are tested against real servers over real sockets, on both stores; each test has a tenant of its own."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest

import skep
from skep.clock import ManualClock
from skep.testing.server import RunningServer, running_server
from tests.support.postgres import PostgresServer
from tests.worker.place import Place

TENANTS = (f"worker-{number}" for number in itertools.count(1))


@pytest.fixture(scope="session")
def sqlite_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    """A server on an SQLite file."""
    with running_server(str(tmp_path_factory.mktemp("worker") / "skep.db")) as server:
        yield server


@pytest.fixture(scope="session")
def worker_postgres_server(postgres_server: PostgresServer, tables_to_copy: str) -> Iterator[RunningServer]:
    """A server on PostgreSQL."""
    dsn = postgres_server.create_database(template=tables_to_copy)
    with running_server(dsn) as server:
        yield server
    postgres_server.drop_database(dsn)


@pytest.fixture(params=["sqlite", "postgres"])
def server(request: pytest.FixtureRequest) -> RunningServer:
    """A server that lasts the session: stop none of its parts."""
    name = "sqlite_server" if request.param == "sqlite" else "worker_postgres_server"
    running: RunningServer = request.getfixturevalue(name)
    return running


@pytest.fixture
def place(server: RunningServer) -> Iterator[Place]:
    """A tenant that nobody else has, and a client of it."""
    with skep.Client(server.url, tenant=next(TENANTS)) as client:
        yield Place(server.url, client)


@pytest.fixture(params=["sqlite", "postgres"])
def timed(request: pytest.FixtureRequest) -> Iterator[tuple[Place, ManualClock]]:
    """The same on a server of its own, whose clock the test holds."""
    clock = ManualClock()
    store = ":memory:" if request.param == "sqlite" else request.getfixturevalue("empty_tables_dsn")
    with running_server(store, clock=clock) as server, skep.Client(server.url, clock=clock) as client:
        yield Place(server.url, client, clock), clock
