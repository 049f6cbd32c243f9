"""Bad input and misuse: a clear answer, no crash, no leak, and other clients unharmed."""

from __future__ import annotations

import asyncio
import contextlib
import json
import select
import socket
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest
from structlog.testing import capture_logs

from skep.config import EngineSettings, HttpLimits, Limits
from skep.http.connection.protocol import LimitedProtocol
from skep.testing.server import RunningServer, running_server
from tests.support.serving import serving
from tests.support.wire import RawReply, Wire

PUSH = "/api/v1/push"
ONE = json.dumps({"items": [{"queue": "q", "payload": 1}]}).encode()
LIMITS = HttpLimits(
    body_bytes=200_000, headers_bytes=4_096, headers_count=20, url_bytes=1_024, pipelined_requests=4, reader_seconds=0.3
)  # fmt: skip
IMPATIENT = HttpLimits(body_seconds=0.3, headers_seconds=0.3)
SETTINGS = EngineSettings(limits=Limits(parked_polls=2))


@pytest.fixture(scope="module")
def strict() -> Iterator[RunningServer]:
    """A server with low limits."""
    with running_server(limits=LIMITS, settings=SETTINGS) as server:
        make_empty_queue(server.port)
        yield server


@pytest.fixture(scope="module")
def impatient() -> Iterator[RunningServer]:
    """A server that does not wait long."""
    with running_server(limits=IMPATIENT) as server:
        make_empty_queue(server.port)
        yield server


@contextlib.contextmanager
def process_with(limits: HttpLimits, folder: Path) -> Iterator[int]:
    """The port of a server with these limits as a process of its own, on uvloop."""
    environ = {
        f"SKEP_HTTP_{name.upper()}": str(value)
        for name, value in msgspec.structs.asdict(limits).items()
        if value is not None
    }
    with serving("--store", ":memory:", folder=folder, environ=environ) as process:
        port = process.listening()
        make_empty_queue(port)
        yield port


