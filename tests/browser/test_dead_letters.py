"""Dead letters: by kind, one by one, and what is done with them."""

from __future__ import annotations

from playwright.sync_api import expect

from tests.browser.screen import Screen
from tests.http.driver import Api


def kill(api: Api, queue: str, *errors: str) -> None:
    """A message that dies of each error."""
    for n, error in enumerate(errors):
        api.push(queue, {"n": n, "amount": -n}, partition=f"p{n}")
        [message] = api.pop(queue, 1)
        assert api.ack(message, "dlq", error=error).status == 200


def dead(api: Api, queue: str = "orders.dead") -> int:
    return len(api.get(f"/api/v1/dlq?queue={queue}").json["deadLetters"])


def test_they_are_grouped_by_what_they_died_of(aged_screen: Screen) -> None:
    aged_screen.open("/dead-letters")

    rows = aged_screen.page.locator("table.rows tbody tr")
    assert rows.count() == 3
    expect(rows.filter(has_text="amount -<n>").or_(rows.filter(has_text="amount <n>"))).to_contain_text("payments")
    aged_screen.shoot("dead-letters")
    rows.first.get_by_role("link").first.click()
    expect(aged_screen.page.get_by_role("button", name="Replay selected")).to_be_visible()
    aged_screen.shoot("dead-kind")
    aged_screen.page.locator("table.rows tbody a").first.click()
    expect(aged_screen.page.get_by_role("heading", name="Edit and replay")).to_be_visible()
    aged_screen.shoot("dead-letter")


def test_nothing_dead_is_told_calmly(screen: Screen) -> None:
    screen.open("/dead-letters")

    expect(screen.page.get_by_role("heading", name="No dead letters")).to_be_visible()
    screen.shoot("dead-letters-empty")


def test_selected_ones_are_replayed_after_a_preview(screen: Screen, api: Api) -> None:
    kill(api, "orders", "no 1", "no 2", "no 3")
    screen.open("/dead-letters")
    screen.page.get_by_role("link", name="no <n>").click()

    screen.page.get_by_label("Select 3").check()
    screen.page.get_by_label("Select 1").check()
    screen.page.get_by_role("button", name="Replay selected").click()
    expect(screen.page.locator("main")).to_contain_text("2 dead letters of orders.dead will be replayed")
    screen.shoot("dead-confirm")
    screen.page.get_by_role("button", name="Replay 2").click()

    expect(screen.page.locator(".notice")).to_contain_text("2 dead letters replayed")
    assert dead(api) == 1
    assert [message["payload"]["n"] for message in api.pop("orders")] == [0, 2]


def test_what_was_replayed_is_shown_with_what_became_of_it(screen: Screen, api: Api) -> None:
    kill(api, "orders", "no card", "no money")
    screen.open("/dead-letters", queue="orders.dead")
    screen.page.get_by_role("link", name="Replayed dead letters of orders.dead").click()
    expect(screen.page.locator("main")).to_contain_text("No replays")
    api.post("/api/v1/dlq/replay", {"queue": "orders", "error": "money"})
    [message] = api.pop("orders", 1)
    api.ack(message)

    screen.page.reload()

    row = screen.page.locator("table.rows tbody tr")
    expect(row).to_have_count(1)
    expect(row).to_contain_text("no money")
    expect(row).to_contain_text("settled")
    screen.shoot("dead-replays")


def test_choosing_none_is_told(screen: Screen, api: Api, complaints: list[str]) -> None:
    kill(api, "orders", "no 1")
    screen.open("/dead-letters")
    screen.page.get_by_role("link", name="no <n>").click()

    screen.page.get_by_role("button", name="Purge selected").click()

    expect(screen.page.locator("main")).to_contain_text("No dead letter is selected")
    complaints.clear()


def test_a_whole_kind_is_purged_when_the_word_is_typed(screen: Screen, api: Api) -> None:
    kill(api, "orders", "no 1", "lost key 'a'", "no 2")
    screen.open("/dead-letters")

    screen.page.locator("tr", has_text="no <n>").get_by_role("link", name="Purge").click()
    expect(screen.page.get_by_role("button", name="Delete permanently")).to_be_disabled()
    screen.page.get_by_label("Type purge").fill("purge")
    screen.page.get_by_role("button", name="Delete permanently").click()

    expect(screen.page.locator(".notice")).to_contain_text("2 dead letters deleted")
    assert dead(api) == 1


def test_all_that_match_a_filter_are_replayed(screen: Screen, api: Api) -> None:
    kill(api, "orders", "no 1", "lost key 'a'", "no 2")
    screen.open("/dead-letters", queue="orders.dead")
    screen.page.get_by_role("searchbox").fill("lost key")
    screen.page.keyboard.press("Enter")

    screen.page.get_by_role("link", name="Replay all that match").click()
    expect(screen.page.locator("main")).to_contain_text("whose error contains “lost key”")
    screen.page.get_by_role("button", name="Replay 1").click()

    expect(screen.page.locator(".notice")).to_contain_text("1 dead letter replayed")
    assert dead(api) == 2


def test_one_is_edited_and_replayed(screen: Screen, api: Api) -> None:
    kill(api, "orders", "amount is negative")
    screen.open("/dead-letters/orders.dead/letters/1")

    screen.page.get_by_label("Payload").fill('{"amount": 1}')
    screen.page.get_by_role("button", name="Replay with this payload").click()

    expect(screen.page.locator(".notice")).to_contain_text("1 dead letter replayed")
    assert [message["payload"] for message in api.pop("orders")] == [{"amount": 1}]
    assert dead(api) == 0
