"""How busy the server is, and what it put off."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from skep.config import EngineSettings, OperationSettings
from skep.model import NewMessage, PushBatch, QueueKey
from skep.model.operation import QueuedReason
from skep.testing.server import RunningServer, running_server
from tests.browser.screen import Screen
from tests.http.driver import Api


def test_a_calm_server_says_so(screen: Screen, api: Api) -> None:
    api.push("orders", {"n": 1})
    screen.open("/operations")

    expect(screen.page.get_by_role("heading", name="Accepting all requests")).to_be_visible()
    assert "pushes are queued as operations" in screen.text
    screen.shoot("operations")


@pytest.fixture
def slow(page: Page, screenshots: Path | None, allowed: list[str]) -> Iterator[tuple[Screen, Api, RunningServer]]:
    """A server that tries again in an hour what it could not do."""
    operations = OperationSettings(backoff_seconds=3_600, max_backoff_seconds=3_600)
    with running_server(settings=EngineSettings(operations=operations)) as server:
        allowed.append(server.url)
        api = Api(server, "default")
        yield Screen(page, server.url, "default", screenshots), api, server
        api.close()


def test_what_was_put_off_is_listed_and_can_be_cancelled(slow: tuple[Screen, Api, RunningServer]) -> None:
    screen, api, server = slow
    # A full queue refuses what was queued for it, so that it waits for another try.
    api.post("/api/v1/configure", {"queue": "orders", "settings": {"max_depth": 1}})
    api.push("orders", {"n": 1})
    engine = server.engine
    batch = PushBatch([NewMessage(QueueKey("orders"), b'{"n":2}', partition="p")], engine._ids.mint_many(1))
    server.run(engine.operations.push(batch, 7, QueuedReason.SYSTEM_BUSY))
    while not api.get("/api/v1/operations").json["operations"][0]["errorMessage"]:
        pass  # it is tried once

    screen.open("/operations")

    row = screen.page.locator("table.rows tbody tr")
    expect(row).to_contain_text("orders")
    screen.shoot("operations-queued")
    row.get_by_role("button", name="Cancel").click()
    expect(screen.page.locator(".notice")).to_contain_text("cancelled")
    assert api.get("/api/v1/operations").json["operations"][0]["status"] == "cancelled"


def test_what_admins_did_is_listed_page_by_page(screen: Screen, api: Api) -> None:
    api.push("orders", {"n": 1})
    for _ in range(60):
        api.post("/api/v1/queues/orders/pause")
        api.post("/api/v1/queues/orders/resume")
    screen.open("/operations")

    screen.page.get_by_role("link", name="Audit log").click()

    rows = screen.page.locator("table.rows tbody tr")
    expect(rows).to_have_count(100)
    expect(rows.first).to_contain_text("resume queue")
    screen.shoot("audit")
    screen.page.get_by_role("link", name="Older").click()
    expect(rows).to_have_count(20)
