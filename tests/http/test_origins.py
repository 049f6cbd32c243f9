"""What a web page can make its visitor's browser ask of a server: nothing, unless the page is the server's own."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from skep.testing.server import RunningServer, running_server
from tests.support.wire import RawReply, Wire

HOST = "127.0.0.1:6632"
POP = "/api/v1/pop/queue/orders?autoAck=true"
FRAME = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "iframe"}
LINK = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "document"}
OWN = {"Sec-Fetch-Site": "same-origin", "Sec-Fetch-Mode": "cors"}
MOZILLA = {"User-Agent": "Mozilla/5.0 (X11; Linux x86_64) Firefox/140.0"}
FOREIGN = {
    "a hidden frame": FRAME,
    "a link": LINK,
    "a picture": {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "no-cors"},
    "a page on another port": {"Sec-Fetch-Site": "same-site", "Sec-Fetch-Mode": "no-cors"},
    "an address from a mail": {"Sec-Fetch-Site": "none", "Sec-Fetch-Mode": "navigate"},
    "a fetch": {"Origin": "http://evil.example", "Sec-Fetch-Site": "cross-site"},
    "a sandboxed frame": {"Origin": "null"},
    "an older browser": {"Referer": "http://evil.example/page"},
    "one that only looks like this server": {"Referer": f"http://evil.example/{HOST}/"},
    "one with a name that begins like it": {"Referer": f"http://{HOST}.evil.example/"},
    "a fetch of an older browser": {"Origin": "https://evil.example"},
}


@pytest.fixture(scope="module")
def server() -> Iterator[RunningServer]:
    with running_server() as server:
        yield server


@pytest.fixture
def wire(server: RunningServer) -> Iterator[Wire]:
    with Wire(server.port) as wire:
        wire.request("POST", "/api/v1/push", b'{"items": [{"queue": "orders", "payload": 1}]}').reply()
        yield wire


def ask(wire: Wire, method: str, path: str, headers: dict[str, str], body: bytes = b"") -> RawReply:
    return wire.request(method, path, body, headers, host=HOST).reply()


@pytest.mark.parametrize("headers", FOREIGN.values(), ids=FOREIGN)
@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", POP),
        ("GET", "/%61pi/v1/pop?namespace=x&autoAck=true"),
        ("GET", "/api/v1/pop/queue/orders/partition/x?autoAck=true"),
        ("POST", POP),
        ("GET", "/api/v1/status"),
        ("POST", "/api/v1/push"),
        ("DELETE", "/api/v1/resources/queues/orders"),
        ("GET", "/admin/queues"),
        ("POST", "/hook/github"),
    ],
)
def test_no_page_of_another_origin_reaches_the_api(wire: Wire, method: str, path: str, headers: dict[str, str]) -> None:
    reply = ask(wire, method, path, headers)

    assert (reply.status, reply.code) == (403, "FORBIDDEN")


def test_what_such_a_page_asked_for_stays_in_its_queue(server: RunningServer) -> None:
    with Wire(server.port) as wire:
        wire.request("POST", "/api/v1/push", b'{"items": [{"queue": "kept", "payload": 1}]}').reply()
        for headers in FOREIGN.values():
            with Wire(server.port) as page:
                ask(page, "GET", "/api/v1/pop/queue/kept?autoAck=true", headers)
        popped = wire.request("POST", "/api/v1/pop/queue/kept").reply()
        assert [message["attempt"] for message in popped.json["messages"]] == [1]


@pytest.mark.parametrize(
    "headers",
    [
        {},
        OWN,
        {**OWN, "Origin": f"http://{HOST}"},
        {**OWN, "Origin": f"https://{HOST}"},
        {"Referer": f"http://{HOST}/queues/orders"},
        {"Referer": f"https://{HOST}/"},
        {"User-Agent": "curl/8.5.0"},
    ],
)
def test_its_own_pages_and_programs_reach_the_api(wire: Wire, headers: dict[str, str]) -> None:
    assert ask(wire, "GET", POP, headers).status in (200, 204)
    assert ask(wire, "POST", POP, headers).status in (200, 204)


def test_a_browser_that_says_nothing_of_its_page_cannot_pop_by_get(wire: Wire) -> None:
    """To servers off loopback and without TLS browsers send no Sec-Fetch-Site, and a page can keep back its Referer."""
    refused = ask(wire, "GET", POP, MOZILLA)
    assert (refused.status, refused.code) == (403, "FORBIDDEN")
    assert "POST" in refused.json["error"]["message"]
    assert ask(wire, "GET", POP, {**MOZILLA, "Referer": f"http://{HOST}/"}).status in (200, 204)
    assert ask(wire, "POST", POP, MOZILLA).status in (200, 204), "a page cannot send this without saying its origin"
    assert ask(wire, "GET", "/api/v1/status", MOZILLA).status == 200, "a page cannot read this, and it changes nothing"


@pytest.mark.parametrize("path", ["/", "/queues", "/health", "/ready", "/docs", "/openapi.json", "/metrics"])
@pytest.mark.parametrize(
    "headers", [LINK, {"Sec-Fetch-Site": "none", "Sec-Fetch-Mode": "navigate"}, OWN, {"Referer": "http://a.example/"}]
)
def test_links_to_its_pages_work(wire: Wire, path: str, headers: dict[str, str]) -> None:
    assert ask(wire, "GET", path, headers).status == 200


@pytest.mark.parametrize("path", ["/", "/queues", "/metrics"])
@pytest.mark.parametrize(
    "headers", [FRAME, FOREIGN["a picture"], FOREIGN["a page on another port"], FOREIGN["a fetch"]]
)
def test_its_pages_are_not_shown_within_others(wire: Wire, path: str, headers: dict[str, str]) -> None:
    assert ask(wire, "GET", path, headers).status == 403


@pytest.mark.parametrize("headers", FOREIGN.values(), ids=FOREIGN)
def test_no_other_page_sends_a_form(wire: Wire, headers: dict[str, str]) -> None:
    """Also where nobody is asked who they are, and there is no cookie to abuse."""
    form = {**headers, "Content-Type": "application/x-www-form-urlencoded"}
    assert ask(wire, "POST", "/queues/orders/pause", form, b"paused=yes").status == 403
    assert ask(wire, "GET", "/api/v1/resources/queues/orders", {}).json["settings"]["paused"] is False


def test_a_pop_by_post_takes_its_parameters_in_the_query(wire: Wire) -> None:
    refused = wire.request("POST", "/api/v1/pop/queue/orders", b'{"batch": 10}').reply()
    assert (refused.status, refused.code) == (422, "INVALID_REQUEST")
    assert "query" in refused.json["error"]["message"]


@pytest.mark.parametrize(
    "path", ["/api/v1/pop/queue/posted", "/api/v1/pop/queue/posted/partition/p", "/api/v1/pop?namespace=post"]
)
def test_a_pop_by_post_is_a_pop(server: RunningServer, path: str) -> None:
    with Wire(server.port) as wire:
        item = b'{"items": [{"queue": "posted", "partition": "p", "namespace": "post", "payload": 7}]}'
        wire.request("POST", "/api/v1/push", item).reply()
        reply = wire.request("POST", path + ("&" if "?" in path else "?") + "autoAck=true&batch=5").reply()
        assert [message["payload"] for message in reply.json["messages"]] == [7]
        assert wire.request("POST", path).reply().status == 204
