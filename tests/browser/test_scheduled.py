"""Scheduled messages in a browser: the list, the preview, and what they look like on a phone."""

from __future__ import annotations

from playwright.sync_api import expect

from tests.browser.screen import PHONE, Screen, resize
from tests.http.driver import Api

SOON = "2101-01-01T00:00:00Z"


def left(api: Api) -> list[object]:
    return [one["payload"]["n"] for one in api.get("/api/v1/scheduled?queue=orders").json["messages"]]


def test_they_are_listed_and_one_is_cancelled_after_a_preview(screen: Screen, api: Api) -> None:
    for n in range(3):
        api.push("orders", {"n": n}, deliverAt=SOON, partition=f"customer-{n}", transactionId=f"order-{n}")
    screen.open("/queues/orders")
    screen.page.get_by_role("link", name="Scheduled", exact=True).click()
    expect(screen.page.locator("table.rows tbody tr")).to_have_count(3)
    screen.shoot("scheduled")

    screen.page.locator("tr", has_text="order-1").get_by_role("link", name="Cancel").click()
    expect(screen.page.locator("main")).to_contain_text("1 scheduled message of orders will be cancelled")
    screen.shoot("scheduled-confirm")
    screen.page.get_by_role("button", name="Cancel 1 message").click()

    expect(screen.page.locator(".notice")).to_contain_text("1 scheduled message cancelled")
    assert left(api) == [0, 2]


def test_a_phone_shows_them_without_scrolling_the_page_sideways(screen: Screen, api: Api) -> None:
    api.push("orders", {"n": 1}, deliverAt=SOON, partition="p" * 200, transactionId="t" * 200)
    resize(screen.page, PHONE)
    for path, query in (("/queues/orders/scheduled", {}), ("/queues/orders/scheduled/confirm", {"do": "move"})):
        screen.open(path, **query)
        wide = screen.page.evaluate("document.documentElement.scrollWidth")
        assert wide <= PHONE["width"], (path, wide)
        if not query:
            expect(screen.page.get_by_role("link", name="Cancel…", exact=True)).to_be_in_viewport(ratio=1)
    screen.page.get_by_label("New time, UTC").fill("2101-02-03T04:05:06Z")
    screen.page.get_by_role("button", name="Move 1 message").click()

    expect(screen.page.locator(".notice")).to_contain_text("moved to another time")
