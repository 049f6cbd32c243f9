"""Fixtures for all kinds of tests, the rule that slow ones run only with --all, and which of them share a worker."""

from collections.abc import Iterator

import pytest
from xdist.remote import Producer
from xdist.scheduler import LoadScopeScheduling

from tests.support.postgres import PostgresServer, running_postgres

TOGETHER = ("tests/spark/", "tests/browser/")
"""Folders whose tests share what takes long to start, and so a worker: the Spark of the first, the browser of the second."""


class ByFolder(LoadScopeScheduling):  # type: ignore[misc] # it has no types
    """Gives tests to workers one by one, but those that belong together to one worker, and these first."""

    def _split_scope(self, nodeid: str) -> str:
        return next((folder for folder in TOGETHER if nodeid.startswith(folder)), nodeid)


def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> ByFolder:
    """Take the place of `--dist loadgroup`, whose groups pytest 9.2 no longer lets through."""
    return ByFolder(config, log)


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
