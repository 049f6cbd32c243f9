"""The table of queues."""

from __future__ import annotations

import re

from playwright.sync_api import expect

from tests.browser.screen import Screen
from tests.browser.traffic import shop
from tests.http.driver import Api


def names(screen: Screen) -> list[str]:
    return screen.page.locator("table.rows tbody th a").all_inner_texts()


def test_queues_are_filtered_and_sorted_by_links(screen: Screen, api: Api) -> None:
    shop(api)

    screen.open("/queues")
    assert names(screen) == ["emails", "invoices", "orders"]
    screen.shoot("queues")
    screen.page.get_by_role("link", name="Depth").click()
    expect(screen.page).to_have_url(re.compile("sort=depth"))
    assert names(screen)[0] == "orders"
    screen.page.get_by_role("searchbox").fill("billing")
    screen.page.keyboard.press("Enter")

    expect(screen.page).to_have_url(re.compile("filter=billing.*sort=depth"))
    assert names(screen) == ["invoices"]


def test_a_queue_is_paused_and_resumed(screen: Screen, api: Api) -> None:
    api.push("orders", {"n": 1})
    screen.open("/queues")

    screen.page.get_by_role("button", name="Pause").click()

    expect(screen.page.locator(".notice")).to_contain_text("paused")
    assert api.get("/api/v1/resources/queues/orders").json["settings"]["paused"]
    screen.page.get_by_role("button", name="Resume").click()
    expect(screen.page.get_by_role("button", name="Pause")).to_be_visible()
    assert not api.get("/api/v1/resources/queues/orders").json["settings"]["paused"]


def test_a_mistake_in_the_address_is_told_on_a_page(screen: Screen, complaints: list[str]) -> None:
    response = screen.open("/queues", colour="red")

    assert response.status == 422
    expect(screen.page.get_by_role("heading")).to_contain_text("Unprocessable")
    assert "colour" in screen.text
    screen.shoot("error")
    complaints.clear()  # the browser says that there was an error
