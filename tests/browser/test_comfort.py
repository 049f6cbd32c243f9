"""Comfort in a real browser: lost connections, focus, time zones, long names, phones."""

from __future__ import annotations

import re
from pathlib import Path

from playwright.sync_api import Page, expect

from skep.testing.server import running_server
from tests.browser.conftest import Aged
from tests.browser.screen import PHONE, Screen, resize
from tests.http.driver import Api

LONG = "order-" + "x" * 215


def refresh(page: Page) -> None:
    page.evaluate("refresh()")


def test_a_stopped_server_is_told_by_a_banner_with_the_time_of_the_data(
    page: Page, screenshots: Path | None, allowed: list[str], complaints: list[str]
) -> None:
    with running_server() as server:
        allowed.append(server.url)
        api = Api(server, "default")
        api.push("orders", 1)
        api.close()
        screen = Screen(page, server.url, "default", screenshots)
        screen.open("/")
        expect(page.locator("#live-switch")).to_be_visible()
        expect(page.locator("#lost")).to_be_hidden()

    refresh(page)

    expect(page.locator("#lost")).to_have_text(re.compile(r"^Connection lost, data from \d\d:\d\d:\d\d$"))
    complaints.clear()  # a browser tells of requests that reach nobody


def test_focus_survives_the_refresh(screen: Screen, api: Api) -> None:
    api.push("orders", 1)
    api.push("emails", 1)
    screen.open("/queues")
    button = screen.page.get_by_role("row", name="orders").get_by_role("button", name="Pause")
    button.focus()
    screen.page.evaluate("document.getElementById('live').dataset.old = 'yes'")

    refresh(screen.page)

    expect(screen.page.locator("#live[data-old]")).to_have_count(0)
    expect(button).to_be_focused()


def test_a_refresh_is_done_at_once_so_that_no_key_falls_between(aged_screen: Screen) -> None:
    aged_screen.open("/queues/orders")
    page = aged_screen.page
    expect(page.locator(".chart canvas")).to_have_count(3)
    page.locator("#live a").first.focus()

    # An observer is called when the script that changed the page is through, before the browser takes the next key.
    focused, charts = page.evaluate(
        """() => new Promise(tell => {
            const old = document.getElementById("live");
            new MutationObserver((_, observer) => {
                if (old.isConnected) return;
                observer.disconnect();
                const live = document.getElementById("live");
                tell([live.contains(document.activeElement), live.querySelectorAll(".chart canvas").length]);
            }).observe(old.parentElement, { childList: true });
            refresh();
        })"""
    )

    assert focused
    assert charts == 3


def test_all_times_of_a_page_are_of_the_zone_that_one_chose(aged_screen: Screen) -> None:
    aged_screen.open("/messages", q="queue:orders", seq=11)
    clock = aged_screen.page.locator("#pane time.clock")
    expect(clock).to_have_text(re.compile(r"UTC$"))

    aged_screen.page.locator("#zone").click()

    zone = aged_screen.page.evaluate("Intl.DateTimeFormat().resolvedOptions().timeZone")
    expect(clock).to_have_text(re.compile(f"{re.escape(zone)}$"))
    aged_screen.page.reload()
    expect(aged_screen.page.locator("#zone")).to_have_text("Times: local")
    aged_screen.page.locator("#zone").click()
    expect(clock).to_have_text(re.compile(r"UTC$"))


def test_a_name_of_221_characters_does_not_stretch_the_page(screen: Screen, api: Api) -> None:
    api.push(LONG, 1, partition=LONG)
    api.pop(LONG, 1, f"&consumerGroup={LONG}")
    for size in (PHONE, {"width": 1280, "height": 860}):
        resize(screen.page, size)
        for path in ("/", "/queues", f"/queues/{LONG}", f"/queues/{LONG}/settings", "/messages"):
            screen.open(path)
            assert screen.page.evaluate("document.documentElement.scrollWidth") <= size["width"], path
    screen.shoot("long-name")


def test_rows_keep_their_actions_on_a_phone_and_these_look_like_buttons(screen: Screen, api: Api) -> None:
    api.push(LONG, 1)
    resize(screen.page, PHONE)
    screen.open("/queues")

    button = screen.page.get_by_role("button", name="Pause")

    expect(button).to_be_in_viewport()
    box = button.bounding_box()
    assert box is not None
    assert box["x"] + box["width"] <= PHONE["width"]
    border, ground = button.evaluate("e => [getComputedStyle(e).borderTopColor, getComputedStyle(e).backgroundColor]")
    assert "rgba(0, 0, 0, 0)" not in (border, ground)


def test_screens_after_all(aged_screen: Screen, aged: Aged) -> None:
    for path, name in (
        ("/queues/orders", "queue-now"),
        ("/queues/orders/settings", "settings-now"),
        ("/dead-letters", "dead-now"),
    ):
        aged_screen.page.goto(aged.server.url + path)
        aged_screen.shoot(name)
