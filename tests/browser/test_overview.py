"""The first page."""

from __future__ import annotations

import re

from playwright.sync_api import expect

from tests.browser.screen import Screen
from tests.browser.traffic import shop
from tests.http.driver import Api


def test_a_new_server_says_how_to_begin(screen: Screen) -> None:
    screen.open("/")

    expect(screen.page.get_by_role("heading", name="Nothing here yet")).to_be_visible()
    screen.shoot("overview-empty")


def test_red_things_come_first(screen: Screen, api: Api) -> None:
    shop(api)

    screen.open("/")

    lines = screen.page.locator(".verdict li").all_inner_texts()
    assert "nearly full" in lines[0]
    assert "paused" in lines[-1]
    depth = api.get("/api/v1/resources/overview").json["depth"]
    expect(screen.page.locator(".figure", has_text="To do").locator("dd")).to_have_text(str(depth))
    screen.shoot("overview")


def test_it_refreshes_by_itself_and_not_while_it_is_switched_off(screen: Screen, api: Api) -> None:
    api.push("orders", {"n": 1})
    screen.open("/")
    todo = screen.page.locator(".figure", has_text="To do").locator("dd")
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


def test_no_page_is_wider_than_a_phone(aged_screen: Screen) -> None:
    aged_screen.page.set_viewport_size({"width": 390, "height": 800})
    for path in (
        "/",
        "/queues",
        "/queues/orders",
        "/messages",
        "/traces",
        "/dead-letters",
        "/operations",
        "/pipelines",
    ):
        aged_screen.open(path)
        wide = aged_screen.page.evaluate("document.documentElement.scrollWidth")
        assert wide <= 390, path


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
