"""Real SDKs of AWS against a running server, on both stores. Each test has a tenant of its own, so a server lasts the session."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest

from skep.clock import ManualClock
from skep.testing.server import RunningServer, running_server
from tests.http.conftest import MANY_QUEUES
from tests.sqs.driver import Sqs
from tests.support.postgres import PostgresServer

TENANTS = (f"tenant-{number}" for number in itertools.count(1))


@pytest.fixture(scope="session")
def sqlite_sqs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[RunningServer, ManualClock]]:
    """A server on an SQLite file, whose time is the test's."""
    clock = ManualClock()
    store = str(tmp_path_factory.mktemp("sqs") / "skep.db")
    with running_server(store, limits=MANY_QUEUES, clock=clock) as server:
        yield server, clock


@pytest.fixture(scope="session")
def postgres_sqs(postgres_server: PostgresServer, tables_to_copy: str) -> Iterator[tuple[RunningServer, ManualClock]]:
    """A server on PostgreSQL, whose time is the test's."""
    clock = ManualClock()
    dsn = postgres_server.create_database(template=tables_to_copy)
    with running_server(dsn, limits=MANY_QUEUES, clock=clock) as server:
        yield server, clock
    postgres_server.drop_database(dsn)


@pytest.fixture(params=["sqlite", "postgres"])
def sqs(request: pytest.FixtureRequest) -> Iterator[Sqs]:
    """A client of boto3 as a tenant that nobody else is."""
    server, clock = request.getfixturevalue(f"{request.param}_sqs")
    with Sqs(server, clock, next(TENANTS)) as driver:
        yield driver
