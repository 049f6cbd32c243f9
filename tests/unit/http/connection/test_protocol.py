"""A connection: requests one after another, bodies in pieces, answers in pieces, and clients that leave."""

from __future__ import annotations

import asyncio
import gc
import weakref

import pytest

from skep.config import HttpLimits
from skep.http.connection.cycle import CONTINUE, UNREAD_BYTES
from skep.http.request.call import Receive, Scope, Send
from skep.http.request.scope import CYCLE
from tests.support.connection import Connected
from tests.support.waiting import until_so
from tests.unit.http.connection.talking import GET, POST, START, answer, body_of, echo, in_pieces, is_read, turn

# requests


async def test_requests_sent_ahead_run_one_after_another() -> None:
    seen: list[str] = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        seen.append(f"begin {scope['path']}")
        await turn()
        seen.append(f"end {scope['path']}")
        answer(scope, scope["raw_path"])

    connected = Connected(app)
    connected.send(GET % 1 + GET % 2 + GET % 3)
    await connected.until_quiet()

    assert seen == ["begin /1", "end /1", "begin /2", "end /2", "begin /3", "end /3"]
    sent = connected.recorder.sent
    assert sent.index(b"/1") < sent.index(b"/2") < sent.index(b"/3")
    assert connected.state.total_requests == 3
    assert is_read(connected)


async def test_nothing_more_is_read_while_a_request_waits_for_its_turn() -> None:
    go = asyncio.Event()

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await go.wait()
        answer(scope)

    connected = Connected(app)
    connected.send(GET % 1 + GET % 2)
    await turn()
    assert not is_read(connected)

    go.set()
    await connected.until_quiet()

    assert is_read(connected)
    assert connected.state.total_requests == 2


@pytest.mark.parametrize("size", [1, 7, 10_000])
@pytest.mark.parametrize(
    "request_", [
        POST + b"Content-Length: 11\r\n\r\nhello world",
        POST + b"Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n6;x=y\r\n world\r\n0\r\nX-Trailer: 1\r\nHost: evil\r\n\r\n",
    ], ids=["length", "chunks"],
)  # fmt: skip
async def test_a_request_may_come_in_pieces_of_any_size(request_: bytes, size: int) -> None:
    connected = Connected(echo)
    for start in range(0, len(request_), size):
        connected.send(request_[start : start + size])
        await turn()
    await connected.until_quiet()

    assert body_of(connected) == b"hello world"
    assert connected.recorder.sent.startswith(b"HTTP/1.1 200 OK\r\n")
    connected.send(GET % 1)
    await connected.until_quiet()
    assert connected.state.total_requests == 2, "the connection goes on"


async def test_a_body_that_comes_in_one_piece_is_handed_over_at_once() -> None:
    events = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        events.append(await receive())
        answer(scope)

    connected = Connected(app)
    connected.send(POST + b"Content-Length: 3\r\n\r\nabc")
    await connected.until_quiet()

    assert events == [{"type": "http.request", "body": b"abc", "more_body": False}]


async def test_a_body_that_nobody_takes_is_left_in_the_kernel() -> None:
    go = asyncio.Event()

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await go.wait()
        await echo(scope, receive, send)

    connected = Connected(app)
    connected.send(POST + b"Content-Length: %d\r\n\r\n" % (2 * UNREAD_BYTES))
    connected.send(b"x" * UNREAD_BYTES)
    assert is_read(connected)
    connected.send(b"x")
    assert not is_read(connected)

    go.set()
    await turn()
    assert is_read(connected), "what was there is taken"
    connected.send(b"x" * (UNREAD_BYTES - 1))
    assert is_read(connected), "what was taken counts no longer"
    await connected.until_quiet()

    assert len(body_of(connected)) == 2 * UNREAD_BYTES


