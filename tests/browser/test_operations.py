"""How busy the server is, and what it put off."""

from __future__ import annotations

from playwright.sync_api import expect

from skep.model import NewMessage, PushBatch, QueueKey
from skep.operations import QueuedReason
from skep.testing.server import RunningServer
from tests.browser.screen import Screen
from tests.http.driver import Api


def test_a_calm_server_says_so(screen: Screen, api: Api) -> None:
    api.push("orders", {"n": 1})
    screen.open("/operations")

    expect(screen.page.get_by_role("heading", name="Calls are executed as they come")).to_be_visible()
    assert "pushes are queued as operations" in screen.text
    screen.shoot("operations")


def test_what_was_put_off_is_listed_and_can_be_cancelled(screen: Screen, api: Api, server: RunningServer) -> None:
    # A full queue refuses what was queued for it, so that it waits for another try.
    api.post("/api/v1/configure", {"queue": "orders", "settings": {"max_depth": 1}})
    api.push("orders", {"n": 1})
    engine = server.engine
    batch = PushBatch([NewMessage(QueueKey("orders", api.tenant), b'{"n":2}', partition="p")], engine._ids.mint_many(1))
    server.run(engine.operations.push(batch, 7, QueuedReason.SYSTEM_BUSY))

    screen.open("/operations")

    row = screen.page.locator("table.rows tbody tr")
    expect(row).to_contain_text("orders")
    screen.shoot("operations-queued")
    row.get_by_role("button", name="Cancel").click()
    expect(screen.page.locator(".notice")).to_contain_text("cancelled")
