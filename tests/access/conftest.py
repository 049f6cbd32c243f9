"""Servers that ask who comes, over a real socket, on both stores. Each test has a tenant of its own."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator

import pytest

from skep.config import AccessSettings
from skep.testing.server import RunningServer, running_server
from tests.access.driver import Caller, Door
from tests.support.postgres import PostgresServer

TENANTS = (f"tenant-{number}" for number in itertools.count(1))
REQUIRED = AccessSettings(required=True)


@pytest.fixture(scope="session")
def guarded_sqlite(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningServer]:
    with running_server(str(tmp_path_factory.mktemp("access") / "skep.db"), access=REQUIRED) as server:
        yield server


@pytest.fixture(scope="session")
def guarded_postgres(postgres_server: PostgresServer, tables_to_copy: str) -> Iterator[RunningServer]:
    dsn = postgres_server.create_database(template=tables_to_copy)
    with running_server(dsn, access=REQUIRED) as server:
        yield server
    postgres_server.drop_database(dsn)


@pytest.fixture(params=["sqlite", "postgres"])
def guarded(request: pytest.FixtureRequest) -> RunningServer:
    """A server that lasts the session: stop none of its parts."""
    running: RunningServer = request.getfixturevalue(f"guarded_{request.param}")
    return running


@pytest.fixture
def tenant() -> str:
    return next(TENANTS)


@pytest.fixture
def door(guarded: RunningServer, tenant: str) -> Iterator[Door]:
    """The way in: makes keys, and callers who have them."""
    door = Door(guarded, tenant)
    yield door
    door.close()


@pytest.fixture
def caller(door: Door) -> Callable[..., Caller]:
    return door.caller
