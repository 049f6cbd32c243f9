"""Logging in with a key, on a server that asks who comes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from skep.config import AccessSettings
from skep.model.key import Verb
from skep.testing.server import RunningServer, running_server
from tests.access.driver import Door
from tests.browser.screen import Screen

TENANT = "default"


@pytest.fixture(scope="module")
def guarded() -> Iterator[RunningServer]:
    with running_server(access=AccessSettings(required=True)) as server:
        yield server


@pytest.fixture
def door(guarded: RunningServer) -> Iterator[Door]:
    door = Door(guarded, TENANT)
    yield door
    door.close()


@pytest.fixture
def guarded_screen(page: Page, guarded: RunningServer, screenshots: Path | None, allowed: list[str]) -> Screen:
    allowed.append(guarded.url)
    return Screen(page, guarded.url, TENANT, screenshots)


def log_in(screen: Screen, key: str | None) -> None:
    screen.page.get_by_label("Key").fill(key or "")
    screen.page.get_by_role("button", name="Sign in").click()


def test_whoever_shows_a_key_gets_to_the_page_they_asked_for(
    guarded_screen: Screen, door: Door, complaints: list[str]
) -> None:
    door.caller(*Verb).push("orders", {"n": 1})
    assert guarded_screen.open("/queues/orders").status == 401
    guarded_screen.shoot("login")

    log_in(guarded_screen, door.caller(*Verb).token)

    page = guarded_screen.page
    expect(page.get_by_role("heading", name="orders")).to_be_visible()
    [cookie] = page.context.cookies()
    assert (cookie["name"], cookie["httpOnly"], cookie["sameSite"], cookie["path"]) == (
        "skep_session", True, "Strict", "/",
    )  # fmt: skip
    assert not cookie["value"].startswith("skep_"), "it is no key"
    page.get_by_role("button", name="Pause").click()
    expect(page.locator(".notice")).to_contain_text("paused")
    page.get_by_role("button", name="Sign out").click()
    expect(page.get_by_label("Key")).to_be_visible()
    assert page.context.cookies() == []
    page.context.add_cookies([{"name": "skep_session", "value": cookie["value"], "url": guarded_screen.page.url}])
    guarded_screen.open("/queues/orders")
    expect(page.get_by_label("Key")).to_be_visible()
    complaints.clear()  # the browser tells of 401


def test_a_wrong_key_is_told_and_not_kept(guarded_screen: Screen, complaints: list[str]) -> None:
    guarded_screen.open("/")

    log_in(guarded_screen, "skep_" + "0" * 16 + "_" + "0" * 43)

    expect(guarded_screen.page.get_by_role("alert")).to_contain_text("not known")
    assert guarded_screen.page.context.cookies() == []
    complaints.clear()


def test_a_reader_sees_and_changes_nothing(guarded_screen: Screen, door: Door, complaints: list[str]) -> None:
    door.caller(*Verb).push("mails", {"n": 1})
    guarded_screen.open("/queues/mails")
    log_in(guarded_screen, door.caller(Verb.READ).token)

    expect(guarded_screen.page.get_by_role("heading", name="mails")).to_be_visible()
    expect(guarded_screen.page.get_by_role("button", name="Pause")).to_have_count(0)
    guarded_screen.open("/queues/mails/clear")
    expect(guarded_screen.page.get_by_role("button", name="Clear the queue")).to_have_count(0)
    assert not door.caller(*Verb).get("/api/v1/resources/queues/mails").json["settings"]["paused"]
    complaints.clear()


def test_a_cookie_opens_pages_only_and_changes_only_from_them(door: Door) -> None:
    admin = door.caller(*Verb)
    admin.push("orders", {"n": 1})
    nobody = door.with_token(None, TENANT)
    shown = door.session(admin.token or "")
    cookie = {"Cookie": shown}
    form = {**cookie, "Content-Type": "application/x-www-form-urlencoded"}

    assert nobody.request("GET", "/queues", None, cookie).status == 200
    assert nobody.request("GET", "/api/v1/status", None, cookie).status == 401
    assert nobody.request("GET", "/queues", None, {"Cookie": f"{shown}; skep_session=x"}).status == 401
    for headers in (form, {**form, "Sec-Fetch-Site": "same-site"}, {**form, "Origin": "https://evil.example"}):
        assert nobody.request("POST", "/queues/orders/pause", b"paused=yes", headers).status == 403
    said = {**form, "Sec-Fetch-Site": "same-origin"}
    assert nobody.request("POST", "/queues/orders/pause", b"paused=no", said).status == 303


@pytest.mark.parametrize(
    "to", ["https://evil.example/", "//evil.example/", "/\\evil.example", "javascript:alert(1)", "/\r\nX: y"]
)
def test_logging_in_leads_nowhere_else(door: Door, to: str) -> None:
    from urllib.parse import urlencode

    body = urlencode({"key": door.key(Verb.READ).text, "next": to}).encode()
    headers = {"Content-Type": "application/x-www-form-urlencoded", "Sec-Fetch-Site": "same-origin"}

    reply = door.with_token(None, TENANT).request("POST", "/login", body, headers)

    assert (reply.status, reply.headers["location"]) == (303, "/")


def test_what_is_done_from_a_page_is_noted(door: Door) -> None:
    admin = door.caller(*Verb)
    admin.push("orders", {"n": 1})
    headers = {"Content-Type": "application/x-www-form-urlencoded"}
    assert admin.request("POST", "/queues/orders/pause", b"paused=no", headers).status == 303

    [noted] = [e for e in admin.get("/api/v1/audit").json["entries"] if e["action"] == "POST /queues/{queue}/pause"][:1]

    assert noted["names"] == ["orders"]
