"""A client that goes away: its work ends, and what was done for it is undone."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import AsyncIterator, MutableMapping
from typing import Any

import pytest

from skep.arrow.log import LogPiece
from skep.config import HttpLimits
from skep.http import arrow
from skep.http.pieces import Piece
from skep.http.request.bodies import Bodies
from skep.http.request.call import Call, ClientGone
from skep.http.request.peers import Peers
from skep.wire.log import ARROW
from tests.http.driver import Api

DISCONNECT = {"type": "http.disconnect"}


def call_of(gone: asyncio.Event) -> Call:
    """A call whose client goes away when it is told to."""

    async def receive() -> MutableMapping[str, Any]:
        await gone.wait()
        return dict(DISCONNECT)

    return Call({"headers": []}, receive, HttpLimits(), Bodies(1, Peers("")))


async def test_work_is_cancelled_when_its_client_goes() -> None:
    gone, begun = asyncio.Event(), asyncio.Event()
    ended: list[str] = []

    async def work() -> str:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.append("cancelled")
        return "never"

    waiting = asyncio.create_task(call_of(gone).unless_gone(work(), ended.append))
    await begun.wait()
    gone.set()

    with pytest.raises(ClientGone):
        await waiting
    assert ended == ["cancelled"]


async def test_a_result_that_comes_although_it_was_cancelled_is_undone() -> None:
    gone = asyncio.Event()
    undone: list[str] = []

    async def stubborn() -> str:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            return "messages"
        return "never"

    waiting = asyncio.create_task(call_of(gone).unless_gone(stubborn(), undone.append))
    await asyncio.sleep(0)
    gone.set()

    with pytest.raises(ClientGone):
        await waiting
    assert undone == ["messages"]


async def test_a_client_that_stays_gets_the_result() -> None:
    async def work() -> str:
        return "messages"

    undone: list[str] = []
    assert await call_of(asyncio.Event()).unless_gone(work(), undone.append) == "messages"
    assert undone == []


@pytest.mark.parametrize("query", ["", f"?traceId={'f' * 32}"], ids=["all", "none"])
def test_a_stream_of_the_log_ends_when_its_client_goes(api: Api, monkeypatch: pytest.MonkeyPatch, query: str) -> None:
    api.push("q", *range(1_000))
    engine, log_stream = api.server.engine, arrow.log_stream
    read_log, reads = engine.log.read, list[object]()
    gone, ended = threading.Event(), threading.Event()

    async def read(*args: Any, **kwargs: Any) -> LogPiece:
        reads.append(args)
        if len(reads) == 3:
            await asyncio.to_thread(gone.wait)
        return await read_log(*args, **kwargs)

    async def observed(*args: Any) -> AsyncIterator[Piece]:
        try:
            async for piece in log_stream(*args):
                yield piece
        finally:
            ended.set()

    monkeypatch.setattr(engine.log, "read", read)
    monkeypatch.setattr(arrow, "log_stream", observed)
    monkeypatch.setattr(arrow, "LOG_CHUNK", 2)
    lines = [f"GET /api/v1/log/q{query} HTTP/1.1", "Host: localhost", f"Skep-Tenant: {api.tenant}", f"Accept: {ARROW}"]
    with socket.create_connection(("127.0.0.1", api.server.port)) as client:
        client.sendall("\r\n".join([*lines, "", ""]).encode())
        assert client.recv(1_000).startswith(b"HTTP/1.1 200")
    gone.set()

    assert ended.wait(30)
    assert len(reads) < 400, "of the 500 that the whole log takes"


def test_a_stream_that_nobody_asked_the_body_of_is_not_read(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    api.push("q", 1)
    reads: list[object] = []
    monkeypatch.setattr(api.server.engine.log, "read", lambda *args, **_: reads.append(args))

    reply = api.request("HEAD", "/api/v1/log/q", headers={"Accept": ARROW})

    assert (reply.status, reply.headers["content-type"], reply.body) == (200, ARROW, b"")
    assert reads == []
