"""Room for bodies and connections: by kind of route and by peer, so that nobody takes that of others."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import pytest

from skep.config import HttpLimits
from skep.errors import Code, SkepError
from skep.http.request import peers
from skep.http.request.bodies import STRANGER_SHARE, Bodies
from skep.http.request.peers import TOLD, PeerConnections, Peers
from skep.model import DEFAULT_TENANT
from skep.spec import load, to_json
from skep.testing.server import RunningServer, running_server
from tests.http.driver import Api
from tests.http.test_abuse import ONE, PUSH, until
from tests.support.wire import RawReply, Wire
from tests.webhooks import signing
from tests.webhooks.driver import SECRET, SECRETS, SIGNED

LIMITS = HttpLimits(body_bytes=200_000, bodies_bytes=400_000, open_bodies_bytes=200_000)
SPEC = f"""
app Shop {{
  queue Alerts {{
    message_type {{ payload: json, received_at: time }}
  }}
  webhook Alert {{
    queue: Alerts
    {SIGNED}
  }}
}}
"""
HOOK = "/hook/Alert"


def apply(server: RunningServer) -> None:
    app = load(SPEC, "app.skep")
    api = Api(server, DEFAULT_TENANT)
    assert api.request("PUT", f"/api/v1/apps/{app.name}", to_json(app).encode()).status == 200
    api.close()


def hook(wire: Wire, size: int) -> RawReply:
    """What a rightly signed request of so many bytes is answered."""
    body = b'{"a": ' + b" " * (size - 8) + b"1}"
    return wire.request("POST", HOOK, body, signing.plain(body, SECRET)).reply()


def scope(client: str | None, **headers: str) -> dict[str, Any]:
    told = [(name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()]
    return {"client": None if client is None else (client, 1), "headers": told, "scheme": "http"}


@pytest.mark.parametrize(
    ("client", "said", "peer"),
    [
        ("192.0.2.1", "", "192.0.2.1"),
        ("192.0.2.1", "198.51.100.7", "192.0.2.1"),
        ("127.0.0.1", "198.51.100.7", "198.51.100.7"),
        ("127.0.0.1", "1.2.3.4, 198.51.100.7", "198.51.100.7"),
        ("127.0.0.1", "1.2.3.4, 10.0.0.9", "1.2.3.4"),
        ("10.0.0.9", "198.51.100.7:5000, 127.0.0.1", "198.51.100.7"),
        ("127.0.0.1", "1.2.3.4, nonsense", "127.0.0.1"),
        ("127.0.0.1", "", "127.0.0.1"),
        ("127.0.0.1", "[2001:db8::1]:99", "2001:db8::1"),
        ("::ffff:192.0.2.1", "", "192.0.2.1"),
        (None, "1.2.3.4", "unknown"),
    ],
)
def test_a_peer_is_who_the_last_trusted_proxy_names(client: str | None, said: str, peer: str) -> None:
    headers = {"x_forwarded_for": said} if said else {}
    assert Peers("127.0.0.0/8,10.0.0.0/8").of(scope(client, **headers)) == peer


def test_what_stands_for_many_is_held_to_no_bound_of_one() -> None:
    known = Peers("10.0.0.0/8")
    assert known.bounded(scope("10.1.1.1")) is None
    assert known.bounded(scope("127.0.0.1")) is None
    assert known.bounded(scope("10.1.1.1", x_forwarded_for="192.0.2.1")) == "192.0.2.1"
    assert known.bounded(scope("2001:db8::1")) == known.bounded(scope("2001:db8:0:ff::ffff:1")) == "2001:db8::"
    assert known.bounded(scope("2001:db8:0:100::1")) == "2001:db8:0:100::"


def test_tls_is_believed_of_trusted_proxies_only() -> None:
    known = Peers("127.0.0.1")
    assert known.is_https(scope("127.0.0.1", x_forwarded_proto="https"))
    assert known.is_https(scope("127.0.0.1", x_forwarded_proto="http, HTTPS"))
    assert not known.is_https(scope("127.0.0.1", x_forwarded_proto="https, http"))
    assert not known.is_https(scope("192.0.2.1", x_forwarded_proto="https"))


def test_a_proxy_that_cannot_be_one_is_refused_at_the_start() -> None:
    with pytest.raises(SkepError, match=r"http\.trusted_proxies"):
        Peers("localhost")


def test_unfinished_bodies_of_one_peer_take_an_eighth_of_the_room() -> None:
    bodies = Bodies(8_000, Peers(""), STRANGER_SHARE)
    for peer in "abcde":
        bodies.take_of(peer, 900, 3_000)
    with pytest.raises(SkepError) as refused:
        bodies.take_of("a", 101, 3_000)
    assert refused.value.code is Code.SERVER_BUSY
    bodies.take_of("a", 100, 3_000)
    bodies.finish_of("a", 1_000)
    bodies.give_back(1_000)
    bodies.take_of("a", 1_000, 3_000)
    assert bodies.held_bytes == 4_600


def test_unfinished_bodies_of_one_who_was_let_in_take_half_of_the_room() -> None:
    bodies = Bodies(8_000, Peers(""))
    for _ in range(2):
        bodies.take_of("a", 2_000, 3_000)
    with pytest.raises(SkepError):
        bodies.take_of("a", 1, 3_000)


def test_one_body_of_the_largest_size_is_possible_while_half_of_the_room_is_free() -> None:
    bodies = Bodies(8_000, Peers(""), STRANGER_SHARE)
    for _ in range(3):
        bodies.take_of("a", 1_000, 3_000)
    with pytest.raises(SkepError):
        bodies.take_of("a", 1, 3_000)
    bodies.take_of("b", 1_000, 3_000)
    with pytest.raises(SkepError):
        bodies.take_of("b", 1, 3_000)
    bodies.take_of("c", 1_000, 3_000)


def test_the_only_body_there_is_may_be_of_the_largest_size() -> None:
    bodies = Bodies(3_000, Peers(""), STRANGER_SHARE)
    for _ in range(3):
        bodies.take_of("a", 1_000, 3_000)
    assert bodies.held_bytes == 3_000


def test_connections_of_one_peer_are_bounded() -> None:
    crowd = PeerConnections(Peers("10.0.0.1"), 2)
    entered = [crowd.enter(("192.0.2.1", port)) for port in range(2)]
    assert not crowd.are_too_many(entered[-1])
    third = crowd.enter(("192.0.2.1", 3))
    assert crowd.are_too_many(third)
    assert not crowd.are_too_many(crowd.enter(("192.0.2.2", 1)))
    for free in ("127.0.0.1", "10.0.0.1"):
        assert not any(crowd.are_too_many(crowd.enter((free, port))) for port in range(5))
    crowd.leave(third)
    assert not crowd.are_too_many(entered[0])


def test_connections_that_are_turned_away_count_towards_nobody_and_few_are_told_why() -> None:
    crowd = PeerConnections(Peers(""), 1)
    first = crowd.enter(("192.0.2.1", 1))
    told = [crowd.turn_away(crowd.enter(("192.0.2.1", port))) for port in range(TOLD + 2)]
    assert told == [True] * TOLD + [False] * 2
    assert not crowd.are_too_many(first)


def test_connections_beyond_the_bound_of_one_peer_take_no_place_of_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peers, "TOLD", 3)
    monkeypatch.setattr(Peers, "bounded_connection", lambda *_: "192.0.2.1")
    limits = HttpLimits(max_connections=8, peer_connections=2)
    with running_server(limits=limits) as server, contextlib.ExitStack() as stack:
        for _ in range(2):
            assert stack.enter_context(Wire(server.port)).request("GET", "/health").reply().status == 200
        told = [stack.enter_context(Wire(server.port)) for _ in range(3)]
        for wire in told:
            assert ((reply := wire.reply()).status, reply.code) == (429, "TOO_MANY_REQUESTS")
        for _ in range(5):
            assert stack.enter_context(Wire(server.port)).is_ended(), "above those who are told why"
        monkeypatch.setattr(Peers, "bounded_connection", lambda *_: "192.0.2.2")
        for _ in range(2):
            assert stack.enter_context(Wire(server.port)).request("GET", "/health").reply().status == 200
        monkeypatch.setattr(Peers, "bounded_connection", lambda *_: None)
        for _ in range(4):
            assert stack.enter_context(Wire(server.port)).request("GET", "/health").reply().status == 200
        assert stack.enter_context(Wire(server.port)).is_ended(), "no place is left, and as many are told as may be"
        for wire in told:
            wire.close()
        server.run(until(lambda: server.connections == 8))
        assert stack.enter_context(Wire(server.port)).reply().status == 503


@contextlib.contextmanager
def shop(limits: HttpLimits) -> Iterator[RunningServer]:
    with running_server(limits=limits, environment=SECRETS) as server:
        apply(server)
        yield server


@contextlib.contextmanager
def unfinished(server: RunningServer, path: str, size: int) -> Iterator[Wire]:
    """A client that has sent so much of its body and goes no further."""
    room = server.app.open_bodies if path == HOOK else server.app.bodies
    with Wire(server.port) as wire:
        before = room.held_bytes
        head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 200000\r\n\r\n"
        wire.send(head.encode() + b" " * size)
        server.run(until(lambda: room.held_bytes == before + size))
        yield wire


def test_unsigned_bodies_of_webhooks_take_no_room_of_pushes() -> None:
    with shop(LIMITS) as server, Wire(server.port) as wire:
        with unfinished(server, HOOK, 150_000):
            for _ in range(5):
                with Wire(server.port) as other:
                    refused = hook(other, 100_000)
                    assert (refused.status, refused.code) == (503, "SERVER_BUSY")
            assert server.app.bodies.held_bytes == 0
            assert wire.request("POST", PUSH, ONE + b" " * (190_000 - len(ONE))).reply().status == 201
            assert hook(wire, 1_000).status == 202, "small ones still fit"
        server.run(until(lambda: server.app.open_bodies.held_bytes == 0))


def test_pushes_take_no_room_of_webhooks() -> None:
    with (
        shop(LIMITS) as server,
        Wire(server.port) as wire,
        unfinished(server, PUSH, 190_000),
        unfinished(server, PUSH, 190_000),
    ):
        assert hook(wire, 100_000).status == 202


def test_an_unfinished_body_of_a_webhook_is_cut_off() -> None:
    limits = HttpLimits(body_seconds=0.3, open_bodies_bytes=200_000)
    with shop(limits) as server, Wire(server.port) as wire:
        with unfinished(server, HOOK, 150_000) as slow:
            assert slow.reply().status == 408
        server.run(until(lambda: server.app.open_bodies.held_bytes == 0))
        assert hook(wire, 100_000).status == 202


def test_unsigned_bodies_of_webhooks_take_no_room_of_logins() -> None:
    with shop(LIMITS) as server, Wire(server.port) as wire, unfinished(server, HOOK, 199_999):
        form = {"Content-Type": "application/x-www-form-urlencoded", "Origin": "http://localhost"}
        assert wire.request("POST", "/login", b"key=some+key&next=/", form).reply().status == 303
