"""Which names a server answers to: a name that someone else owns may be made to mean this machine (DNS rebinding)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from skep.config import AccessSettings, HttpLimits
from skep.errors import Code, SkepError
from skep.http.connection.hosts import Hosts
from skep.http.connection.refusal import Refused
from skep.testing.server import RunningServer, running_server
from tests.support.serving import serving
from tests.support.wire import RawReply, Wire

LOOPBACK = (
    "localhost", "LocalHost", "localhost.", "localhost:6632", "skep.localhost", "127.0.0.1", "127.0.0.1:80", "127.9.9.9",
    "[::1]", "[::1]:6632", "[::ffff:127.0.0.1]",
)  # fmt: skip
FOREIGN = (
    "evil.example",
    "evil.example:6632",
    "localhost.evil.example",
    "127.0.0.1.evil.example",
    "notlocalhost",
    "skep",
)


@pytest.fixture(scope="module")
def open_server() -> Iterator[RunningServer]:
    with running_server() as server:
        yield server


def ask(port: int, host: str, path: str = "/health", version: str = "1.1") -> RawReply:
    with Wire(port) as wire:
        return wire.send(f"GET {path} HTTP/{version}\r\nHost: {host}\r\n\r\n".encode()).reply()


@pytest.mark.parametrize("host", LOOPBACK)
def test_without_a_gate_names_of_loopback_are_answered(open_server: RunningServer, host: str) -> None:
    assert ask(open_server.port, host).status == 200


@pytest.mark.parametrize("host", FOREIGN)
def test_without_a_gate_no_other_name_is_answered(open_server: RunningServer, host: str) -> None:
    reply = ask(open_server.port, host)

    assert (reply.status, reply.code, reply.ends_connection) == (421, "HOST_UNKNOWN", True)
    assert "http.hosts" in reply.json["error"]["message"], "the answer says what to do"


def test_a_page_whose_name_was_rebound_mints_no_key(open_server: RunningServer) -> None:
    """Such a page is of the same origin as the server, as far as its browser can tell."""
    body = b'{"name": "mine", "grants": [{"role": "admin"}]}'
    own = {"Origin": "http://evil.example:6632", "Sec-Fetch-Site": "same-origin", "Sec-Fetch-Mode": "cors"}
    lines = "".join(f"{name}: {value}\r\n" for name, value in own.items())
    head = f"POST /api/v1/keys HTTP/1.1\r\nHost: evil.example:6632\r\n{lines}Content-Length: {len(body)}\r\n\r\n"

    with Wire(open_server.port) as wire:
        reply = wire.send(head.encode() + body).reply()

    assert (reply.status, reply.code) == (421, "HOST_UNKNOWN")
    assert open_server.run(open_server.engine.access.all_keys()) == []


@pytest.mark.parametrize("host", ["192.0.2.7", "192.0.2.7:6632", "[2001:db8::7]:6632"])
def test_an_address_is_answered_since_nobody_can_rebind_it(open_server: RunningServer, host: str) -> None:
    """Probes of kubelets and load balancers ask by address, and ports may have been mapped on the way."""
    assert ask(open_server.port, host, "/ready").status == 200


@pytest.mark.parametrize(
    "host", ["", "a b", "evil.example/", "x@localhost", "localhost:port", "[::1", "[zz]", "127.1", "a,b"]
)
def test_what_is_no_host_is_refused(open_server: RunningServer, host: str) -> None:
    assert ask(open_server.port, host).status in (400, 421)


def test_configured_names_are_answered() -> None:
    limits = HttpLimits(hosts="Skep.Example., *.svc.cluster.local")
    with running_server(limits=limits) as server:
        for host in ("skep.example", "SKEP.example.:443", "a.svc.cluster.local", "a.b.svc.cluster.local", "localhost"):
            assert ask(server.port, host).status == 200, host
        for host in ("evil.example", "www.skep.example", "svc.cluster.local", "xsvc.cluster.local"):
            assert ask(server.port, host).status == 421, host


def test_a_star_answers_to_every_name() -> None:
    with running_server(limits=HttpLimits(hosts="*")) as server:
        assert ask(server.port, "anything.example").status == 200


def test_with_a_gate_every_name_is_answered_until_some_are_configured() -> None:
    access = AccessSettings(required=True)
    with running_server(access=access) as server:
        assert ask(server.port, "queue.example").status == 200
    with running_server(access=access, limits=HttpLimits(hosts="queue.example")) as server:
        assert ask(server.port, "queue.example").status == 200
        assert ask(server.port, "10.1.2.3:6632").status == 200
        assert ask(server.port, "evil.example").status == 421


def test_a_server_that_listens_on_a_name_answers_to_it() -> None:
    hosts = Hosts(None, is_guarded=False, listens_on="Box.lan.")
    hosts.examine(b"box.lan:6632")
    with pytest.raises(Refused):
        hosts.examine(b"evil.example")


def test_a_server_process_answers_to_its_configured_names(tmp_path: Path) -> None:
    with serving("--store", ":memory:", "--set", "http.hosts=skep.example", folder=tmp_path) as process:
        port = process.listening()
        assert ask(port, "skep.example").status == 200
        assert ask(port, "evil.example").status == 421


@pytest.mark.parametrize("names", ["http://skep.example", "skep.example:80", "a b", "*.*.example", "exa*mple"])
def test_a_name_that_cannot_be_one_is_refused_at_the_start(names: str) -> None:
    with pytest.raises(SkepError) as refused:
        Hosts(names, is_guarded=False)
    assert refused.value.code is Code.INVALID_SETTING
    assert "http.hosts" in refused.value.message


def test_the_log_tells_of_a_name_once(open_server: RunningServer) -> None:
    with running_server() as server, capture_logs() as logged:
        for _ in range(3):
            ask(server.port, "evil.example")

    told = [entry for entry in logged if entry.get("host") == "evil.example"]
    assert [entry["log_level"] for entry in told] == ["warning"]


# the request line, and how often Host is said


@pytest.mark.parametrize(
    "head",
    [
        b"GET /health HTTP/1.1\r\n\r\n",
        b"GET /health HTTP/1.1\r\nHost:\r\n\r\n",
        b"GET /health HTTP/1.1\r\nHost: localhost\r\nHost: localhost\r\n\r\n",
        b"GET /health HTTP/1.1\r\nHost: localhost\r\nhost: evil.example\r\n\r\n",
        b"GET /health HTTP/1.0\r\nHost: localhost\r\nHost: localhost\r\n\r\n",
        b"GET http://evil.example/health HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"GET http://x@localhost/health HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"GET ftp://localhost/health HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"GET http://localhost HTTP/1.1\r\nHost: localhost\r\n\r\n",
    ],
)
def test_a_request_names_its_host_once_and_clearly(open_server: RunningServer, head: bytes) -> None:
    with Wire(open_server.port) as wire:
        reply = wire.send(head).reply()
        assert (reply.status, reply.code, reply.ends_connection) == (400, "MALFORMED", True)


def test_a_target_with_its_host_is_answered_when_both_say_the_same(open_server: RunningServer) -> None:
    with Wire(open_server.port) as wire:
        assert wire.send(b"GET http://LOCALHOST:1/health HTTP/1.1\r\nHost: localhost:1\r\n\r\n").reply().status == 200
        assert wire.send(b"GET http://evil.example/health HTTP/1.1\r\nHost: evil.example\r\n\r\n").reply().status == 421


def test_http_1_0_needs_no_host(open_server: RunningServer) -> None:
    """Probes of some load balancers say nothing else; browsers have long ceased to speak it."""
    with Wire(open_server.port) as wire:
        assert wire.send(b"GET /health HTTP/1.0\r\n\r\n").reply().status == 200


@pytest.mark.parametrize("version", ["0.9", "2.0"])
def test_another_version_of_http_is_refused(open_server: RunningServer, version: str) -> None:
    reply = ask(open_server.port, "localhost", version=version)

    assert (reply.status, reply.code, reply.ends_connection) == (505, "MALFORMED", True)


def test_a_request_line_without_a_version_is_refused(open_server: RunningServer) -> None:
    with Wire(open_server.port) as wire:
        assert wire.send(b"GET /health\r\n\r\n").reply().status in (400, 505)
        assert wire.is_ended()


@pytest.mark.parametrize("said", ["close, Upgrade", "Upgrade, close", "upgrade , CLOSE"])
def test_a_wish_for_another_protocol_does_not_lose_the_wish_to_close(open_server: RunningServer, said: str) -> None:
    with Wire(open_server.port) as wire:
        reply = wire.request("GET", "/health", headers={"Connection": said, "Upgrade": "h2c"}).reply()

        assert (reply.status, reply.ends_connection) == (200, True)
        assert wire.is_ended()


def test_answers_of_the_api_are_not_kept_and_not_guessed_at(open_server: RunningServer) -> None:
    for path, status in (
        ("/api/v1/status", 200),
        ("/api/v1/pop/queue/none", 404),
        ("/nowhere", 404),
        ("/api/v1/push", 405),
        ("/metrics", 200),
        ("/openapi.json", 200),
    ):
        reply = ask(open_server.port, "localhost", path)
        assert reply.status == status, path
        assert reply.headers["cache-control"] == "no-store", path
        assert reply.headers["x-content-type-options"] == "nosniff", path
    refused = ask(open_server.port, "evil.example")
    assert (refused.headers["cache-control"], refused.headers["x-content-type-options"]) == ("no-store", "nosniff")


def test_what_is_empty_is_not_kept_either(open_server: RunningServer) -> None:
    with Wire(open_server.port) as wire:
        wire.request("POST", "/api/v1/configure", b'{"queue": "empty"}').reply()
        reply = wire.request("POST", "/api/v1/pop/queue/empty").reply()
        assert (reply.status, reply.headers["cache-control"]) == (204, "no-store")
