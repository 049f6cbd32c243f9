"""Refused webhooks in a browser: what anybody may have sent is text, and nothing of it is a secret."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from skep.spec import load, to_json
from skep.testing.server import RunningServer, running_server
from tests.browser.screen import PHONE, Screen, resize
from tests.http.driver import Api

APP = """
app A {
  queue Q {}
  webhook Bell { queue: Q, verify: none, idempotency { key: payload.id } }
  webhook Door { queue: Q, verify: none, idempotency { header: "X-Once" } }
}
"""
HOSTILE = (
    b'{"<img src=x onerror=alert(1)>": "</td><script>alert(2)</script>", "\\u001b[31mred": "\xe2\x80\xaetxt.exe", "sk_live_0123456789abcdef": 1,'
    b' "password": "hunter2", "nested": {"token": "eyJhbGciOiJIUzI1NiJ9.e30.x"}, "amount": 424242}'
)
SECRETS = ("hunter2", "sk_live", "eyJhbGci", "424242", "querytoken", "bearertoken", "cookiesecret", "alert(")


@pytest.fixture(scope="module")
def hooked() -> Iterator[RunningServer]:
    with running_server() as server:
        yield server


@pytest.fixture
def sender(hooked: RunningServer) -> Iterator[Api]:
    """Someone whose requests are refused."""
    api = Api(hooked, "default")
    assert api.request("PUT", "/api/v1/apps/A", to_json(load(APP, "a.skep")).encode()).status == 200
    yield api
    api.close()


@pytest.fixture
def hooked_screen(page: Page, hooked: RunningServer, screenshots: Path | None, allowed: list[str]) -> Screen:
    allowed.append(hooked.url)
    return Screen(page, hooked.url, "default", screenshots)


def refuse(sender: Api) -> None:
    headers = {"Authorization": "Bearer bearertoken", "Cookie": "s=cookiesecret", "Content-Type": "application/json"}
    for path, body in (
        ("Bell", HOSTILE), ("Door", b"{}"), ("Bell", b"token=hunter2&amount=424242"), ("Bell?access_token=querytoken", HOSTILE),
    ):  # fmt: skip
        reply = sender.request("POST", f"/hook/{path}", body, headers)
        assert reply.status in (400, 422), reply


def test_a_refused_request_is_shown_as_text_and_without_its_secrets(hooked_screen: Screen, sender: Api) -> None:
    refuse(sender)
    page = hooked_screen.page
    hooked_screen.open("/operations")
    page.get_by_role("link", name="Refused webhooks").click()

    rows = page.locator("tbody tr")
    expect(rows).to_have_count(4)
    expect(rows.first).to_contain_text("has no query")
    expect(rows.last).to_contain_text("422 MAPPING_FAILED")
    expect(rows.last).to_contain_text('"password":"…","nested":{"token":"…"}')
    expect(rows.last).to_contain_text("authorization")
    shown = page.content()
    assert [secret for secret in SECRETS if secret in shown] == []
    assert page.locator("main script, main img").count() == 0
    assert not any(ord(sign) < 32 and sign not in "\n\t" for sign in shown)
    hooked_screen.shoot("refusals")

    rows.last.get_by_role("link", name="Bell").click()
    expect(page.locator("tbody tr")).to_have_count(3)
    page.get_by_role("link", name="All webhooks").click()
    expect(page.locator("tbody tr")).to_have_count(4)


def test_a_header_with_markup_for_a_name_is_refused_or_left_out(hooked_screen: Screen, hooked: RunningServer) -> None:
    with socket.create_connection(("127.0.0.1", hooked.port), timeout=30) as connection:
        connection.sendall(
            b"POST /hook/Bell HTTP/1.1\r\nHost: localhost\r\n<b>x</b>: hunter2\r\nContent-Length: 2\r\nConnection: close\r\n\r\n{}"
        )
        assert b" 400 " in connection.recv(4096).partition(b"\r\n")[0]

    hooked_screen.open("/operations/refusals")

    assert "hunter2" not in hooked_screen.page.content()
    assert hooked_screen.page.locator("main b").count() == 0


def test_a_phone_shows_refusals_without_scrolling_the_page_sideways(hooked_screen: Screen, sender: Api) -> None:
    sender.request("POST", "/hook/Bell", b'{"' + b"a" * 39 + b'": [' + b'{"b":' * 200)
    resize(hooked_screen.page, PHONE)

    hooked_screen.open("/operations/refusals")

    expect(hooked_screen.page.locator("tbody tr").first).to_be_visible()
    assert hooked_screen.page.evaluate("document.documentElement.scrollWidth") <= PHONE["width"]
