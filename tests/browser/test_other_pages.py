"""Pages of others, in a real browser: what they make it ask of a local server is refused, and its own pages go on working."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

import pytest
from playwright.sync_api import BrowserContext, Page, expect

from skep.testing.server import RunningServer
from tests.browser.screen import Screen
from tests.http.driver import Api
from tests.http.test_abuse import until

POP = "/api/v1/pop/queue/{queue}"
BEGINNING = '<!doctype html><link rel="icon" href="data:,">'
ATTACKS = {
    "frame": '<iframe src="{pop}" style="display:none"></iframe>',
    "frame that says nothing": '<iframe src="{pop}" referrerpolicy="no-referrer" sandbox></iframe>',
    "object": '<object data="{pop}"></object>',
    "picture": '<img src="{pop}">',
    "script": '<script src="{pop}"></script>',
    "fetch": '<script>fetch("{pop}", {{mode: "no-cors"}}).catch(() => 0)</script>',
    "fetch by POST": '<script>fetch("{pop}", {{mode: "no-cors", method: "POST"}}).catch(() => 0)</script>',
    "form": '<form method="post" action="{pop}"></form><script>document.forms[0].submit()</script>',
    "window": '<script>location = "{pop}"</script>',
}


@pytest.fixture
def other(allowed: list[str]) -> Iterator[tuple[int, dict[str, str]]]:
    """A server of other people: its port, and the pages that it has."""
    pages: dict[str, str] = {}

    class Other(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            content = pages.get(self.path, "").encode()
            self.send_response(200)
            self.send_header("Content-Type", "text/html")
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, format: str, *arguments: Any) -> None:  # noqa: A002 - as its base has it
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Other)
    server.daemon_threads = True
    thread = Thread(target=server.serve_forever, daemon=True)
    thread.start()
    port = server.server_address[1]
    allowed.extend((f"http://evil.example:{port}", f"http://127.0.0.1:{port}"))
    yield port, pages
    server.shutdown()
    server.server_close()
    thread.join()


def answered(server: RunningServer) -> Counter[int]:
    """How often pops of a queue were answered, by status."""
    routes = server.app.meter.routes
    return Counter(routes["GET", POP].by_status) + Counter(routes["POST", POP].by_status)


@pytest.mark.parametrize("host", ["evil.example", pytest.param("127.0.0.1", marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", ATTACKS)
def test_no_page_of_others_pops_a_message(
    context: BrowserContext, server: RunningServer, other: tuple[int, dict[str, str]], name: str, host: str
) -> None:
    """A page of another site, and one of another port of this machine, which browsers take for the same site."""
    api = Api(server, "default")
    queue = f"precious-{list(ATTACKS).index(name)}-{host}"
    api.push(queue, {"n": 1})
    port, pages = other
    pages["/"] = BEGINNING + ATTACKS[name].format(pop=f"{server.url}/api/v1/pop/queue/{queue}?autoAck=true")
    before = answered(server)

    visited = context.new_page()
    visited.goto(f"http://{host}:{port}/", wait_until="commit")
    server.run(until(lambda: answered(server) != before))
    visited.close()

    assert answered(server) - before == {403: 1}
    assert [(message["payload"], message["attempt"]) for message in api.pop(queue)] == [({"n": 1}, 1)]
    api.close()


def test_a_name_that_was_rebound_shows_nothing(
    page: Page, server: RunningServer, complaints: list[str], allowed: list[str]
) -> None:
    allowed.append(f"http://evil.example:{server.port}")

    answer = page.goto(f"http://evil.example:{server.port}/")

    assert answer is not None
    assert answer.status == 421
    page.goto("about:blank")  # whatever the first one had to say is said by now
    complaints.clear()


def test_a_link_from_another_page_leads_to_the_dashboard(
    page: Page, server: RunningServer, screen: Screen, api: Api, other: tuple[int, dict[str, str]]
) -> None:
    api.push("orders", {"n": 1})
    port, pages = other
    pages["/"] = f'{BEGINNING}<a href="{server.url}/queues/orders?tenant={api.tenant}">see</a>'

    page.goto(f"http://evil.example:{port}/")
    page.get_by_role("link", name="see").click()

    expect(page.get_by_role("heading", name="orders")).to_be_visible()
    page.get_by_role("button", name="Pause").click()
    expect(page.locator(".notice")).to_contain_text("paused")
