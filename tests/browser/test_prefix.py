"""Behind a proxy that gives the dashboard a path of its own: pages, files, live refresh, forms and the login all stay below it."""

from __future__ import annotations

import http.client
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import Page, expect

from skep.config import AccessSettings
from skep.model.key import Verb
from skep.testing.server import RunningServer, running_server
from tests.access.driver import Door

PREFIX = "/ops/skep"
HOP_BY_HOP = {"connection", "transfer-encoding", "content-length", "keep-alive"}


def proxy_to(server: RunningServer, strays: list[str]) -> type[BaseHTTPRequestHandler]:
    """A proxy that takes the path off, and says so; what is asked for beside it has gone astray."""

    class Proxy(BaseHTTPRequestHandler):
        def _pass_on(self) -> None:
            if not self.path.startswith(PREFIX + "/"):
                strays.append(self.path)
                self.send_error(404)
                return
            body = self.rfile.read(int(self.headers.get("content-length") or 0))
            behind = http.client.HTTPConnection("127.0.0.1", server.port, timeout=30)
            said = {name: value for name, value in self.headers.items() if name.lower() not in HOP_BY_HOP}
            behind.request(
                self.command, self.path.removeprefix(PREFIX), body or None, {**said, "X-Forwarded-Prefix": PREFIX}
            )
            answer = behind.getresponse()
            content = answer.read()
            self.send_response(answer.status)
            for name, value in answer.getheaders():
                if name.lower() not in HOP_BY_HOP:
                    self.send_header(name, value)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)
            behind.close()

        do_GET = do_POST = _pass_on  # noqa: N815 - as its base calls them

        def log_message(self, format: str, *arguments: Any) -> None:  # noqa: A002 - as its base has it
            pass

    return Proxy


@pytest.fixture
def guarded() -> Iterator[RunningServer]:
    with running_server(access=AccessSettings(required=True)) as server:
        yield server


@pytest.fixture
def strays() -> list[str]:
    return []


@pytest.fixture
def proxied(guarded: RunningServer, strays: list[str], allowed: list[str]) -> Iterator[str]:
    proxy = ThreadingHTTPServer(("127.0.0.1", 0), proxy_to(guarded, strays))
    proxy.daemon_threads = True
    thread = Thread(target=proxy.serve_forever, daemon=True)
    thread.start()
    url = f"http://127.0.0.1:{proxy.server_address[1]}"
    allowed.append(url)
    yield url + PREFIX
    proxy.shutdown()
    proxy.server_close()
    thread.join()


@pytest.mark.slow
def test_everything_works_below_the_prefix(
    page: Page, guarded: RunningServer, proxied: str, strays: list[str], complaints: list[str]
) -> None:
    door = Door(guarded, "default")
    admin = door.key(*Verb)
    door.with_token(admin.text).push("orders", {"n": 1})

    page.goto(proxied + "/queues/orders")
    page.get_by_label("Key").fill(admin.text)
    page.get_by_role("button", name="Sign in").click()

    expect(page.get_by_role("heading", name="orders")).to_be_visible()
    complaints.clear()  # the browser tells of 401
    [cookie] = page.context.cookies()
    assert cookie["path"] == PREFIX + "/"
    page.get_by_role("button", name="Pause").click()
    expect(page.locator(".notice")).to_contain_text("paused")
    for name in ("Overview", "Queues", "Messages", "Traces", "Dead letters", "Operations", "Pipelines"):
        page.get_by_role("navigation", name="Screens").get_by_role("link", name=name).click()
        expect(page.locator(".side nav [aria-current]")).to_have_text(name)
        assert urlsplit(page.url).path.startswith(PREFIX)
    page.goto(proxied + "/")
    todo = page.locator(".figure", has_text="Backlog").locator("dd")
    expect(todo).to_have_text("1")
    door.with_token(admin.text).push("orders", {"n": 2})
    page.evaluate("refresh()")
    expect(todo).to_have_text("2")
    page.get_by_role("button", name="Sign out").click()
    expect(page.get_by_label("Key")).to_be_visible()
    complaints.clear()
    assert page.context.cookies() == []
    assert strays == []
    door.close()
