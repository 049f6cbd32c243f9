"""Fixtures for all kinds of tests, and the rule that slow ones run only with --all."""

from collections.abc import Iterator

import pytest

from tests.support.postgres import PostgresServer, running_postgres


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--all", action="store_true", help="run the tests marked slow, too")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if config.getoption("--all"):
        return
    slow = [item for item in items if item.get_closest_marker("slow")]
    items[:] = [item for item in items if item not in slow]
    config.hook.pytest_deselected(items=slow)


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[PostgresServer]:
    """A PostgreSQL that lasts the session; each xdist worker has its own, so that none waits for or breaks another.

    Tests that stop or kill a server start one of their own.
    """
    with running_postgres() as server:
        yield server


@pytest.fixture
def postgres_dsn(postgres_server: PostgresServer) -> Iterator[str]:
    """The address of a fresh, empty database."""
    dsn = postgres_server.create_database()
    yield dsn
    postgres_server.drop_database(dsn)
