"""A client that goes away: its work ends, and what was done for it is undone."""

from __future__ import annotations

import asyncio
from collections.abc import MutableMapping
from typing import Any

import pytest

from skep.config import HttpLimits
from skep.http.exchange import Call, ClientGone

DISCONNECT = {"type": "http.disconnect"}


def call_of(gone: asyncio.Event) -> Call:
    """A call whose client goes away when it is told to."""

    async def receive() -> MutableMapping[str, Any]:
        await gone.wait()
        return dict(DISCONNECT)

    return Call({"headers": []}, receive, HttpLimits())


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


async def test_a_result_that_comes_in_the_same_moment_is_undone() -> None:
    gone, ready = asyncio.Event(), asyncio.Event()
    undone: list[str] = []

    async def work() -> str:
        await ready.wait()
        return "messages"

    waiting = asyncio.create_task(call_of(gone).unless_gone(work(), undone.append))
    await asyncio.sleep(0)
    ready.set()
    gone.set()

    with pytest.raises(ClientGone):
        await waiting
    assert undone == ["messages"]


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
