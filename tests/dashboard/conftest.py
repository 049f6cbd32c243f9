"""Servers whose pages are asked for without a browser."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from skep.testing.server import RunningServer, running_server
from tests.dashboard.visitor import Visitor
from tests.http.driver import Api


@pytest.fixture
def server() -> Iterator[RunningServer]:
    """A server in memory, of one test."""
    with running_server() as server:
        yield server


@pytest.fixture
def api(server: RunningServer) -> Iterator[Api]:
    """The API of that server."""
    api = Api(server, "default")
    yield api
    api.close()


@pytest.fixture
def visitor(server: RunningServer) -> Visitor:
    """Someone who opens its pages."""
    return Visitor(server)
