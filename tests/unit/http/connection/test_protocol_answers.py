"""Answers in pieces, and applications that fail: a client never takes half an answer for a whole one."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest
from structlog.testing import capture_logs

from skep.http.request.call import Answer, Receive, Scope, Send
from skep.http.request.endpoint import send_answer
from tests.support.connection import Connected
from tests.unit.http.connection.talking import GET, START, body_of, in_pieces, turn


async def test_an_answer_in_pieces_goes_out_in_chunks() -> None:
    connected = Connected(in_pieces)
    connected.send(GET % 1)
    await connected.until_quiet()

    head = b"HTTP/1.1 200 OK\r\ndate: today\r\nx: 1\r\ntransfer-encoding: chunked\r\n\r\n"
    assert connected.recorder.sent == head + b"1a\r\n" + b"a" * 26 + b"\r\n3\r\nend\r\n0\r\n\r\n"
    assert not connected.recorder.closed


async def test_http_1_0_gets_an_answer_in_pieces_without_chunks_and_its_end() -> None:
    connected = Connected(in_pieces)
    connected.send(b"GET / HTTP/1.0\r\n\r\n")
    await connected.until_quiet()

    head = b"HTTP/1.1 200 OK\r\ndate: today\r\nx: 1\r\nconnection: close\r\n\r\n"
    assert connected.recorder.sent == head + b"a" * 26 + b"end"
    assert connected.recorder.closed
    assert not connected.recorder.aborted


async def test_who_asks_for_the_head_gets_no_pieces() -> None:
    connected = Connected(in_pieces)
    connected.send(b"HEAD / HTTP/1.1\r\nHost: localhost\r\n\r\n")
    await connected.until_quiet()

    assert connected.recorder.sent == b"HTTP/1.1 200 OK\r\ndate: today\r\nx: 1\r\n\r\n"


@pytest.mark.parametrize("body", [b"ab", b"abcd"])
async def test_an_answer_of_another_length_than_it_says_is_broken_off(body: bytes) -> None:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await send({**START, "headers": [(b"content-length", b"3")]})
        await send({"type": "http.response.body", "body": body})

    connected = Connected(app)
    with capture_logs() as logged:
        connected.send(GET % 1)
        await connected.until_quiet()

    assert connected.recorder.aborted
    assert "has not the length" in logged[0]["traceback"]


async def test_pieces_wait_for_a_client_that_takes_them_slowly() -> None:
    sent = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await send(dict(START))
        for number in range(3):
            await send({"type": "http.response.body", "body": b"x", "more_body": number < 2})
            sent.append(number)

    connected = Connected(app)
    connected.send(GET % 1)
    connected.protocol.pause_writing()
    await turn()
    assert connected.recorder.calls == []

    connected.protocol.resume_writing()
    await connected.until_quiet()

    assert sent == [0, 1, 2]


async def test_a_whole_answer_waits_for_one_who_has_not_taken_the_last() -> None:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await send_answer(scope, send, Answer(200, b"body"))

    connected = Connected(app)
    connected.protocol.pause_writing()
    connected.send(GET % 1)
    await turn()
    assert connected.recorder.calls == []

    connected.protocol.resume_writing()
    await connected.until_quiet()

    assert body_of(connected) == b"body"


# applications that fail


async def fails(scope: Scope, receive: Receive, send: Send) -> None:
    raise ValueError("secret")


async def says_nothing(scope: Scope, receive: Receive, send: Send) -> None:
    pass


@pytest.mark.parametrize("app", [fails, says_nothing])
async def test_a_request_that_gets_no_answer_is_told_so(app: Callable[..., object]) -> None:
    connected = Connected(app)
    with capture_logs() as logged:
        connected.send(GET % 1)
        await connected.until_quiet()

    assert connected.recorder.sent.startswith(b"HTTP/1.1 500 ")
    assert b'"INTERNAL"' in connected.recorder.sent
    assert b"secret" not in connected.recorder.sent
    assert connected.recorder.closed
    assert [entry["event"] for entry in logged] == ["a request failed unexpectedly"]


@pytest.mark.parametrize(("version", "aborted"), [(b"1.1", False), (b"1.0", True)])
async def test_an_answer_that_breaks_off_is_never_taken_for_whole(version: bytes, aborted: bool) -> None:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await send(dict(START))
        await send({"type": "http.response.body", "body": b"half", "more_body": True})

    connected = Connected(app)
    connected.send(b"GET / HTTP/%s\r\nHost: localhost\r\n\r\n" % version)
    await connected.until_quiet()

    assert connected.recorder.sent.endswith(b"half" if aborted else b"half\r\n")
    assert connected.recorder.closed
    assert connected.recorder.aborted is aborted, "without chunks, only a reset tells it from a whole one"


async def test_events_out_of_turn_are_refused() -> None:
    told = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        for event in ({"type": "http.response.body"}, START, START):
            try:
                await send(dict(event))
            except RuntimeError as error:
                told.append(str(error))
        await send({"type": "http.response.body"})

    connected = Connected(app)
    connected.send(GET % 1)
    await connected.until_quiet()

    assert told == ["http.response.body came out of turn", "http.response.start came out of turn"]


async def test_a_request_that_is_cancelled_ends_its_connection() -> None:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await asyncio.get_running_loop().create_future()

    connected = Connected(app)
    connected.send(GET % 1)
    await turn()
    [task] = connected.state.tasks
    task.cancel()
    await connected.until_quiet()

    assert task.cancelled()
    assert connected.recorder.aborted
