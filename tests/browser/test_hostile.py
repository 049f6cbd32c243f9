"""Whatever someone else may write, in every field that reaches a page, is text there: no page runs it, breaks, or leaves the host."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import parse_qs, quote, urlsplit

from playwright.sync_api import Page, Response, expect

from skep.model import NewMessage, PushBatch, QueueKey
from skep.model.operation import QueuedReason
from skep.testing.server import RunningServer
from tests.browser.screen import Screen
from tests.http.driver import Api

PARTS = [
    "<script>window.evil=1</script>",
    '"><img src=x onerror=window.evil=1>',
    "'><svg/onload=window.evil=1>",
    "{{7*7}}{% raw %}${window.evil=1}",
    "javascript:window.evil=1//",
    "</textarea></title></style><script>window.evil=1</script>",
]
EVIL = "".join(PARTS)
"""All of it at once: a queue's name may be that long."""
TRACE = "01a1de02-7b1f-7061-b55a-489bc83b0732"
ACTIVE = "main script, main iframe, main object, main [onerror], main [onload], main [style]:not(.plot *)"
SCRIPTED = 'main a[href^="javascript" i]'
CHOSEN = {"tenant", "sort", "range", "show"}
"""Parameters that choose among what a page has, and are none of the text that others write."""


def everything(api: Api, evil: str) -> None:
    """The text in all that can be written from outside."""
    api.post("/api/v1/configure", {"queue": evil, "settings": {"namespace": evil, "task": evil, "max_attempts": 1}})
    payload = {evil: evil, "list": [evil], "n": 1}
    fields = {"partition": evil, "transactionId": evil, "traceId": TRACE, "headers": {evil: evil}}
    api.post(
        "/api/v1/push",
        {"items": [{"queue": evil, "payload": payload, **fields}, {"queue": evil, "payload": evil, "partition": "2"}]},
    )
    api.post("/api/v1/traces", {"events": [{"traceId": TRACE, "name": evil, "data": {evil: evil}, "queue": evil}]})
    quoted = api_quoted(evil)
    for message in api.pop(quoted, 9, f"&consumerGroup={quoted}"):
        api.ack(message, "dlq", error=evil)
    api.pop(quoted, 1)
    report = {
        "name": evil, "status": "failed", "message": evil, "lag": {evil: 1}, "links": {evil: evil, "x": "javascript:alert(1)"},
        "stages": [{"name": evil, "status": "failed", "message": evil}], "checks": [{"name": evil, "status": "warn", "message": evil}],
        "details": {evil: evil},
    }  # fmt: skip
    assert api.request("PUT", f"/api/v1/pipelines/{quoted}", json.dumps(report).encode()).status == 200


@contextmanager
def put_off(api: Api, server: RunningServer, evil: str) -> Iterator[None]:
    """A push that waits as an operation, with an error that names its queue: that is full. It does not outlast the test."""
    api.post("/api/v1/configure", {"queue": evil + "2", "settings": {"max_depth": 1}})
    api.push(evil + "2", 1)
    engine = server.engine
    message = NewMessage(QueueKey(evil + "2", api.tenant), b"2", partition=evil)
    server.run(engine.operations.push(PushBatch([message], engine._ids.mint_many(1)), 1, QueuedReason.SYSTEM_BUSY))
    yield
    api.close()  # the walk may take longer than a connection is kept: the next call opens another
    (operation,) = api.get("/api/v1/operations").json["operations"]
    while api.delete(f"/api/v1/operations/{operation['id']}").status != 200:
        pass  # it is tried just now


def api_quoted(text: str) -> str:
    return quote(text, safe="")


def pages(page: Page) -> list[str]:
    """Where the links of a page lead, within the dashboard."""
    links = page.evaluate("[...document.querySelectorAll('main a[href]')].map(link => link.href)")
    return [str(link) for link in links if "/docs" not in link and "#" not in link]


def shape(link: str) -> str:
    """Which page a link leads to. Whose names are in its path does not matter, nor in which order or for how long it shows them."""
    url = urlsplit(link)
    path = "/".join("*" if "%" in part else part for part in url.path.split("/"))
    return f"{path}?{'&'.join(sorted(parse_qs(url.query).keys() - CHOSEN))}"


