"""One queue, and what is done to it."""

from __future__ import annotations

from playwright.sync_api import expect

from tests.browser.conftest import Aged
from tests.browser.screen import Screen
from tests.browser.traffic import shop
from tests.http.driver import Api


def test_a_queue_shows_groups_partitions_and_messages(aged_screen: Screen) -> None:
    aged_screen.open("/queues/orders")

    page = aged_screen.page
    expect(page.get_by_role("heading", name="orders")).to_be_visible()
    expect(page.locator("section", has=page.get_by_role("heading", name="Groups")).locator("tbody tr")).to_have_count(1)
    expect(page.locator(".chart canvas")).to_have_count(3)
    aged_screen.shoot("queue")
    aged_screen.open("/queues")
    aged_screen.shoot("queues-charts")


def test_a_lease_counts_down_and_can_be_released(screen: Screen, api: Api) -> None:
    api.push("orders", {"n": 1}, partition="p")
    [held] = api.pop("orders")
    screen.open("/queues/orders")
    expect(screen.page.locator("[data-deadline]")).to_contain_text("4 m")

    screen.page.get_by_role("button", name="Release").click()

    expect(screen.page.locator(".notice")).to_contain_text("1 lease released; its messages will be redelivered")
    assert [message["attempt"] for message in api.pop("orders")] == [2]
    assert api.ack(held).code == "STALE_LEASE"


def test_a_test_message_is_published(screen: Screen, api: Api) -> None:
    api.push("orders", {"n": 1})
    screen.open("/queues/orders/publish")
    screen.shoot("publish")

    screen.page.get_by_label("Partition").fill("p")
    screen.page.get_by_label("Payload").fill('{"hello": "<b>world</b>"}')
    screen.page.get_by_role("button", name="Publish").click()

    expect(screen.page.locator(".notice")).to_contain_text("at seq 2")
    assert api.pop("orders")[1]["payload"] == {"hello": "<b>world</b>"}


def test_a_payload_that_is_not_json_is_told_and_nothing_is_pushed(
    screen: Screen, api: Api, complaints: list[str]
) -> None:
    api.push("orders", {"n": 1})
    screen.open("/queues/orders/publish")

    screen.page.get_by_label("Payload").fill("{oops")
    screen.page.get_by_role("button", name="Publish").click()

    expect(screen.page.get_by_text("INVALID_PAYLOAD")).to_be_visible()
    assert len(api.pop("orders")) == 1
    complaints.clear()


def test_settings_are_changed_one_by_one(screen: Screen, api: Api) -> None:
    api.post("/api/v1/configure", {"queue": "orders", "settings": {"namespace": "shop"}})
    screen.open("/queues/orders/settings")
    screen.shoot("settings")

    screen.page.get_by_label("max_attempts").fill("9")
    screen.page.get_by_label("namespace").fill("")
    screen.page.get_by_role("button", name="Save").click()

    expect(screen.page.locator(".notice")).to_contain_text("2 settings changed")
    settings = api.get("/api/v1/resources/queues/orders").json["settings"]
    assert (settings["max_attempts"], settings["namespace"], settings["lease_seconds"]) == (9, None, 300)


def test_clearing_needs_the_name_typed(screen: Screen, api: Api) -> None:
    shop(api)
    screen.open("/queues/emails/clear")
    button = screen.page.get_by_role("button", name="Clear the queue")
    expect(button).to_be_disabled()
    screen.shoot("clear")

    screen.page.get_by_label("Type emails").fill("emails")
    button.click()

    expect(screen.page.locator(".notice")).to_contain_text("16 messages cleared")
    assert api.get("/api/v1/resources/queues/emails").json["stats"]["depth"] == 3


def test_a_seek_is_previewed_before_it_is_made(screen: Screen, api: Api) -> None:
    api.push("orders", *range(5))
    for message in api.pop("orders", 2, "&consumerGroup=billing"):
        api.ack(message)
    screen.open("/queues/orders/groups/billing/seek")

    beginning = screen.page.locator("form.panel", has_text="The beginning")
    expect(beginning).to_contain_text("5 messages pending")
    expect(beginning).to_contain_text("2 settled messages will be delivered again")
    screen.shoot("seek")
    beginning.get_by_role("button", name="Seek to the beginning").click()
    expect(screen.page.locator(".notice")).to_contain_text("5 messages pending")
    assert len(api.pop("orders", 9, "&consumerGroup=billing")) == 5


def test_a_seek_to_a_seq_is_previewed_before_it_is_made(screen: Screen, api: Api) -> None:
    api.push("orders", *range(5))
    for message in api.pop("orders", 2, "&consumerGroup=billing"):
        api.ack(message)
    screen.open("/queues/orders/groups/billing/seek")

    screen.page.get_by_label("Seq").fill("4")
    screen.page.keyboard.press("Enter")

    preview = screen.page.locator("#preview")
    expect(preview).to_contain_text("2 messages pending, after seq 3")
    expect(preview).to_contain_text("1 unsettled message will be skipped")
    preview.get_by_role("button", name="Seek").click()
    expect(screen.page.locator(".notice")).to_contain_text("2 messages pending")
    assert [message["seq"] for message in api.pop("orders", 9, "&consumerGroup=billing")] == [4, 5]


def test_a_group_is_forgotten_when_its_name_is_typed(screen: Screen, api: Api) -> None:
    api.push("orders", 1)
    api.pop("orders", 1, "&consumerGroup=billing")
    screen.open("/queues/orders")
    screen.page.get_by_role("row", name="billing").get_by_role("link", name="Seek…").click()

    screen.page.get_by_text("Delete group…").click()
    button = screen.page.get_by_role("button", name="Delete group")
    expect(button).to_be_disabled()
    screen.page.get_by_label("Type billing").fill("billing")
    button.click()

    expect(screen.page.locator(".notice")).to_contain_text("was deleted")
    assert api.get("/api/v1/resources/queues/orders").json["groups"] == []


def test_a_queue_that_is_not_there_is_told_of(screen: Screen, aged: Aged, complaints: list[str]) -> None:
    assert screen.open("/queues/nosuch").status == 404
    expect(screen.page.get_by_text("list of queues")).to_be_visible()
    complaints.clear()