async def test_who_asks_whether_to_go_on_is_told_when_the_body_is_wanted() -> None:
    wanted = asyncio.Event()

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await wanted.wait()
        await echo(scope, receive, send)

    connected = Connected(app)
    connected.send(POST + b"Content-Length: 3\r\nExpect: 100-Continue\r\n\r\n")
    await turn()
    assert connected.recorder.calls == []

    wanted.set()
    await turn()
    assert connected.recorder.sent == CONTINUE
    connected.send(b"abc")
    await connected.until_quiet()

    assert connected.recorder.sent.startswith(CONTINUE + b"HTTP/1.1 200 OK\r\n")
    assert body_of(connected) == b"abc"


async def test_who_asks_whether_to_go_on_and_is_answered_is_not_told_to_go_on() -> None:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        answer(scope)
        await receive()

    connected = Connected(app)
    connected.send(POST + b"Content-Length: 3\r\nExpect: 100-continue\r\n\r\n")
    await connected.until_quiet()

    assert CONTINUE not in connected.recorder.sent
    assert connected.recorder.ended, "nobody wants the body"


async def test_nobody_is_told_to_go_on_in_the_middle_of_an_answer() -> None:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await send(dict(START))
        await receive()
        await send({"type": "http.response.body", "body": b"end"})

    connected = Connected(app)
    connected.send(POST + b"Content-Length: 3\r\nExpect: 100-continue\r\n\r\n")
    await turn()
    connected.send(b"abc")
    await connected.until_quiet()

    assert CONTINUE not in connected.recorder.sent
    assert connected.recorder.sent.endswith(b"3\r\nend\r\n0\r\n\r\n")


async def test_http_1_0_knows_no_continue() -> None:
    connected = Connected(echo)
    connected.send(b"POST /push HTTP/1.0\r\nContent-Length: 3\r\nExpect: 100-continue\r\n\r\nabc")
    await connected.until_quiet()

    assert connected.recorder.sent.startswith(b"HTTP/1.1 200 OK\r\n")
    assert connected.recorder.closed


async def test_headers_are_held_to_their_size_however_they_come() -> None:
    asked = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        asked.append(scope["path"])
        answer(scope)

    large = b"GET /large HTTP/1.1\r\nHost: localhost\r\nX: " + b"x" * 300 + b"\r\n\r\n"
    for pieces in ([large], [GET % 1 + large], [large[:100], large[100:]], [GET % 1 + large[:250], large[250:]]):
        connected = Connected(app, HttpLimits(headers_bytes=256))
        for piece in pieces:
            connected.send(piece)
        await connected.until_quiet()

        assert "/large" not in asked
        assert connected.recorder.ended


async def test_a_body_of_a_request_that_was_sent_ahead_has_its_time_when_its_turn_has_come() -> None:
    go = asyncio.Event()

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await go.wait()
        await echo(scope, receive, send)

    connected = Connected(app, HttpLimits(body_seconds=0.01))
    connected.send(GET % 1 + POST + b"Content-Length: 3\r\n\r\na")
    go.set()
    await until_so(lambda: connected.recorder.ended)

    assert connected.recorder.sent.count(b"HTTP/1.1 200 OK") == 1
    assert b"HTTP/1.1 408 " in connected.recorder.sent


async def test_a_request_is_no_rest_though_the_timer_of_an_earlier_one_ends() -> None:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["path"] == "/1":
            answer(scope)
            connected.send(GET % 2)
        else:
            await turn()
            closed.append(connected.recorder.closed)
            answer(scope)

    closed: list[bool] = []
    connected = Connected(app, HttpLimits(keep_alive_seconds=1e-9))
    connected.send(GET % 1)
    await connected.until_quiet()

    assert closed == [False]


async def test_nothing_holds_a_connection_that_is_over() -> None:
    connected = Connected(echo)
    connected.send(GET % 1)
    await connected.until_quiet()
    protocol = weakref.ref(connected.protocol)

    connected.leave()
    del connected
    gc.collect()

    assert protocol() is None


