"""Looks that take long are taken beside the pages: at the start, and while the last one is shown."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import pytest

from skep.clock import Instant, ManualClock
from skep.dashboard import snapshots
from skep.testing.server import RunningServer, running_server
from tests.http.driver import Api

QUEUES = snapshots.MANY_QUEUES + 5
FORM = {"Content-Type": "application/x-www-form-urlencoded"}
WAITING, OLD = b"Loading all queues", b"Figures from"


class Many(NamedTuple):
    """A server with many queues, by a clock that stands still."""

    server: RunningServer
    api: Api
    clock: ManualClock

    def page(self, path: str = "/queues") -> bytes:
        reply = self.api.get(path)
        assert reply.status == 200
        return reply.body


@pytest.fixture
def many(monkeypatch: pytest.MonkeyPatch) -> Iterator[Many]:
    """Its every look takes longer than a page waits."""
    monkeypatch.setattr(snapshots, "QUICK_SECONDS", -1.0)
    monkeypatch.setattr(snapshots, "PATIENCE_SECONDS", 0.0)
    clock = ManualClock(Instant(1_790_000_000_000_000))
    with running_server(clock=clock) as server:
        api = Api(server, "default")
        for n in range(QUEUES):
            assert api.push(f"queue-{n:03}", n).status == 201
        yield Many(server, api, clock)
        api.close()


def test_a_server_that_was_just_started_has_its_first_look_ready(many: Many) -> None:
    assert WAITING in many.page()

    pages = many.server.app._pages
    assert pages is not None
    many.server.run(pages.prepare())

    assert b"queue-000" in many.page()
    assert b"queue-000" in many.page("/")


def test_after_a_while_the_last_look_is_shown_with_its_age(many: Many) -> None:
    pages = many.server.app._pages
    assert pages is not None
    many.server.run(pages.prepare())
    assert OLD not in many.page()

    many.clock.advance(3_600)

    page = many.page()
    assert (OLD in page, b"load delay" in page, b"queue-000" in page) == (True, True, True)
    refreshed = many.api.request("GET", "/queues", headers={"HX-Request": "true"}).body
    assert OLD not in refreshed


def test_what_was_changed_from_a_page_is_seen_on_the_next(many: Many) -> None:
    pages = many.server.app._pages
    assert pages is not None
    many.server.run(pages.prepare())
    assert b"paused</span>" not in many.page()

    assert many.api.request("POST", "/queues/queue-003/pause", b"paused=yes", FORM).status == 303

    page = many.page()
    assert page.count(b"paused</span>") == 1
    assert WAITING not in page
    assert b"<b>1</b>" in page  # of the paused
