"""Who consumes what, and why a queue is slow, in a browser."""

from __future__ import annotations

from playwright.sync_api import expect

from tests.browser.screen import PHONE, Screen, resize
from tests.http.driver import Api

HOSTILE = 'name="%3Cimg%20src%3Dx%20onerror%3Dalert(1)%3E", host="web-3"'.replace("(", "%28").replace(")", "%29")


def pop(api: Api, consumer: str) -> dict[str, object]:
    reply = api.request("POST", "/api/v1/pop/queue/orders?batch=1", headers={"Skep-Consumer": consumer})
    message: dict[str, object] = reply.json["messages"][0]
    return message


def test_holders_are_listed_and_their_names_are_text(screen: Screen, api: Api) -> None:
    api.push("orders", {"n": 1})
    pop(api, HOSTILE)

    screen.open("/consumers")

    row = screen.page.locator("table.rows tbody tr")
    expect(row).to_contain_text("<img src=x onerror=alert(1)>@web-3")
    expect(row.get_by_role("link", name="orders")).to_be_visible()
    expect(row.locator("td.n").nth(1)).to_have_text("1")  # a lease
    expect(row.locator("td.n").nth(2)).to_have_text("1")  # a message
    assert screen.page.locator("img").count() == 0
    screen.shoot("consumers")


def test_a_queue_says_why_it_is_slow_and_who_holds_its_partition(screen: Screen, api: Api) -> None:
    api.push("orders", {"n": 1}, {"n": 2})
    api.ack(pop(api, 'name="mailer", host="web-3"'))
    pop(api, 'name="mailer", host="web-3"')

    screen.open("/queues/orders")

    expect(screen.page.locator(".pace")).to_contain_text("out")
    expect(screen.page.locator("table.timings tbody tr")).to_contain_text("no group")
    expect(screen.page.get_by_text("mailer@web-3")).to_be_visible()
    screen.page.get_by_role("link", name="Consumers", exact=True).last.click()
    expect(screen.page.locator("table.rows tbody tr")).to_contain_text("mailer@web-3")


def test_a_phone_shows_who_holds_a_partition_and_its_rows_are_low(screen: Screen, api: Api) -> None:
    """The holder and the error stood in columns of their own, far to the right, in rows five lines high."""
    api.post("/api/v1/configure", {"queue": "orders", "settings": {"initial_backoff_ms": 0, "max_attempts": 5}})
    api.push("orders", {"n": 1})
    consumer = f'name="mailer", host="{"web-3." * 8}internal", pid="4711"'
    api.ack(pop(api, consumer), "retry", error="TimeoutError: no answer from render.internal\nTraceback: line 1")
    pop(api, consumer)
    resize(screen.page, PHONE)

    screen.open("/queues/orders")

    row = screen.page.locator("tbody tr", has=screen.page.get_by_role("button", name="Release"))
    assert row.evaluate("row => row.getBoundingClientRect().height") < 50
    for text in ("Held by", "TimeoutError: no answer"):
        told = screen.page.get_by_text(text).first
        told.evaluate("e => e.scrollIntoView({block: 'center', inline: 'nearest'})")
        expect(told).to_be_in_viewport(ratio=0.95)
    assert screen.page.evaluate("document.documentElement.scrollWidth") <= PHONE["width"]


def test_a_message_tells_the_error_of_each_attempt(screen: Screen, api: Api) -> None:
    api.post("/api/v1/configure", {"queue": "orders", "settings": {"initial_backoff_ms": 0, "max_attempts": 5}})
    api.push("orders", {"n": 1})
    for number in (1, 2):
        error = f"ValueError: no such customer {number}\nTraceback (most recent call last): line {number}"
        api.ack(pop(api, 'name="mailer"'), "retry", error=error)

    screen.open("/messages", q="queue:orders", seq=1)

    pane = screen.page.locator("#pane")
    expect(pane).to_contain_text("no such customer 1")
    expect(pane).to_contain_text("mailer")
    pane.get_by_text("ValueError: no such customer 2").first.click()
    expect(pane.get_by_text("line 2")).to_be_visible()
    screen.open("/queues/orders")
    expect(screen.page.get_by_text("ValueError: no such customer 2").first).to_be_visible()


def test_two_groups_have_a_lane_each_and_failures_their_errors(screen: Screen, api: Api) -> None:
    """Two groups' first attempts are not two tries."""
    api.post("/api/v1/configure", {"queue": "orders", "settings": {"initial_backoff_ms": 0}})
    api.push("orders", {"n": 1}, transactionId="order-1")
    for group in ("bill", "mail"):
        [message] = api.pop("orders", 1, f"&consumerGroup={group}")
        api.ack(message, **({} if group == "bill" else {"status": "dlq", "error": "no such address"}))

    screen.open("/traces", id="order-1")

    lanes = screen.page.locator(".waterfall tbody tr:has(svg)")
    assert [text.split("\t")[1].strip() for text in lanes.all_inner_texts()][:2] == ["bill, 1", "mail, 1"]
    expect(lanes.nth(0)).to_contain_text("completed")
    expect(lanes.nth(1)).to_contain_text("dead")
    expect(screen.page.locator("tr.reason")).to_contain_text("no such address")
    screen.shoot("trace-lanes")
