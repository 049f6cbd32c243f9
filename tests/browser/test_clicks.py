"""The main tasks of whoever looks after queues, walked from the overview. Each walk says how many clicks and typed fields it may
take: a page that is moved, or a link that is lost, makes it longer.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Locator, Page, expect

from skep.config import AccessSettings
from skep.model.key import Verb
from skep.testing.server import RunningServer, running_server
from tests.access.driver import Door
from tests.browser.screen import PHONE, Screen, resize
from tests.http.driver import Api

SOON = "2101-01-01T00:00:00Z"
CONSUMER = 'name="mailer", host="web-3", pid="4711", version="1.2.0"'


class Walk:
    """Someone with a mouse and a keyboard, who starts at the overview and is counted."""

    def __init__(self, screen: Screen) -> None:
        self.page: Page = screen.page
        self.clicks = 0
        self.fields = 0
        screen.open("/")

    def link(self, name: str, within: Locator | None = None) -> None:
        """Click a link."""
        self._click((within or self.page.locator("body")).get_by_role("link", name=name, exact=True))

    def press(self, name: str, within: Locator | None = None) -> None:
        """Click a button."""
        self._click((within or self.page.locator("body")).get_by_role("button", name=name, exact=True))

    def tile(self, name: str) -> None:
        """Click a figure of the overview."""
        named = self.page.locator("dt").get_by_text(name, exact=True)
        self._click(self.page.locator(".figure").filter(has=named).get_by_role("link"))

    def _click(self, what: Locator) -> None:
        what.first.click()
        self.clicks += 1

    def type(self, label: str, text: str) -> None:
        """Fill in a field that has the focus, or is reached by a key."""
        field = self.page.get_by_label(label, exact=True)
        if not field.evaluate("field => field === document.activeElement"):
            field.focus()
        self.page.keyboard.press("ControlOrMeta+a")
        self.page.keyboard.insert_text(text)
        self.fields += 1

    def enter(self) -> None:
        """Send what was typed."""
        self.page.keyboard.press("Enter")

    def row(self, text: str) -> Locator:
        """The row of a table with this text."""
        return self.page.locator("tbody tr", has_text=text)

    def sees(self, text: str) -> None:
        """Wait for a text of the page."""
        expect(self.page.locator("main")).to_contain_text(text)

    def took(self, clicks: int, fields: int = 0) -> None:
        """At most so many clicks and typed fields."""
        assert self.clicks <= clicks
        assert self.fields <= fields


@pytest.fixture
def walk(screen: Screen, api: Api) -> Walk:
    """The overview of a tenant whose 34 queues hold the traffic of a shop."""
    traffic(api)
    return Walk(screen)


def traffic(api: Api) -> None:
    """Many quiet queues, and one with two groups, a held lease, a failure, dead letters and scheduled messages."""
    quiet = [{"queue": f"region-{n:02}.events", "payload": n} for n in range(30)]
    assert api.post("/api/v1/push", {"items": quiet}).status == 201
    api.post("/api/v1/configure", {"queue": "orders", "settings": {"max_attempts": 3, "initial_backoff_ms": 0}})
    orders = [
        {"queue": "orders", "payload": {"order": n, "customer": {"id": f"c-{n}"}}, "partition": f"customer-{n}",
         "transactionId": f"order-{n}"} for n in range(8)
    ]  # fmt: skip
    assert api.post("/api/v1/push", {"items": orders}).status == 201
    for message in api.pop("orders", 3, "&consumerGroup=billing"):
        api.ack(message, "dlq" if message["seq"] == 1 else "completed", error="amount is negative")
    reply = api.request("POST", "/api/v1/pop/queue/orders?batch=1", headers={"Skep-Consumer": CONSUMER})
    api.ack(reply.json["messages"][0], "retry", error="TimeoutError: no answer")
    api.request("POST", "/api/v1/pop/queue/orders?batch=1&partition=customer-5", headers={"Skep-Consumer": CONSUMER})
    for n in range(3):
        api.push("reminders", {"n": n}, deliverAt=SOON, transactionId=f"reminder-{n}")


def left(api: Api) -> list[object]:
    return [one["payload"]["n"] for one in api.get("/api/v1/scheduled?queue=reminders").json["messages"]]


def test_why_a_queue_is_slow_and_its_percentiles(walk: Walk) -> None:
    walk.link("orders")

    expect(walk.page.locator(".pace")).to_contain_text("out")
    expect(walk.page.locator("table.timings tbody tr").first).to_be_visible()
    walk.took(1)


@pytest.mark.slow
def test_a_queue_among_many_is_found_by_a_part_of_its_name(walk: Walk) -> None:
    walk.type("Find a queue or a message", "region-17")
    walk.enter()

    expect(walk.page.get_by_role("heading", level=1)).to_contain_text("region-17.events")
    walk.took(0, 1)


def test_a_message_and_its_story_by_its_transaction_id(walk: Walk) -> None:
    walk.type("Find a queue or a message", "order-0")
    walk.enter()

    walk.sees("amount is negative")
    walk.sees("billing, 1")
    walk.took(0, 1)


def test_the_message_of_a_customer_by_what_its_payload_says(walk: Walk) -> None:
    walk.type("Find a queue or a message", "payload.customer.id=c-0")
    walk.enter()
    walk.link("orders")
    walk.link("1")

    expect(walk.page.locator("#pane")).to_contain_text("amount is negative")
    walk.took(2, 1)


def test_the_holder_of_a_lease(walk: Walk) -> None:
    walk.tile("In flight")

    expect(walk.page.locator("tbody tr").first).to_contain_text("mailer@web-3:4711")
    walk.took(1)


def test_a_dead_letter_is_edited_and_replayed(walk: Walk, api: Api) -> None:
    walk.tile("Dead letters")
    walk.link("Edit…", walk.row("amount is negative"))
    walk.type("Payload", '{"order": "mended"}')
    walk.press("Replay with this payload")

    walk.sees("1 dead letter replayed")
    assert [one["payload"] for one in api.pop("orders", 9, "&consumerGroup=billing")][-1] == {"order": "mended"}
    walk.took(3, 1)


@pytest.mark.slow
def test_dead_letters_of_a_kind_are_replayed(walk: Walk) -> None:
    walk.tile("Dead letters")
    walk.link("Replay…", walk.row("amount is negative"))
    walk.press("Replay 1")

    walk.sees("1 dead letter replayed")
    walk.took(3)


@pytest.mark.slow
def test_a_group_is_moved_back_to_the_beginning(walk: Walk) -> None:
    walk.link("orders")
    walk.link("Seek…", walk.row("billing"))
    walk.sees("settled messages will be delivered again")
    walk.press("Seek to the beginning")

    walk.sees("Seek done: the group has 8 messages pending")
    walk.took(3)


def test_a_queue_is_paused(walk: Walk) -> None:
    walk.link("orders")
    walk.press("Pause")

    walk.sees("The queue is paused")
    walk.took(2)


@pytest.mark.slow
def test_a_queue_is_cleared(walk: Walk) -> None:
    walk.link("orders")
    walk.link("Clear…")
    walk.type("Type orders", "orders")
    walk.enter()

    walk.sees("messages cleared")
    walk.took(2, 1)


def test_a_scheduled_message_runs_now(walk: Walk, api: Api) -> None:
    walk.tile("Scheduled")
    walk.link("Run…", walk.row("reminder-1"))
    walk.press("Run 1 message")

    walk.sees("1 scheduled message entered the log")
    assert left(api) == [0, 2]
    walk.took(3)


@pytest.mark.slow
def test_a_scheduled_message_is_cancelled(walk: Walk, api: Api) -> None:
    walk.tile("Scheduled")
    walk.link("Cancel…", walk.row("reminder-1"))
    walk.press("Cancel 1 message")

    walk.sees("1 scheduled message cancelled")
    assert left(api) == [0, 2]
    walk.took(3)


@pytest.mark.slow
def test_a_scheduled_message_is_moved(walk: Walk, api: Api) -> None:
    walk.tile("Scheduled")
    walk.link("Move…", walk.row("reminder-0"))
    walk.type("New time, UTC", "2101-02-03T04:05:06Z")
    walk.enter()

    walk.sees("moved to another time")
    assert left(api) == [1, 2, 0]
    walk.took(2, 1)


@pytest.mark.slow
def test_what_admins_did(walk: Walk) -> None:
    walk.link("Operations")
    walk.link("Audit log")

    walk.sees("configure queue")
    walk.took(2)


def test_a_phone_takes_no_more_clicks(screen: Screen, api: Api) -> None:
    """What is to be clicked is there to be clicked: within the screen, and covered by nothing."""
    traffic(api)
    resize(screen.page, PHONE)
    walk = Walk(screen)
    walk.tile("Dead letters")
    walk.link("Edit…", walk.row("amount is negative"))
    expect(walk.page.get_by_label("Payload")).to_be_in_viewport()
    walk.type("Payload", '{"order": "mended"}')
    walk.press("Replay with this payload")
    walk.sees("1 dead letter replayed")
    walk.took(3, 1)


def test_with_keys_alone_a_queue_is_found_and_paused(walk: Walk, api: Api) -> None:
    keyboard = walk.page.keyboard
    keyboard.press("/")
    expect(walk.page.get_by_label("Find a queue or a message")).to_be_focused()
    keyboard.type("orders")
    keyboard.press("Enter")
    expect(walk.page.get_by_role("heading", level=1)).to_contain_text("orders")

    tabs = tab_to(walk.page, walk.page.get_by_role("button", name="Pause", exact=True))
    keyboard.press("Enter")

    walk.sees("The queue is paused")
    assert tabs <= 20, "the menu, the page's own buttons, and no more"
    assert api.get("/api/v1/resources/queues/orders").json["settings"]["paused"]


def tab_to(page: Page, wanted: Locator) -> int:
    """Press Tab until something has the focus; how often."""
    for tabs in range(60):
        if wanted.evaluate("one => one === document.activeElement"):
            return tabs
        page.keyboard.press("Tab")
    raise AssertionError("the keyboard does not get there")


@pytest.fixture
def guarded() -> Iterator[RunningServer]:
    with running_server(access=AccessSettings(required=True)) as server:
        yield server


@pytest.fixture
def door(guarded: RunningServer) -> Iterator[Door]:
    door = Door(guarded, "default")
    yield door
    door.close()


@pytest.mark.slow
def test_a_reader_signs_in_and_sees_why_a_queue_is_slow(
    page: Page, guarded: RunningServer, door: Door, screenshots: Path | None, allowed: list[str], complaints: list[str]
) -> None:
    allowed.append(guarded.url)
    door.caller(*Verb).push("orders", {"n": 1})
    walk = Walk(Screen(page, guarded.url, "default", screenshots))

    walk.type("Key", door.key(Verb.READ).text)
    walk.enter()
    walk.link("orders")

    expect(page.locator(".pace")).to_contain_text("no consumer has popped from it yet")
    walk.took(1, 1)
    complaints.clear()  # the browser tells of 401
