"""A standby of PostgreSQL that takes over without the last commits, under servers that go on: they notice, and believe nothing they hold."""

from __future__ import annotations

import asyncio
import os
import subprocess
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from typing import TypeVar

import pytest

from skep.access.gate import Gate
from skep.access.keys import mint
from skep.clock import ManualClock
from skep.config import AccessSettings
from skep.engine import Engine
from skep.errors import Code, SkepError
from skep.model import QueueChanges, QueueKey
from skep.model.key import Grant, Verb
from skep.server.compose import open_engine
from tests.support.postgres import PostgresServer, running_postgres

T = TypeVar("T")
ORDERS = QueueKey("orders")


class Pair:
    """A server with a standby, which has whatever was committed until `part`."""

    def __init__(self, server: PostgresServer) -> None:
        self._server = server
        self._data, self._standby = server.folder / "data", server.folder / "standby"

    def part(self) -> None:
        """From now on the standby hears of nothing."""
        self._server.stop()
        subprocess.run(["cp", "-a", self._data, self._standby], check=True)
        self._server.start()

    def fail_over(self) -> None:
        """Let the standby take the server's place."""
        self._server.kill()
        subprocess.run(["rm", "-r", self._data], check=True)
        self._standby.rename(self._data)
        signal = self._data / "standby.signal"
        signal.touch(mode=0o600)
        owner = self._data.stat()
        os.chown(signal, owner.st_uid, owner.st_gid)
        self._server.start()
        self._server.execute("SELECT pg_promote()")


@pytest.fixture
async def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
async def pair(clock: ManualClock) -> AsyncIterator[tuple[Pair, Engine, Engine]]:
    with running_postgres(shared_buffers="32MB") as server:
        dsn = server.create_database()
        async with AsyncExitStack() as stack:
            here, there = [await stack.enter_async_context(open_engine(dsn, clock=clock)) for _ in range(2)]
            yield Pair(server), here, there


async def at_last(call: Callable[[], Awaitable[T]]) -> T:
    """The answer to a call, once the store is back."""
    async with asyncio.timeout(60):
        while True:
            try:
                return await call()
            except SkepError as error:
                if not error.retryable:
                    raise
                await asyncio.sleep(0)


async def test_a_revocation_after_a_failover_that_lost_commits_is_heard_of(
    pair: tuple[Pair, Engine, Engine], clock: ManualClock
) -> None:
    database, here, there = pair
    await there.create_queue(ORDERS)
    minted = mint("k", [Grant((Verb.PUSH,))], created_by="test", now=clock.now())
    await there.access.put_key(minted.record)
    gate = Gate(here.access, clock, AccessSettings(required=True))
    principal = await gate.admit(minted.text.encode())
    await asyncio.to_thread(database.part)
    for depth in (1, 2, 3):
        await at_last(lambda depth=depth: there.update_queue(ORDERS, QueueChanges(max_depth=depth)))  # type: ignore[misc] # as it is now
    async with asyncio.timeout(60):
        while here._follower._position is None or here._follower._position.number < 3:
            clock.advance(1)
            await asyncio.sleep(0)

    await asyncio.to_thread(database.fail_over)
    await at_last(lambda: there.access.revoke_key(minted.record.id))

    ended = asyncio.ensure_future(principal.over())
    async with asyncio.timeout(60):
        while not ended.done():
            clock.advance(1)
            await asyncio.sleep(0)
    with pytest.raises(SkepError) as refused:
        await at_last(lambda: gate.admit(minted.text.encode()))
    assert refused.value.code is Code.UNAUTHENTICATED
