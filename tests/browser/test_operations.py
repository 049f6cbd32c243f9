"""How busy the server is, and what it put off."""

from __future__ import annotations

from playwright.sync_api import expect

from tests.browser.screen import Screen
from tests.http.driver import Api


def test_a_calm_server_says_so(screen: Screen, api: Api) -> None:
    api.push("orders", {"n": 1})
    screen.open("/operations")

    expect(screen.page.get_by_role("heading", name="Calls are executed as they come")).to_be_visible()
    assert "pushes are queued as operations" in screen.text
    screen.shoot("operations")