def check(response: Response | None, page: Page) -> None:
    """All that others wrote is text here."""
    assert response is not None
    assert response.status == 200, page.url
    # In one call, and without playwright's own selectors: with them it puts its scripts into each page, which takes longer than the page.
    count = "selector => document.querySelectorAll(selector).length"
    found = page.evaluate(f"selectors => [window.evil ?? null, ...selectors.map({count})]", [ACTIVE, SCRIPTED, "main"])
    assert found == [None, 0, 0, 1], page.url


def test_nothing_that_others_write_runs_in_a_page(screen: Screen, api: Api, server: RunningServer) -> None:
    everything(api, EVIL)
    with put_off(api, server, EVIL[:200]):
        seen: set[str] = set()
        checked: set[str] = set()
        quoted = api_quoted(EVIL)
        for path in (
            "/",
            "/queues",
            "/messages",
            "/traces",
            "/dead-letters",
            "/consumers",
            "/scheduled",
            "/operations",
            "/operations/audit",
            "/pipelines",
            f"/queues/{quoted}",
        ):
            asked = {"show": "all"} if path == "/queues" else {"id": TRACE} if path == "/traces" else {}
            check(screen.open(path, **asked), screen.page)
            seen |= set(pages(screen.page))
            checked.add(shape(screen.page.url))
        assert len(seen) > 20
        shapes = {shape(link): link for link in sorted(seen)}
        assert len(shapes.keys() - checked) > 10
        for link in (link for found, link in shapes.items() if found not in checked):
            check(screen.page.goto(link), screen.page)


def test_a_link_cannot_put_words_into_a_notice(screen: Screen, api: Api, complaints: list[str]) -> None:
    api.push("orders", 1)
    screen.open("/queues", notice="<b>call this number</b>", number="1")

    expect(screen.page.locator(".notice")).to_have_count(0)
    expect(screen.page.locator("main")).not_to_contain_text("call this number")
    [refused] = complaints
    assert "422" in refused
    complaints.clear()


def test_a_form_of_another_site_does_nothing(screen: Screen, api: Api) -> None:
    api.push("orders", 1)
    path = f"/queues/orders/pause?tenant={api.tenant}"
    form = {"Content-Type": "application/x-www-form-urlencoded", "Origin": "https://evil.example"}

    refused = api.request("POST", path, b"paused=yes", form)
    json_like = api.request("POST", path, b"paused=yes", {"Content-Type": "text/plain"})

    assert (refused.status, json_like.status) == (403, 415)
    assert not api.get("/api/v1/resources/queues/orders").json["settings"]["paused"]


def test_pages_are_told_to_do_nothing_but_what_they_need(api: Api) -> None:
    reply = api.request("GET", "/", headers={"Accept": "text/html"})

    policy = dict(part.strip().split(" ", 1) for part in reply.headers["content-security-policy"].split(";"))
    assert policy["default-src"] == "'none'"
    assert "unsafe" not in reply.headers["content-security-policy"]
    assert policy["script-src"].startswith("'nonce-")
    assert policy["frame-ancestors"] == "'none'"
    assert (reply.headers["x-content-type-options"], reply.headers["cache-control"]) == ("nosniff", "no-store")
    again = api.request("GET", "/", headers={"Accept": "text/html"})
    assert again.headers["content-security-policy"] != reply.headers["content-security-policy"]


def test_behind_a_path_prefix_all_links_and_files_have_it(api: Api) -> None:
    api.push("orders", 1)
    for path in ("/", "/queues", "/queues/orders", "/messages?q=queue:orders"):
        body = api.request("GET", path, headers={"X-Forwarded-Prefix": "/ops/skep/"}).body.decode()
        for attribute in ("href", "src", "action", "hx-get"):
            links = [part.split('"')[0] for part in body.split(f'{attribute}="')[1:]]
            assert all(link.startswith(("/ops/skep/", "#", "http")) for link in links), (path, attribute, links)
    evil = api.request("GET", "/", headers={"X-Forwarded-Prefix": '//evil.example"><script>'}).body.decode()
    assert "evil.example" not in evil
