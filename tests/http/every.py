"""Every route of the application, for tests that go through all of them. Nothing is opened or served."""

from __future__ import annotations

from random import Random

from skep.apps.catalogue import Catalogue
from skep.clock import ManualClock
from skep.engine import Engine
from skep.http.app import HttpApp
from skep.http.request.route import Route
from skep.ids import IdMint
from skep.store.sqlite import SqliteStore


def every_route() -> list[Route]:
    """All of them, in the order in which they are documented."""
    return _app().every_route


def described_routes() -> list[Route]:
    """Those of the OpenAPI document: not the doors that speak what others have described."""
    return _app().routes


def _app() -> HttpApp:
    clock = ManualClock()
    engine = Engine(SqliteStore(":memory:"), clock, IdMint(clock), Random(0))
    return HttpApp(engine, Catalogue(engine, clock, {}))
