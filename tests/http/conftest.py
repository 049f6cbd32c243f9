"""Every test here runs over a real socket, on both stores. Each has a tenant of its own, so a server lasts the session."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest

from skep.config import HttpLimits
from skep.testing.server import RunningServer, running_server
from tests.http.driver import Api
from tests.support.postgres import PostgresServer

MANY_QUEUES = HttpLimits(metrics_queues=100_000)
"""All queues of a session's tests have metrics of their own."""
TENANTS = (f"tenant-{number}" for number in itertools.count(1))


@pytest.fixture(scope="session")
def sqlite_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    """A server on an SQLite file."""
    with running_server(str(tmp_path_factory.mktemp("http") / "skep.db"), limits=MANY_QUEUES) as server:
        yield server


@pytest.fixture(scope="session")
def http_postgres_server(postgres_server: PostgresServer, tables_to_copy: str) -> Iterator[RunningServer]:
    """A server on PostgreSQL."""
    dsn = postgres_server.create_database(template=tables_to_copy)
    with running_server(dsn, limits=MANY_QUEUES) as server:
        yield server
    postgres_server.drop_database(dsn)


@pytest.fixture(params=["sqlite", "postgres"])
def server(request: pytest.FixtureRequest) -> RunningServer:
    """A server that lasts the session: stop none of its parts."""
    name = "sqlite_server" if request.param == "sqlite" else "http_postgres_server"
    running: RunningServer = request.getfixturevalue(name)
    return running


@pytest.fixture
def api(server: RunningServer) -> Iterator[Api]:
    """A connection as a tenant that nobody else is."""
    api = Api(server, next(TENANTS))
    yield api
    api.close()