@pytest.fixture(scope="module")
def strict_process(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    """The strict one as a process."""
    with process_with(LIMITS, tmp_path_factory.mktemp("strict")) as port:
        yield port


@pytest.fixture(scope="module")
def impatient_process(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    """The impatient one as a process."""
    with process_with(IMPATIENT, tmp_path_factory.mktemp("impatient")) as port:
        yield port


@pytest.fixture(params=["strict", "strict_process"])
def wire(request: pytest.FixtureRequest) -> Iterator[Wire]:
    """A connection to the strict one; whatever the test does, the server serves the next client."""
    port = port_of(request)
    with Wire(port) as wire:
        yield wire
    assert works(port)


@pytest.fixture(params=["impatient", "impatient_process"])
def slow_wire(request: pytest.FixtureRequest) -> Iterator[Wire]:
    """A connection to the impatient one, which serves the next client, too."""
    port = port_of(request)
    with Wire(port) as wire:
        yield wire
    # On a busy machine even a quick client may seem slow to it.
    assert any(works(port) for _ in range(10))


def port_of(request: pytest.FixtureRequest) -> int:
    found = request.getfixturevalue(request.param)
    return found if isinstance(found, int) else int(found.port)


def make_empty_queue(port: int) -> None:
    """A queue at which one can wait."""
    with Wire(port) as wire:
        wire.request("POST", PUSH, ONE.replace(b'"q"', b'"empty"')).reply()
        assert wire.request("GET", "/api/v1/pop/queue/empty?autoAck=true").reply().status == 200


def works(port: int) -> bool:
    with Wire(port) as other, contextlib.suppress(ConnectionError):
        return other.request("POST", PUSH, ONE).reply().status == 201
    return False


# what is sent


def test_a_body_that_is_not_json_is_malformed(wire: Wire) -> None:
    reply = wire.request("POST", PUSH, b'{"items": [').reply()

    assert (reply.status, reply.code) == (400, "MALFORMED")
    assert wire.request("POST", PUSH, ONE).reply().status == 201, "the connection is as good as before"


@pytest.mark.parametrize("body", [b"[]", b'{"items": 1}', b'{"items": [{"queue": 1, "payload": 1}]}', b"null"])
def test_json_of_the_wrong_shape_is_an_invalid_request(wire: Wire, body: bytes) -> None:
    reply = wire.request("POST", PUSH, body).reply()

    assert (reply.status, reply.code) == (422, "INVALID_REQUEST")


def test_an_unknown_route_is_told_apart_from_a_wrong_method(wire: Wire) -> None:
    assert wire.request("GET", "/nowhere").reply().code == "ROUTE_NOT_FOUND"
    reply = wire.request("GET", PUSH).reply()
    assert (reply.status, reply.code, reply.headers["allow"]) == (405, "METHOD_NOT_ALLOWED", "POST")


@pytest.mark.parametrize("path", ["/api/v1/push/", "/api/v1/pop/queue/", "/api/v1/resources/queues/"])
def test_a_slash_at_the_end_is_another_route(wire: Wire, path: str) -> None:
    reply = wire.request("GET", path).reply()

    assert (reply.status, reply.code) == (404, "ROUTE_NOT_FOUND")


@pytest.mark.parametrize("kind", ["text/csv", "application/xml", "multipart/form-data; boundary=x", "image/png"])
def test_a_body_that_says_it_is_not_json_is_refused(wire: Wire, kind: str) -> None:
    reply = wire.request("POST", PUSH, ONE, {"Content-Type": kind}).reply()

    assert (reply.status, reply.code) == (415, "UNSUPPORTED_MEDIA_TYPE")


@pytest.mark.parametrize(
    "kind",
    [
        "application/json",
        "Application/JSON; charset=utf-8",
        "application/vnd.x+json",
        "application/x-www-form-urlencoded",
    ],
)
def test_json_is_taken_under_all_its_names_and_as_curl_sends_it(wire: Wire, kind: str) -> None:
    assert wire.request("POST", PUSH, ONE, {"Content-Type": kind}).reply().status == 201


@pytest.mark.parametrize("encoding", ["gzip", "br", "deflate, gzip"])
def test_a_compressed_body_is_refused(wire: Wire, encoding: str) -> None:
    reply = wire.request("POST", PUSH, ONE, {"Content-Encoding": encoding}).reply()

    assert (reply.status, reply.code) == (415, "UNSUPPORTED_MEDIA_TYPE")


@pytest.mark.parametrize(
    "head",
    [
        b"NONSENSE\r\n\r\n",
        b"GET / HTTP/9.9\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        b"GET  HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: localhost\r\nNo colon\r\n\r\n",
        b"POST /api/v1/push HTTP/1.1\r\nHost: localhost\r\nContent-Length: many\r\n\r\n",
        b"POST /api/v1/push HTTP/1.1\r\nHost: localhost\r\nContent-Length: -1\r\n\r\n",
        b"POST /api/v1/push HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab",
        b"POST /api/v1/push HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        b"POST /api/v1/push HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        b"CONNECT example.org:443 HTTP/1.1\r\nHost: localhost\r\n\r\n",
    ],
)
def test_what_is_not_http_is_malformed_and_ends_the_connection(wire: Wire, head: bytes) -> None:
    reply = wire.send(head).reply()

    assert (reply.status, reply.code, reply.ends_connection) == (400, "MALFORMED", True)
    assert wire.is_ended()


def test_a_wish_for_another_protocol_is_passed_over(wire: Wire) -> None:
    upgrade = {"Connection": "Upgrade, HTTP2-Settings", "Upgrade": "h2c", "HTTP2-Settings": "AAMAAABk"}

    assert wire.request("POST", PUSH, ONE, upgrade).reply().status == 201
    assert wire.request("GET", "/health").reply().status == 200


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "https://evil.example"},
        {"Origin": "null"},
        {"Origin": "http://localhost:8080"},
        {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "no-cors"},
    ],
)
def test_a_page_of_another_origin_cannot_use_it(wire: Wire, headers: dict[str, str]) -> None:
    reply = wire.request("POST", PUSH, ONE, headers).reply()

    assert (reply.status, reply.code) == (403, "FORBIDDEN")


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "http://localhost", "Sec-Fetch-Site": "same-origin", "Sec-Fetch-Mode": "cors"},
        {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate"},
        {"Sec-Fetch-Site": "none", "Sec-Fetch-Mode": "navigate"},
    ],
)
def test_its_own_pages_and_links_to_it_work(wire: Wire, headers: dict[str, str]) -> None:
    assert wire.request("GET", "/health", headers=headers).reply().status == 200


