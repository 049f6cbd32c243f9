"""All that can be done with a mouse can be done with keys."""

from __future__ import annotations

import re

from playwright.sync_api import expect

from tests.browser.screen import Screen
from tests.http.driver import Api


def test_every_screen_is_two_keys_away(screen: Screen, api: Api) -> None:
    api.push("orders", {"n": 1})
    screen.open("/")
    for key, name in (
        ("q", "Queues"), ("m", "Messages"), ("t", "Traces"), ("d", "Dead letters"), ("x", "Operations"), ("p", "Pipelines"),
        ("o", "Overview"),
    ):  # fmt: skip
        screen.page.keyboard.press("g")
        screen.page.keyboard.press(key)

        expect(screen.page.get_by_role("heading", level=1)).to_have_text(re.compile(name))
        expect(screen.page.locator(".side nav [aria-current]")).to_have_text(name)
        screen.page.wait_for_load_state("domcontentloaded")  # before it the page hears no key


def test_a_table_is_walked_and_a_row_opened(screen: Screen, api: Api) -> None:
    for name in ("a", "b", "c"):
        api.push(name, {"n": 1})
    screen.open("/queues")
    screen.page.keyboard.press("/")
    expect(screen.page.get_by_label("Filter queues")).to_be_focused()
    screen.page.get_by_label("Filter queues").blur()

    for key in ("j", "j", "j", "k"):
        screen.page.keyboard.press(key)

    expect(screen.page.get_by_role("link", name="b", exact=True)).to_be_focused()
    screen.page.keyboard.press("Enter")
    expect(screen.page).to_have_url(re.compile("/queues/b"))


def test_a_form_is_filled_and_sent(screen: Screen, api: Api) -> None:
    api.push("orders", {"n": 1})
    screen.open("/queues/orders/publish")
    screen.page.get_by_label("Payload").focus()
    screen.page.keyboard.press("ControlOrMeta+a")
    screen.page.keyboard.type('{"n": 2}')
    button = screen.page.get_by_role("button", name="Publish")
    for _ in range(6):
        if button.evaluate("button => button === document.activeElement"):
            break
        screen.page.keyboard.press("Tab")

    screen.page.keyboard.press("Enter")

    expect(screen.page.locator(".notice")).to_contain_text("was published")
    assert [message["payload"] for message in api.pop("orders")] == [{"n": 1}, {"n": 2}]


def test_the_keys_are_listed_and_the_content_is_reached_at_once(screen: Screen) -> None:
    screen.open("/queues")
    screen.page.keyboard.press("Tab")
    expect(screen.page.get_by_role("link", name="Skip to content")).to_be_focused()
    screen.page.keyboard.press("Enter")
    expect(screen.page.locator("main")).to_be_focused()

    screen.page.keyboard.press("?")

    dialog = screen.page.get_by_role("dialog")
    expect(dialog).to_contain_text("next and previous row")
    screen.page.keyboard.press("Escape")
    expect(dialog).to_be_hidden()
