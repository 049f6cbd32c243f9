"""The client is tested against a real server over a real socket; each test has a tenant of its own."""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator, Iterator

import pytest

import skep
from skep.testing.server import RunningServer, running_server

TENANTS = (f"client-{number}" for number in itertools.count(1))


@pytest.fixture(scope="session")
def server() -> Iterator[RunningServer]:
    """A server that lasts the session: stop none of its parts."""
    with running_server() as running:
        yield running


@pytest.fixture
def tenant() -> str:
    """A tenant that nobody else has."""
    return next(TENANTS)


@pytest.fixture
def client(server: RunningServer, tenant: str) -> Iterator[skep.Client]:
    """A client of that tenant."""
    with skep.Client(server.url, tenant=tenant) as made:
        yield made


@pytest.fixture
async def async_client(server: RunningServer, tenant: str) -> AsyncIterator[skep.AsyncClient]:
    """An asynchronous client of the same tenant."""
    async with skep.AsyncClient(server.url, tenant=tenant) as made:
        yield made


@pytest.fixture
def worker(client: skep.Client) -> skep.Worker:
    """A worker of that client."""
    return skep.Worker(client)
