"""Following traces."""

from __future__ import annotations

from uuid import UUID

from playwright.sync_api import expect

from tests.browser.screen import Screen

TRACE = str(UUID(int=1))


def test_a_trace_is_drawn_across_queues(aged_screen: Screen) -> None:
    aged_screen.open("/traces", id=TRACE)

    rows = aged_screen.page.locator(".waterfall tbody tr:not(.sub)")
    assert [text.split()[0] for text in rows.locator("th").all_inner_texts()] == ["orders", "payments", "emails"]
    assert rows.first.locator("rect.wait, rect.work").count() >= 2
    expect(aged_screen.page.locator("tr.sub")).to_contain_text("checked stock")
    aged_screen.shoot("trace")
    rows.first.get_by_role("link").click()
    expect(aged_screen.page.locator("#pane")).to_contain_text("order-1")


def test_a_trace_is_found_by_a_transaction_id_and_failures_are_red(aged_screen: Screen) -> None:
    aged_screen.open("/traces")
    aged_screen.page.get_by_role("searchbox").fill("order-11")
    aged_screen.page.keyboard.press("Enter")

    expect(aged_screen.page.locator(".waterfall tr.bad rect.bad").first).to_be_visible()
    aged_screen.shoot("trace-bad")


def test_traces_are_found_by_the_names_of_events(aged_screen: Screen) -> None:
    aged_screen.open("/traces")

    aged_screen.page.get_by_role("link", name="checked stock").click()
    expect(aged_screen.page.get_by_role("heading", name="Traces with")).to_be_visible()
    aged_screen.shoot("traces")
    aged_screen.page.get_by_role("link", name="Older").click()
    aged_screen.page.locator("td + td >> nth=0").wait_for()
    aged_screen.page.locator("section >> nth=1").get_by_role("link").first.click()

    expect(aged_screen.page.locator(".waterfall")).to_be_visible()


def test_what_is_not_known_is_told(aged_screen: Screen) -> None:
    aged_screen.open("/traces", id="no such thing")
    expect(aged_screen.page.get_by_role("alert")).to_contain_text("no such thing")

    aged_screen.open("/traces", id=str(UUID(int=1 << 100)))
    expect(aged_screen.page.get_by_role("alert")).to_contain_text("No messages or events were found")
