"""The first page."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import expect

from tests.browser.conftest import Aged
from tests.browser.screen import PHONE, Screen, hearing, resize
from tests.browser.traffic import shop
from tests.http.driver import Api


def test_a_new_server_says_how_to_begin(screen: Screen) -> None:
    screen.open("/")

    expect(screen.page.get_by_role("heading", name="No queues yet")).to_be_visible()
    screen.shoot("overview-empty")


def test_red_things_come_first(screen: Screen, api: Api) -> None:
    shop(api)

    screen.open("/")

    lines = screen.page.locator(".verdict li").all_inner_texts()
    assert "nearly full" in lines[0]
    assert "paused" in lines[-1]
    depth = api.get("/api/v1/resources/overview").json["depth"]
    expect(screen.page.locator(".figure", has_text="Backlog").locator("dd")).to_have_text(str(depth))
    screen.shoot("overview")


def test_it_refreshes_by_itself_and_not_while_it_is_switched_off(screen: Screen, api: Api) -> None:
    api.push("orders", {"n": 1})
    screen.open("/")
    todo = screen.page.locator(".figure", has_text="Backlog").locator("dd")
    expect(todo).to_have_text("1")

    api.push("orders", {"n": 2})

    expect(todo).to_have_text("2", timeout=15_000)
    screen.page.keyboard.press("l")
    expect(screen.page.locator("#live-switch")).to_have_attribute("aria-pressed", "false")


def test_another_tenant_is_chosen_from_a_list(screen: Screen, api: Api) -> None:
    api.push("orders", {"n": 1})
    screen.open("/")

    screen.page.locator(".tenant").click()
    expect(screen.page.get_by_role("heading", name="Tenants")).to_be_visible()
    screen.page.get_by_role("link", name=api.tenant, exact=True).last.click()

    expect(screen.page.locator("table tbody th").first).to_contain_text("orders")


PHONE_PAGES = (
    "/", "/queues", "/queues/orders", "/queues/orders/settings", "/queues/orders/publish", "/queues/orders/clear",
    "/queues/orders/groups/billing/seek?to=beginning", "/messages", "/messages?q=queue:orders", "/messages?q=queue:orders&seq=11",
    "/traces", "/traces?id=order-11", "/dead-letters", "/dead-letters/orders.dead/letters/1",
    "/dead-letters/orders.dead/confirm?do=purge", "/operations", "/operations/audit", "/pipelines", "/tenants", "/queues/nosuch",
)  # fmt: skip


@pytest.mark.slow
def test_no_page_is_wider_than_a_phone(aged_screen: Screen, aged: Aged, complaints: list[str]) -> None:
    resize(aged_screen.page, PHONE)
    for path in PHONE_PAGES:
        aged_screen.page.goto(aged.server.url + path)
        wide = aged_screen.page.evaluate("document.documentElement.scrollWidth")
        assert wide <= 390, path
        # What is too wide for it scrolls by itself, and the menu shows where one is.
        current = aged_screen.page.locator(".side nav [aria-current]")
        if current.count():
            box = current.bounding_box()
            assert box is not None
            assert (box["x"] >= 0, box["x"] + box["width"] <= 390) == (True, True), path
        expect(aged_screen.page.locator(".tenant")).to_be_in_viewport()
    complaints.clear()  # the last one is not there


def test_a_tab_that_nobody_sees_asks_for_nothing(screen: Screen, api: Api) -> None:
    api.push("orders", {"n": 1})
    screen.open("/")
    expect(screen.page.locator("#live-switch")).to_be_visible()
    asked: list[str] = []
    with hearing(screen.page, "request", lambda request: asked.append(request.url)):
        screen.page.evaluate(
            "Object.defineProperty(document, 'hidden', {configurable: true, get: () => true}); refresh()"
        )
        screen.page.evaluate("new Promise(requestAnimationFrame)")
        assert asked == []

        api.push("orders", {"n": 2})
        screen.page.evaluate("delete document.hidden; document.dispatchEvent(new Event('visibilitychange'))")
        expect(screen.page.locator(".figure", has_text="Backlog").locator("dd")).to_have_text("2")
        assert asked


def test_charts_show_the_last_hour(aged_screen: Screen) -> None:
    aged_screen.open("/")

    expect(aged_screen.page.locator(".chart canvas")).to_have_count(3)
    aged_screen.shoot("overview-charts")
    aged_screen.page.get_by_role("link", name="24h").click()
    expect(aged_screen.page).to_have_url(re.compile("range=24h"))


def test_a_chart_of_one_moment_has_an_axis_whose_times_differ(aged_screen: Screen) -> None:
    aged_screen.open("/")
    expect(aged_screen.page.locator(".chart canvas")).to_have_count(3)

    for seconds in (0, 20, 300):
        labels = aged_screen.page.evaluate(
            """async (seconds) => {
                const figure = document.querySelector("figure.chart"), told = JSON.parse(figure.dataset.chart);
                told.times = [told.times[0], told.times[0] + seconds].slice(0, seconds ? 2 : 1);
                for (const line of told.lines) line.values = told.times.map(() => 1);
                figure.dataset.chart = JSON.stringify(told);
                draw(figure);
                await new Promise(requestAnimationFrame);
                return drawn.get(figure.id).axes[0]._values;
            }""",
            seconds,
        )
        assert len(labels) >= 2
        assert len(set(labels)) == len(labels), labels
