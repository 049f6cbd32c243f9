"""Forms: what cannot be taken is told in the form itself, with what was typed; and the form of a key that may not is not there."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from skep.config import AccessSettings
from skep.model.key import Verb
from skep.model.queue_settings import SETTINGS
from skep.testing.server import RunningServer, running_server
from tests.access.driver import Door
from tests.dashboard.visitor import Shown, Visitor
from tests.http.driver import Api


def fields_of(page: Shown, action: str) -> dict[str, str]:
    return dict(page.form(action).fields)


def test_a_message_that_is_no_json_is_told_in_the_form_with_what_was_typed(api: Api, visitor: Visitor) -> None:
    api.push("orders", 1)
    form = visitor.open("/queues/orders/publish").form("/publish")

    again = visitor.send(form, ("payload", "{oops"), ("partition", "p 1"), ("txid", "t-7"))

    assert again.status == 422
    assert "INVALID_PAYLOAD" in again.text
    assert "Nothing was published" in again.text
    assert fields_of(again, "/publish") == {"payload": "{oops", "partition": "p 1", "txid": "t-7"}
    assert api.get("/api/v1/resources/queues/orders").json["stats"]["depth"] == 1


def test_a_setting_that_cannot_be_is_told_in_the_form_with_what_was_typed(api: Api, visitor: Visitor) -> None:
    api.push("orders", 1)
    form = visitor.open("/queues/orders/settings").form("/settings")

    again = visitor.send(form, ("max_attempts", "-3"), ("namespace", "shop"))

    assert again.status == 422
    assert "Nothing was changed" in again.text
    assert "max_attempts" in again.text.partition("Nothing was changed")[0]
    typed = fields_of(again, "/settings")
    assert (typed["max_attempts"], typed["was-max_attempts"], typed["namespace"]) == ("-3", "3", "shop")
    mended = visitor.send(again.form("/settings"), ("max_attempts", "5"))
    assert mended.notice == "2 settings changed."
    settings = api.get("/api/v1/resources/queues/orders").json["settings"]
    assert (settings["max_attempts"], settings["namespace"]) == (5, "shop")


def test_an_edit_that_is_no_json_is_told_in_the_form_with_what_was_typed(api: Api, visitor: Visitor) -> None:
    api.push("orders", {"amount": -1})
    api.ack(api.pop("orders", 1)[0], "dlq", error="negative")
    form = visitor.open("/dead-letters/orders.dead/letters/1").form("/edit")

    again = visitor.send(form, ("payload", '{"amount": <b>'))

    assert again.status == 422
    assert "Nothing was replayed" in again.text
    assert fields_of(again, "/edit")["payload"] == '{"amount": <b>'
    done = visitor.send(again.form("/edit"), ("payload", '{"amount": 1}'))
    assert done.notice == "1 dead letter replayed."
    assert api.pop("orders", 1)[0]["payload"] == {"amount": 1}


def test_a_seek_to_no_time_is_told_in_the_form(api: Api, visitor: Visitor) -> None:
    api.push("orders", 1)

    page = visitor.open("/queues/orders/groups/billing/seek?to=time&time=yesterday")

    assert page.status == 200
    assert 'role="alert"' in page.html
    assert 'value="yesterday"' in page.html


def test_a_wrong_word_is_told_in_the_form_and_deletes_nothing(api: Api, visitor: Visitor) -> None:
    api.push("orders", 1, 2)
    for message in api.pop("orders", 2):
        api.ack(message, "dlq", error="negative")
    form = visitor.open("/dead-letters/orders.dead/confirm?do=purge&seq=2").form("/purge")

    again = visitor.send(form, ("confirm", "porge"))

    assert again.status == 422
    assert "Type the word purge to delete dead letters. Nothing was deleted." in again.text
    done = visitor.send(again.form("/purge"), ("confirm", "purge"))
    assert done.notice == "1 dead letter deleted permanently."
    assert [one["seq"] for one in api.get("/api/v1/dlq?queue=orders").json["deadLetters"]] == [1]


def test_the_wrong_name_of_a_group_is_told_in_the_form(api: Api, visitor: Visitor) -> None:
    api.push("orders", 1)
    api.pop("orders", 1, "&consumerGroup=billing")
    form = visitor.open("/queues/orders/groups/billing/seek").form("/delete")

    again = visitor.send(form, ("confirm", "bill"))

    assert again.status == 422
    assert "Type the group's name exactly to delete it. Nothing was deleted." in again.text


def test_a_time_that_is_none_is_told_in_the_form_that_moves_scheduled_messages(api: Api, visitor: Visitor) -> None:
    api.push("orders", 1, deliverAt="2101-01-01T00:00:00Z")
    form = visitor.open("/queues/orders/scheduled/confirm?do=move").form("/move")

    again = visitor.send(form, ("time", "tomorrow"))

    assert again.status == 422
    assert "Nothing was moved" in again.text
    assert fields_of(again, "/move")["time"] == "tomorrow"
    done = visitor.send(again.form("/move"), ("time", "2101-01-02T00:00:00Z"))
    assert done.notice == "1 scheduled message moved to another time."


def test_every_setting_has_help_beside_its_field(api: Api, visitor: Visitor) -> None:
    api.push("orders", 1)

    page = visitor.open("/queues/orders/settings")

    assert [name for name, setting in SETTINGS.items() if setting.help_text not in page.text] == ["paused"]


@pytest.fixture
def guarded() -> Iterator[RunningServer]:
    with running_server(access=AccessSettings(required=True)) as server:
        yield server


@pytest.fixture
def door(guarded: RunningServer) -> Iterator[Door]:
    door = Door(guarded, "default")
    yield door
    door.close()


PAGES = (
    "/queues", "/queues/orders", "/queues/orders/settings", "/dead-letters", "/dead-letters?queue=orders.dead",
    "/dead-letters/orders.dead/letters/1", "/operations",
)  # fmt: skip
CONTROLS = (
    "Pause", "Resume", "Clear…", "Clear the queue", "Publish", "Save changes", "Seek…", "Seek", "Release", "Replay…", "Purge…",
    "Replay 1", "Replay with this payload", "Delete group",
)  # fmt: skip


def busy(door: Door) -> None:
    admin = door.caller(*Verb)
    admin.push("orders", 1, 2, 3)
    for message, status in zip(
        admin.pop("orders", "&consumerGroup=billing").json["messages"], ("dlq", "completed"), strict=False
    ):
        admin.post("/api/v1/ack", {"leaseId": message["leaseId"], "seq": message["seq"], "status": status})


def test_a_key_that_may_only_read_sees_no_control_that_it_may_not_use(guarded: RunningServer, door: Door) -> None:
    busy(door)
    reader = Visitor(guarded)
    reader.sign_in(door.key(Verb.READ).text)

    for path in PAGES:
        page = reader.open(path)
        assert page.status == 200, path
        main = page.html.partition("<main")[2].partition("<dialog")[0]
        assert [word for word in CONTROLS if f">{word}<" in main] == [], path
        assert "Replay all" not in main, path


def test_an_admin_sees_them(guarded: RunningServer, door: Door) -> None:
    busy(door)
    admin = Visitor(guarded)
    admin.sign_in(door.key(*Verb).text)

    assert admin.open("/queues/orders").form("/pause").buttons
    assert "Clear…" in admin.open("/queues/orders").text
    assert "Replay…" in admin.open("/dead-letters").text


def test_what_a_reader_sends_by_hand_is_refused(guarded: RunningServer, door: Door) -> None:
    busy(door)
    reader = Visitor(guarded)
    reader.sign_in(door.key(Verb.READ).text)

    refused = reader.post("/queues/orders/pause", [("paused", "yes")])

    assert refused.status == 403
    assert "FORBIDDEN" in refused.text


def test_a_form_of_another_site_is_refused(guarded: RunningServer, door: Door) -> None:
    busy(door)
    admin = Visitor(guarded)
    admin.sign_in(door.key(*Verb).text)

    for headers in ({"Sec-Fetch-Site": "cross-site"}, {"Origin": "http://evil.example"}):
        assert admin.post("/queues/orders/pause", [("paused", "yes")], **headers).status == 403
    assert "Pause" in admin.open("/queues/orders").text


def test_a_key_that_was_revoked_meanwhile_does_nothing_more(guarded: RunningServer, door: Door) -> None:
    busy(door)
    minted = door.key(*Verb)
    admin = Visitor(guarded)
    admin.sign_in(minted.text)
    form = admin.open("/queues/orders").form("/pause")

    door.revoke(minted)
    after = admin.send(form, button="Pause")

    assert after.status == 401
    assert "Sign in with an API key or token" in after.text


def test_a_tenant_s_key_sees_and_does_nothing_of_another_tenant(guarded: RunningServer, door: Door) -> None:
    busy(door)
    stranger = Visitor(guarded)
    stranger.sign_in(door.key(*Verb, tenants=["acme"]).text)

    for path in ("/queues/orders?tenant=default", "/messages/orders/1/payload?tenant=default"):
        assert stranger.open(path).status == 403
    assert stranger.post("/queues/orders/pause?tenant=default", [("paused", "yes")]).status == 403