# how much is sent


def test_a_huge_header_is_refused(wire: Wire) -> None:
    reply = wire.request("GET", "/health", headers={"X-Huge": "x" * 5_000}).reply()

    assert (reply.status, reply.code, reply.ends_connection) == (431, "INVALID_REQUEST", True)
    assert wire.is_ended()


def test_a_header_without_end_is_refused_while_it_is_read(wire: Wire) -> None:
    wire.send(b"GET /health HTTP/1.1\r\nHost: localhost\r\nX-Endless: " + b"x" * 6_000)

    assert wire.reply().status == 431


def test_too_many_headers_are_refused(wire: Wire) -> None:
    reply = wire.request("GET", "/health", headers={f"X-{number}": "1" for number in range(30)}).reply()

    assert (reply.status, reply.code) == (431, "INVALID_REQUEST")


def test_a_long_url_is_refused(wire: Wire) -> None:
    reply = wire.request("GET", "/api/v1/pop/queue/" + "q" * 2_000).reply()

    assert (reply.status, reply.code, reply.ends_connection) == (414, "INVALID_REQUEST", True)


def test_a_body_that_announces_too_much_is_refused_before_it_comes(wire: Wire) -> None:
    wire.send(
        b"POST /api/v1/push HTTP/1.1\r\nHost: localhost\r\nContent-Length: 300000\r\nExpect: 100-continue\r\n\r\n"
    )

    reply = wire.reply()

    assert (reply.status, reply.code, reply.ends_connection) == (413, "PAYLOAD_TOO_LARGE", True)
    assert wire.is_ended()


def test_a_chunked_body_is_refused_as_soon_as_it_is_too_long(wire: Wire) -> None:
    wire.send(b"POST /api/v1/push HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n")
    chunk = b"10000\r\n" + b" " * 0x10000 + b"\r\n"
    for _ in range(40):
        wire.send(chunk)  # it goes on sending long after it was refused, as clients do

    reply = wire.reply()

    assert (reply.status, reply.code, reply.ends_connection) == (413, "PAYLOAD_TOO_LARGE", True)
    assert wire.is_ended()


ROOMY = HttpLimits(body_bytes=200_000, bodies_bytes=250_000)


@contextlib.contextmanager
def holding(server: RunningServer, size: int) -> Iterator[Wire]:
    """A client that has sent so much of its body and goes no further."""
    with Wire(server.port) as wire:
        before = server.app.bodies.held_bytes
        wire.send(b"POST /api/v1/push HTTP/1.1\r\nHost: localhost\r\nContent-Length: 200000\r\n\r\n" + b" " * size)
        server.run(until(lambda: server.app.bodies.held_bytes == before + size))
        yield wire


def test_bodies_that_are_held_together_are_bounded() -> None:
    with running_server(limits=ROOMY) as server, holding(server, 150_000) as first, Wire(server.port) as second:
        # As much as there is room for, and one that announces more than that.
        assert second.request("POST", PUSH, ONE + b" " * (100_000 - len(ONE))).reply().status == 201
        second.send(
            b"POST /api/v1/push HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100001\r\nExpect: 100-continue\r\n\r\n"
        )
        refused = second.reply()
        assert (refused.status, refused.code, refused.headers["retry-after"]) == (503, "SERVER_BUSY", "1")
        assert works(server.port)

        first.send(b" " * (50_000 - len(ONE)) + ONE)
        assert first.reply().status == 201
        server.run(until(lambda: server.app.bodies.held_bytes == 0))


def test_a_chunked_body_is_refused_when_there_is_no_more_room() -> None:
    with running_server(limits=ROOMY) as server, holding(server, 150_000), Wire(server.port) as second:
        second.send(b"POST /api/v1/push HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n")
        for _ in range(2):
            second.send(b"10000\r\n" + b" " * 0x10000 + b"\r\n")

        assert (second.reply().code, server.app.bodies.held_bytes) == ("SERVER_BUSY", 150_000)


