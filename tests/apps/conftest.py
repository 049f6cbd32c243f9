"""A server's parts on a frozen clock, on both stores."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from skep.clock import ManualClock
from skep.server.compose import Opened, open_server


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture(params=["sqlite", "postgres"])
def store_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Where a fresh store is."""
    if request.param == "sqlite":
        return str(tmp_path / "skep.db")
    dsn: str = request.getfixturevalue("empty_tables_dsn")
    return dsn


@pytest.fixture
def environment() -> dict[str, str]:
    """The environment of the server; secrets are put into it."""
    return {}


@pytest.fixture
async def opened(store_url: str, clock: ManualClock, environment: dict[str, str]) -> AsyncIterator[Opened]:
    """An engine, a catalogue and schedules."""
    async with open_server(store_url, clock=clock, environment=environment) as server:
        yield server
