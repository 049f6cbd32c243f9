"""Fixtures for the tests of Skep's users: a server in memory, its clients, and a clock that the test moves.

pytest loads this in every project where Skep is installed, so it imports nothing until a fixture is used.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

import pytest

if TYPE_CHECKING:
    from skep import AsyncClient, Client
    from skep.clock import Clock, ManualClock


class SkepServer(NamedTuple):
    """A server for one test: its URL, its clock, and the tenant of the clients, for which specs are applied, too."""

    url: str
    tenant: str
    clock: Clock


@pytest.fixture
def skep_clock() -> ManualClock:
    """A clock that stands still at the time the test began, and moves only by ``advance(seconds)``. In a test that asks for it, the
    server runs on it.

    Leases, backoff, schedules and waiting pops follow this clock. ``advance`` returns when the server has done what became due.
    """
    from skep.clock import ManualClock, SystemClock

    return ManualClock(SystemClock().now())


@pytest.fixture
def skep_server(request: pytest.FixtureRequest) -> Iterator[SkepServer]:
    """A real server on a real socket, with its store in memory and empty."""
    from skep.clock import ManualClock, SystemClock
    from skep.model import DEFAULT_TENANT
    from skep.testing.server import running_server

    # One server for each test: a tenant of its own is not enough, since specs belong to the server and their queues to `default`.
    clock: Clock = request.getfixturevalue("skep_clock") if "skep_clock" in request.fixturenames else SystemClock()
    with running_server(clock=clock) as server:
        if isinstance(clock, ManualClock):
            clock.after_advance = server.until_quiet
        yield SkepServer(server.url, DEFAULT_TENANT, clock)
        if isinstance(clock, ManualClock):
            clock.after_advance = None


@pytest.fixture
def skep_client(skep_server: SkepServer) -> Iterator[Client]:
    """A client of that server."""
    from skep import Client

    with Client(skep_server.url, tenant=skep_server.tenant, clock=skep_server.clock) as client:
        yield client


@pytest.fixture
def skep_async_client(skep_server: SkepServer) -> Iterator[AsyncClient]:
    """An asynchronous client of that server, for whichever event loop the test runs in."""
    import asyncio

    from skep import AsyncClient

    client = AsyncClient(skep_server.url, tenant=skep_server.tenant, clock=skep_server.clock)
    yield client
    loop = asyncio.new_event_loop()
    loop.run_until_complete(client.close())
    loop.close()
