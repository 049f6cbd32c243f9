"""Commands run as processes against a real server over a real socket; each test has a tenant of its own."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest

import skep
from skep.testing.server import RunningServer, running_server
from tests.cli.command import Command

TENANTS = (f"cli-{number}" for number in itertools.count(1))


@pytest.fixture(scope="session")
def server() -> Iterator[RunningServer]:
    """A server that lasts the session: stop none of its parts."""
    with running_server() as running:
        yield running


@pytest.fixture
def command(server: RunningServer) -> Command:
    """The command, for a tenant that nobody else has."""
    return Command(server.url, next(TENANTS))


@pytest.fixture
def client(command: Command) -> Iterator[skep.Client]:
    """A client of the same tenant, to prepare and to check."""
    with skep.Client(command.url, tenant=command.tenant) as made:
        yield made
