"""Requests and applications that the tests of connections share."""

from __future__ import annotations

import asyncio

from skep.http.connection.cycle import Cycle
from skep.http.request.call import Receive, Scope, Send
from skep.http.request.scope import CYCLE
from tests.support.connection import Connected

GET = b"GET /%d HTTP/1.1\r\nHost: localhost\r\n\r\n"


POST = b"POST /push HTTP/1.1\r\nHost: localhost\r\n"


START = {"type": "http.response.start", "status": 200, "headers": [(b"x", b"1")]}


def answer(scope: Scope, body: bytes = b"") -> None:
    cycle: Cycle = scope[CYCLE]
    cycle.answer(200, (), [], body)


async def echo(scope: Scope, receive: Receive, send: Send) -> None:
    """Answer with the body."""
    pieces = []
    while True:
        event = await receive()
        if event["type"] == "http.disconnect":
            return
        pieces.append(event["body"])
        if not event["more_body"]:
            break
    answer(scope, b"".join(pieces))


def body_of(connected: Connected) -> bytes:
    return connected.recorder.sent.rpartition(b"\r\n\r\n")[2]


def is_read(connected: Connected) -> bool:
    """Whether what the client sends is taken from the kernel."""
    return connected.recorder.is_read


async def turn() -> None:
    """Let what is ready run until it waits."""
    for _ in range(5):
        await asyncio.sleep(0)


async def in_pieces(scope: Scope, receive: Receive, send: Send) -> None:
    await send(dict(START))
    await send({"type": "http.response.body", "body": b"a" * 26, "more_body": True})
    await send({"type": "http.response.body", "body": memoryview(b"end")})
