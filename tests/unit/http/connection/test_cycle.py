"""An answer that is whole: what goes to the kernel, and in how many calls."""

from __future__ import annotations

import asyncio
from collections.abc import MutableMapping
from typing import Any

import pytest

from skep.config import HttpLimits
from skep.http.connection.cycle import JOINED_BYTES, Cycle, Header
from skep.http.request.bodies import Bodies
from skep.http.request.call import Call, ClientGone
from skep.http.request.peers import Peers
from skep.http.request.scope import CYCLE
from tests.support.connection import Connected

PLAIN: tuple[Header, ...] = ((b"content-type", b"text/plain"),)


class Asked:
    """A request, and what became of it."""

    def __init__(self, method: str = "GET", *, keep_alive: bool = True) -> None:
        connected = Connected()
        self.recorder = connected.recorder
        self.state = connected.state
        self.cycle = Cycle(
            connected.protocol, {"method": method, "http_version": "1.1"}, persists=keep_alive, awaits_continue=False
        )
        self.cycle.end_body()


async def test_an_answer_goes_out_in_one_piece() -> None:
    asked = Asked()

    asked.cycle.answer(200, PLAIN, [(b"x-more", b"1")], b"body")

    head = b"HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\ndate: today\r\nx-more: 1\r\ncontent-length: 4\r\n\r\n"
    assert asked.recorder.calls == [[head + b"body"]]
    assert asked.state.total_requests == 1
    assert not asked.recorder.closed


async def test_a_large_body_is_not_copied_to_join_its_head() -> None:
    asked = Asked()
    body = b"x" * (JOINED_BYTES + 1)

    asked.cycle.answer(200, PLAIN, [], body)

    assert asked.recorder.calls[-1] == [body]


async def test_buffers_of_a_piece_are_not_joined_and_the_last_is_written_so_that_a_slow_client_is_seen() -> None:
    """Only `write` tells on each version of asyncio that a client is slow; `writelines` does not (CVE-2024-12254)."""
    asked = Asked()
    piece: list[bytes | memoryview] = [b"head", memoryview(b"x" * (JOINED_BYTES + 1))]
    await asked.cycle.send({"type": "http.response.start", "status": 200, "headers": []})
    asked.recorder.calls.clear()

    asked.cycle.add(piece)

    assert asked.recorder.calls == [[b"%x\r\n" % (JOINED_BYTES + 5), *map(bytes, piece)], [b"\r\n"]]


async def test_who_asks_for_the_head_gets_its_length_and_no_body() -> None:
    asked = Asked("HEAD")

    asked.cycle.answer(200, PLAIN, [], b"body")

    [[sent]] = asked.recorder.calls
    assert sent.endswith(b"content-length: 4\r\n\r\n")


async def test_no_content_has_no_length() -> None:
    asked = Asked()

    asked.cycle.answer(204, (), [], b"")

    assert asked.recorder.calls == [[b"HTTP/1.1 204 No Content\r\ndate: today\r\n\r\n"]]


async def test_a_connection_that_ends_says_so_and_is_closed() -> None:
    asked = Asked(keep_alive=False)

    asked.cycle.answer(200, PLAIN, [], b"")

    [[sent]] = asked.recorder.calls
    assert b"\r\nconnection: close\r\n" in sent
    assert asked.recorder.closed


@pytest.mark.parametrize("header", [(b"x", b"1\r\nset-cookie: a=b"), (b"x: y\r\nz", b"1")])
async def test_a_header_that_would_break_the_answer_is_not_sent(header: Header) -> None:
    asked = Asked()

    with pytest.raises(RuntimeError, match="break"):
        asked.cycle.answer(200, PLAIN, [header], b"")

    assert asked.recorder.calls == []


async def test_nothing_is_written_to_a_client_that_has_gone() -> None:
    asked = Asked()
    told = []
    asked.cycle.tell_when_gone(lambda: told.append(True))

    asked.cycle.lose_client()
    asked.cycle.answer(200, PLAIN, [], b"body")

    assert told == [True]
    assert asked.recorder.calls == []


async def nothing_comes() -> MutableMapping[str, Any]:
    await asyncio.get_running_loop().create_future()
    return {}


def call_of(asked: Asked) -> Call:
    return Call({"headers": [], CYCLE: asked.cycle}, nothing_comes, HttpLimits(), Bodies(1, Peers("")))


async def test_work_sees_that_its_client_goes_in_the_moment_in_which_it_would_end() -> None:
    asked, begun, ready = Asked(), asyncio.Event(), asyncio.Event()
    seen: list[str] = []

    async def work() -> str:
        begun.set()
        try:
            await ready.wait()
        except asyncio.CancelledError:
            seen.append("cancelled")
            raise
        return "messages"

    waiting = asyncio.create_task(call_of(asked).unless_gone(work(), seen.append))
    await begun.wait()
    ready.set()
    asked.cycle.lose_client()

    with pytest.raises(ClientGone):
        await waiting
    assert seen == ["cancelled"]


async def test_nothing_is_begun_for_a_client_that_has_gone() -> None:
    asked = Asked()
    seen: list[str] = []

    async def work() -> str:
        seen.append("begun")
        return "messages"

    asked.cycle.lose_client()

    with pytest.raises(ClientGone):
        await call_of(asked).unless_gone(work())
    assert seen == []


async def test_who_was_answered_is_not_cancelled_when_the_client_goes_later() -> None:
    asked = Asked()

    async def work() -> str:
        return "messages"

    assert await call_of(asked).unless_gone(work()) == "messages"
    asked.cycle.lose_client()
    await asyncio.sleep(0)  # where a cancelled task would end


async def test_a_cancel_that_is_not_for_the_client_stays_one() -> None:
    begun = asyncio.Event()

    async def work() -> str:
        begun.set()
        await asyncio.Event().wait()
        return "never"

    waiting = asyncio.create_task(call_of(Asked()).unless_gone(work()))
    await begun.wait()
    waiting.cancel()

    with pytest.raises(asyncio.CancelledError):
        await waiting
