"""Calls of a store that are stopped right before their commit, and others that are seen to wait for them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeAlias

import asyncpg

from skep.store.postgres import PostgresStore
from skep.store.protocol import Store

Session: TypeAlias = "asyncpg.Connection[asyncpg.Record]"

WAITING = """
SELECT count(*) FROM pg_stat_activity
WHERE application_name LIKE 'skep %' AND wait_event_type = 'Lock' AND datname = current_database()
"""


class Held:
    """A call that has done everything but its commit, until it may `finish`."""

    def __init__(self) -> None:
        self._reached = asyncio.Event()
        self._gate = asyncio.Event()
        self._task: asyncio.Task[Any]

    @classmethod
    async def begin(cls, store: Store, call: Callable[[], Coroutine[Any, Any, Any]]) -> Held:
        assert isinstance(store, PostgresStore)
        held, transaction = cls(), store.pool.transaction

        async def stopped(work: Callable[..., Awaitable[Any]], *arguments: Any) -> Any:
            async def inside(connection: Any) -> Any:
                result = await work(connection, *arguments)
                held._reached.set()
                await held._gate.wait()
                return result

            return await transaction(inside)

        store.pool.transaction = stopped  # type: ignore[method-assign, assignment]
        held._task = asyncio.ensure_future(call())
        reached = asyncio.ensure_future(held._reached.wait())
        await asyncio.wait((held._task, reached), return_when=asyncio.FIRST_COMPLETED)
        store.pool.transaction = transaction  # type: ignore[method-assign]
        assert held._reached.is_set(), f"it ended without a transaction: {held._task}"
        return held

    async def finish(self) -> Any:
        """Let it commit; its answer."""
        self._gate.set()
        return await self._task


async def waiting_or_done(session: Session, task: asyncio.Future[Any], calls: int = 1) -> None:
    """Return once so many calls wait for locks, or this one has ended without."""
    while not task.done() and await session.fetchval(WAITING) < calls:
        await session.execute("SELECT pg_stat_clear_snapshot()")