async def test_what_comes_after_a_wish_for_another_protocol_is_refused_for_its_own_reason() -> None:
    connected = Connected(echo)
    upgrade = POST + b"Connection: Upgrade\r\nUpgrade: h2c\r\nContent-Length: 2\r\n\r\nhi"
    connected.send(upgrade)
    await connected.until_quiet()
    connected.send(upgrade + b"GET / HTTP/1.1\r\n\r\n")
    await connected.until_quiet()
    assert connected.recorder.sent.count(b"HTTP/1.1 200 OK") == 1, "the second is owed its answer, and never gets it"
    assert connected.recorder.ended

    connected = Connected(echo)
    connected.send(b"GET / HTTP/1.1\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n\r\n")

    assert b"The header Host is missing" in connected.recorder.sent


# clients that leave


async def test_a_client_that_leaves_is_told_of_while_its_body_is_waited_for() -> None:
    events = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        events.append((await receive())["type"])
        events.append((await receive())["type"])

    connected = Connected(app)
    connected.send(POST + b"Content-Length: 3\r\n\r\na")
    await turn()
    connected.leave()
    await connected.until_quiet()

    assert events == ["http.request", "http.disconnect"]
    assert connected.recorder.calls == []
    assert connected.protocol not in connected.state.connections


async def test_what_a_client_sent_ahead_before_it_left_is_not_begun() -> None:
    begun = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        begun.append(scope["path"])
        while (await receive())["type"] != "http.disconnect":
            pass

    connected = Connected(app)
    connected.send(GET % 1 + GET % 2)
    await turn()
    connected.leave()
    await connected.until_quiet()

    assert begun == ["/1"]


async def test_who_works_for_a_client_that_is_refused_is_told_at_once() -> None:
    events = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        while (event := await receive())["type"] != "http.disconnect":
            pass
        events.append(event)

    connected = Connected(app)
    connected.send(GET % 1)
    await turn()
    connected.send(b"no HTTP\r\n\r\n")
    await connected.until_quiet()

    assert events == [{"type": "http.disconnect"}]
    assert connected.recorder.calls == [], "there is no place for an answer"
    assert connected.recorder.ended


async def test_who_waits_for_a_slow_client_is_told_when_it_leaves() -> None:
    connected = Connected(in_pieces)
    connected.protocol.pause_writing()
    connected.send(GET % 1)
    await turn()

    connected.leave()
    await connected.until_quiet()

    assert connected.recorder.calls == []


async def test_a_client_that_ends_the_connection_is_gone() -> None:
    connected = Connected()
    assert not connected.protocol.is_gone

    connected.recorder.close()

    assert connected.protocol.is_gone


async def test_a_client_whose_connection_we_end_is_gone_only_when_it_is_lost() -> None:
    connected = Connected()

    connected.protocol.close()
    assert connected.recorder.closed
    assert not connected.protocol.is_gone
    connected.protocol.connection_lost(None)

    assert connected.protocol.is_gone


# the server stops


async def test_a_connection_that_rests_ends_when_the_server_stops() -> None:
    connected = Connected(echo)
    connected.send(GET % 1)
    await connected.until_quiet()
    assert not connected.recorder.closed

    connected.protocol.shutdown()

    assert connected.recorder.closed


async def test_what_was_sent_ahead_is_answered_before_the_server_stops() -> None:
    connected = Connected(echo)
    connected.send(GET % 1 + GET % 2)
    connected.protocol.shutdown()
    await connected.until_quiet()

    assert connected.state.total_requests == 2
    assert connected.recorder.sent.count(b"connection: close") == 1
    assert connected.recorder.closed


async def test_a_request_whose_end_comes_while_the_server_stops_is_the_last() -> None:
    connected = Connected(echo)
    connected.send(POST + b"Content-Length: 3\r\n\r\na")
    await turn()
    connected.protocol.shutdown()
    connected.send(b"bc")
    await connected.until_quiet()

    assert body_of(connected) == b"abc"
    assert b"connection: close" in connected.recorder.sent
    assert connected.recorder.closed


async def test_a_request_leaves_no_circle_behind() -> None:
    scopes = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        answer(scope)
        scopes.append(scope)

    connected = Connected(app)
    connected.send(GET % 1)
    await connected.until_quiet()

    assert CYCLE not in scopes[0]
