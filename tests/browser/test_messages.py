"""Browsing messages by one filter box."""

from __future__ import annotations

import re

from playwright.sync_api import expect

from tests.browser.screen import Screen
from tests.http.driver import Api


def seqs(screen: Screen) -> list[str]:
    return screen.page.locator("table.rows tbody td:first-child").all_inner_texts()


def find(screen: Screen, text: str) -> None:
    screen.page.get_by_role("searchbox").fill(text)
    screen.page.keyboard.press("Enter")
    screen.page.wait_for_url(re.compile(r"[?&]q="))


def test_without_a_queue_it_asks_for_one(screen: Screen, api: Api) -> None:
    api.push("orders", {"n": 1})
    api.push("a queue", {"n": 1})
    screen.open("/messages")

    screen.page.get_by_role("link", name="a queue").click()

    expect(screen.page.get_by_role("searchbox")).to_have_value('queue:"a queue"')
    assert seqs(screen) == ["1"]


FOUND = {
    "": ["4", "3", "2", "1"],
    "order:oldest": ["1", "2", "3", "4"],
    'partition:"p 1"': ["3", "1"],
    "txid:t-2": ["2"],
    "payload.customer.id=42": ["4", "2"],
    "payload.customer.tags.1=b": ["4", "3", "2", "1"],
    "state:in_flight group:__QUEUE_MODE__": ["1"],
    "since:2100-01-01T00:00:00Z": [],
}
"""What is typed into the box, and the seqs of the messages that are shown."""


def test_the_box_finds_messages(screen: Screen, api: Api) -> None:
    for n in range(1, 5):
        customer = {"id": 42 if n % 2 == 0 else "x", "tags": ["a", "b"]}
        api.push("orders", {"customer": customer}, partition=f"p {n % 2}", transactionId=f"t-{n}")
    api.pop("orders", 1)

    for said, found in FOUND.items():
        screen.open("/messages", q=f"queue:orders {said}".strip())
        assert seqs(screen) == found, said


def test_a_mistake_in_the_box_is_told_beside_it(screen: Screen) -> None:
    screen.open("/messages", q="queu:orders")

    expect(screen.page.get_by_role("alert")).to_contain_text("There is no field 'queu'")


def test_pages_go_by_seq_however_many_are_pushed_meanwhile(screen: Screen, api: Api) -> None:
    api.push("orders", *range(120))
    screen.open("/messages", q="queue:orders")
    assert seqs(screen)[0] == "120"
    api.push("orders", "late")

    screen.page.get_by_role("link", name="Next").click()
    expect(screen.page.locator("table.rows tbody tr").first).to_contain_text("70")
    screen.page.get_by_role("link", name="Next").click()
    expect(screen.page.locator("table.rows tbody tr").first).to_contain_text("20")

    assert len(seqs(screen)) == 20


def test_the_pane_has_all_of_a_message(aged_screen: Screen) -> None:
    aged_screen.open("/messages", q="queue:orders order:oldest")

    aged_screen.page.get_by_role("link", name="11", exact=True).click()

    pane = aged_screen.page.locator("#pane")
    expect(pane).to_contain_text("order-11")
    expect(pane.locator(".tree")).to_contain_text("honey")
    expect(pane.locator("tbody tr").first).to_contain_text("retried")
    expect(aged_screen.page).to_have_url(re.compile("seq=11"))
    pane.get_by_text("As curl").click()
    expect(pane.locator("#as-curl")).to_contain_text("api/v1/push")
    pane.get_by_role("button", name="Copy").first.click()
    expect(pane.get_by_role("button", name=re.compile("Copied|Selected"))).to_be_visible()
    pane.get_by_text("As Python").click()
    expect(pane.locator("#as-python")).to_contain_text("client.push('orders'")
    aged_screen.shoot("messages")