def test_the_room_of_a_client_that_went_away_is_free_again() -> None:
    with running_server(limits=ROOMY) as server:
        for _ in range(3):
            with holding(server, 200_000 - 1):
                pass
            server.run(until(lambda: server.app.bodies.held_bytes == 0))


def test_who_only_announces_a_body_takes_no_room() -> None:
    with running_server(limits=ROOMY) as server, holding(server, 0), holding(server, 0), Wire(server.port) as other:
        assert other.request("POST", PUSH, ONE + b" " * (200_000 - len(ONE))).reply().status == 201


@pytest.mark.parametrize("kind", ["application/json", "application/vnd.apache.arrow.stream"])
def test_who_only_announces_pushes_keeps_nobody_from_pushing(monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    """The door counts calls that the server works on. Who has not sent theirs yet takes no place from others."""
    monkeypatch.setattr("skep.engine.door.FIRST_LIMIT", 4.0)
    head = f"POST {PUSH} HTTP/1.1\r\nHost: localhost\r\nContent-Type: {kind}\r\nContent-Length: 100\r\n"
    with running_server() as server, contextlib.ExitStack() as stack:
        for _ in range(5):
            wire = stack.enter_context(Wire(server.port)).send(head.encode() + b"Expect: 100-continue\r\n\r\n")
            assert wire.reply().status == 100
        assert works(server.port)


@pytest.mark.parametrize("filler", [b"1;" + b"x" * 1_000 + b"\r\n \r\n", b"0\r\nX-Trailer: " + b"x" * 100_000])
def test_chunks_that_are_mostly_not_body_are_refused(wire: Wire, filler: bytes) -> None:
    wire.send(b"POST /api/v1/push HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n")
    with contextlib.suppress(OSError):
        for _ in range(200):
            wire.send(filler)

    reply = wire.reply()

    assert (reply.status, reply.code) == (413, "PAYLOAD_TOO_LARGE")


def test_an_answer_that_comes_before_the_body_ends_the_connection(wire: Wire) -> None:
    wire.send(b"POST /nowhere HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100000\r\n\r\n" + b"x" * 10)

    reply = wire.reply()

    assert (reply.code, reply.ends_connection) == ("ROUTE_NOT_FOUND", True)
    assert wire.is_ended()


def test_requests_sent_ahead_are_answered_in_order(wire: Wire) -> None:
    for number in range(4):
        wire.request("GET", f"/nowhere/{number}")

    assert [f"/nowhere/{number}" in wire.reply().body.decode() for number in range(4)] == [True] * 4


def test_too_many_requests_sent_ahead_end_the_connection(wire: Wire) -> None:
    ahead = (
        b"GET /api/v1/pop/queue/empty?wait=true&timeout=60 HTTP/1.1\r\nHost: localhost\r\n\r\n"
        + b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n" * 6
    )
    wire.send(ahead)

    assert wire.is_ended()


# how slowly it is sent


def test_a_connection_that_says_nothing_is_closed(slow_wire: Wire) -> None:
    assert slow_wire.is_ended()


def test_headers_that_trickle_are_cut_off(slow_wire: Wire) -> None:
    assert slow_wire.trickle(b"GET /health HTTP/1.1\r\nHost: localhost\r\nX-Slow: " + b"x" * 1_000)

    reply = slow_wire.reply()

    assert (reply.status, reply.code, reply.ends_connection) == (408, "REQUEST_TIMEOUT", True)


def test_headers_that_trickle_after_a_good_request_are_cut_off_too(slow_wire: Wire) -> None:
    assert slow_wire.request("GET", "/health").reply().status == 200
    assert slow_wire.trickle(b"GET /health HTTP/1.1\r\nHost: localhost\r\nX-Slow: " + b"x" * 1_000)

    assert slow_wire.reply().status == 408


@pytest.mark.parametrize("framing", [b"Content-Length: 1000", b"Transfer-Encoding: chunked"])
def test_a_body_that_trickles_is_cut_off(slow_wire: Wire, framing: bytes) -> None:
    slow_wire.send(b"POST /api/v1/push HTTP/1.1\r\nHost: localhost\r\n" + framing + b"\r\n\r\n")

    assert slow_wire.trickle(b"1\r\n \r\n" * 200 if b"chunked" in framing else b" " * 999)
    reply = slow_wire.reply()

    assert (reply.status, reply.code, reply.ends_connection) == (408, "REQUEST_TIMEOUT", True)
    assert slow_wire.is_ended()


def test_a_body_that_never_comes_is_cut_off(slow_wire: Wire) -> None:
    slow_wire.send(b"POST /api/v1/push HTTP/1.1\r\nHost: localhost\r\nContent-Length: 10\r\n\r\n")

    assert slow_wire.reply().status == 408


def test_a_body_that_never_comes_does_not_keep_a_poll(impatient: RunningServer) -> None:
    with Wire(impatient.port) as wire:
        wire.send(
            b"GET /api/v1/pop/queue/empty?wait=true&timeout=60 HTTP/1.1\r\nHost: localhost\r\nContent-Length: 10\r\n\r\n"
        )

        assert wire.reply().status == 408
        impatient.run(until(lambda: impatient.engine.parked_polls == 0))


async def until(condition: Callable[[], bool]) -> None:
    """Run the server until it is so."""
    async with asyncio.timeout(30):
        while not condition():  # noqa: ASYNC110 - what is waited for has no event to set
            await asyncio.sleep(0)


def test_a_connection_that_rests_between_requests_is_closed() -> None:
    with running_server(limits=HttpLimits(keep_alive_seconds=0.1)) as server, Wire(server.port) as wire:
        assert wire.request("GET", "/health").reply().status == 200
        assert wire.is_ended()


def test_a_connection_that_rested_only_a_little_stays() -> None:
    with running_server() as server, Wire(server.port) as wire:
        assert wire.request("GET", "/health").reply().status == 200
        [connection] = server._listener.server_state.connections

        async def look() -> None:
            assert isinstance(connection, LimitedProtocol)
            connection.rest.look()  # the timer of an earlier rest

        server.run(look())
        assert wire.request("GET", "/health").reply().status == 200


# what the server holds


def test_waiting_pops_are_bounded(strict: RunningServer) -> None:
    with contextlib.ExitStack() as stack:
        waiting = [stack.enter_context(Wire(strict.port)) for _ in range(3)]
        for wire in waiting:
            wire.request("GET", "/api/v1/pop/queue/empty?wait=true&timeout=60")
        refused = first_to_answer(waiting)
        reply = refused.reply()

    assert (reply.status, reply.code) == (429, "TOO_MANY_REQUESTS")
    assert int(reply.headers["retry-after"]) >= 1
    strict.run(until(lambda: strict.engine.parked_polls == 0))


def first_to_answer(wires: list[Wire]) -> Wire:
    ready, _, _ = select.select([wire.socket for wire in wires], [], [], 30)
    return next(wire for wire in wires if wire.socket in ready)


def test_connections_are_bounded() -> None:
    with running_server(limits=HttpLimits(max_connections=5)) as server, contextlib.ExitStack() as stack:
        held = [stack.enter_context(Wire(server.port)) for _ in range(5)]
        for wire in held:
            assert wire.request("GET", "/health").reply().status == 200
        with Wire(server.port) as one_more:
            reply = one_more.reply()
            assert (reply.status, reply.code, reply.ends_connection) == (503, "TOO_MANY_REQUESTS", True)
            assert int(reply.headers["retry-after"]) >= 1
            assert one_more.is_ended()
        assert held[0].request("GET", "/health").reply().status == 200, "those who were there first go on"
        held.pop().close()
        assert eventually_served(server.port)


def eventually_served(port: int) -> bool:
    """Try until there is room; the end of a connection takes the server a moment to see."""
    for _ in range(1_000):
        with Wire(port) as wire:
            with contextlib.suppress(OSError):
                wire.request("GET", "/health")
            if wire.reply().status == 200:
                return True
    return False


def test_a_client_that_does_not_read_is_cut_off(strict: RunningServer) -> None:
    payload = "x" * 150_000
    body = json.dumps({"items": [{"queue": "large", "payload": payload}]}).encode()
    with Wire(strict.port) as wire:
        for _ in range(60):
            assert wire.request("POST", PUSH, body).reply().status == 201
    with Wire(strict.port, receive_buffer=4_096) as wire:
        wire.request("GET", "/api/v1/pop/queue/large?batch=100")
        strict.run(until(lambda: strict.connections == 0))
    assert works(strict.port)


def test_answers_that_nobody_takes_are_bounded_over_all_connections() -> None:
    limits = HttpLimits(unsent_answers_bytes=12_000_000)
    with running_server(limits=limits) as server, contextlib.ExitStack() as stack:
        with Wire(server.port) as wire:
            for _ in range(8):
                body = json.dumps({"items": [{"queue": "large", "payload": "x" * 1_000_000}]}).encode()
                assert wire.request("POST", PUSH, body).reply().status == 201
        server.run(until(lambda: server.connections == 0))
        lazy = []
        for _ in range(6):
            lazy.append(stack.enter_context(Wire(server.port, receive_buffer=4_096)))
            lazy[-1].request("GET", "/api/v1/log/large").socket.recv(1, socket.MSG_PEEK)
        with pytest.raises(ConnectionError):
            lazy[0].reply()
        with Wire(server.port) as wire:
            reply = wire.request("GET", "/api/v1/log/large").reply()
            assert (reply.status, len(reply.json["messages"])) == (200, 8), "who takes the answer gets it"
        assert lazy[-1].reply().status == 200, "the last one was not cut off"


def test_a_consumer_that_never_acks_holds_up_only_its_own_partition(strict: RunningServer) -> None:
    items = [{"queue": "held", "partition": name, "payload": name} for name in ("a", "a", "b")]
    with Wire(strict.port) as lazy, Wire(strict.port) as busy:
        lazy.request("POST", PUSH, json.dumps({"items": items}).encode()).reply()
        held = popped(lazy, "held/partition/a?batch=1")
        others = popped(busy, "held?batch=10")

        assert [message["payload"] for message in held] == ["a"]
        assert [message["payload"] for message in others] == ["b"]
        assert popped(busy, "held?batch=10") == []


def popped(wire: Wire, path: str) -> list[dict[str, object]]:
    reply: RawReply = wire.request("GET", "/api/v1/pop/queue/" + path).reply()
    return list(reply.json["messages"]) if reply.status == 200 else []


def test_what_a_client_that_went_away_waited_for_goes_to_the_next_at_once(strict: RunningServer) -> None:
    gone = Wire(strict.port).request("GET", "/api/v1/pop/queue/empty?wait=true&timeout=60")
    strict.run(until(lambda: strict.engine.parked_polls == 1))
    gone.close()
    strict.run(until(lambda: strict.engine.parked_polls == 0))

    with Wire(strict.port) as producer, Wire(strict.port) as consumer:
        item = {"queue": "empty", "payload": 1}
        producer.request("POST", PUSH, json.dumps({"items": [item]}).encode()).reply()
        [message] = popped(consumer, "empty?wait=true")

    assert message["attempt"] == 1


def test_a_tenant_that_is_named_twice_is_refused(wire: Wire) -> None:
    head = b"GET /api/v1/pop/queue/q HTTP/1.1\r\nHost: localhost\r\nSkep-Tenant: mine\r\nskep-tenant: theirs\r\n\r\n"

    reply = wire.send(head).reply()

    assert (reply.status, reply.code) == (422, "INVALID_REQUEST")


def test_a_path_is_logged_as_it_was_quoted(monkeypatch: pytest.MonkeyPatch) -> None:
    with running_server() as server, capture_logs() as logged, Wire(server.port) as wire:
        monkeypatch.setattr(server.engine, "pop", None)
        assert wire.request("GET", "/api/v1/pop/queue/%1b[2J").reply().code == "INTERNAL"

    assert [entry["path"] for entry in logged if "path" in entry] == ["/api/v1/pop/queue/%1b[2J"]
