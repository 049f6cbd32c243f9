"""Every test here posts over a real socket, on both stores, to a server of its own whose clock the test holds."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from skep.clock import ManualClock
from skep.testing.server import running_server
from tests.webhooks.driver import SECRETS, Sender


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture(params=["sqlite", "postgres"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """An empty store."""
    if request.param == "sqlite":
        return str(tmp_path / "skep.db")
    dsn: str = request.getfixturevalue("empty_tables_dsn")
    return dsn


@pytest.fixture
def sender(store: str, clock: ManualClock) -> Iterator[Sender]:
    """Someone who posts to a server."""
    with running_server(store, clock=clock, environment=SECRETS) as server:
        sender = Sender(server, clock)
        yield sender
        sender.close()
