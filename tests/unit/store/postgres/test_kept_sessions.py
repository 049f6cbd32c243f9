"""Sessions that calls leave for the next ones: nobody waits for them in vain, and none outlives what its pool went through."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import asyncpg
import pytest
import pytest_asyncio

from skep.errors import Code, SkepError
from skep.store.postgres import PostgresStore
from skep.store.postgres.connection import KEPT_SESSIONS, LEAVE_SECONDS, Connection
from tests.support.waiting import until_asked, until_so

SESSIONS = (
    "SELECT array_agg(pid) FROM pg_stat_activity WHERE datname = current_database() AND application_name LIKE 'skep %'"
)
END = "SELECT pg_terminate_backend($1)"


@pytest_asyncio.fixture(loop_scope="module")
async def store(dsn: str) -> AsyncIterator[PostgresStore]:
    store = PostgresStore(dsn, max_connections=KEPT_SESSIONS + 1)
    await store.open()
    yield store
    await store.close()


async def session_of(store: PostgresStore) -> int:
    async with store.pool.connection() as connection:
        pid: int = await connection.fetchval("SELECT pg_backend_pid()")
        return pid


async def sessions_at_once(store: PostgresStore, count: int) -> dict[int, Connection]:
    """The sessions of so many calls at the same time, each by the process that serves it."""
    together = asyncio.Barrier(count)

    async def one() -> tuple[int, Connection]:
        async with store.pool.connection() as connection:
            pid: int = await connection.fetchval("SELECT pg_backend_pid()")
            await together.wait()
            return pid, connection

    return dict(await asyncio.gather(*(one() for _ in range(count))))


def is_kept(session: Connection) -> bool:
    """Whether a session is still with the store. asyncpg takes one back that has ended."""
    try:
        return not session.is_closed()
    except asyncpg.InterfaceError:
        return False


async def test_who_waits_for_a_session_gets_the_one_that_a_call_leaves(dsn: str) -> None:
    store = PostgresStore(dsn, max_connections=1)
    await store.open()
    await session_of(store)

    async with asyncio.timeout(20):
        async with store.pool.connection():
            waiting = [asyncio.ensure_future(session_of(store)) for _ in range(3)]
            await until_so(lambda: store.connections().waiting == 3)
        assert len({*await asyncio.gather(*waiting)}) == 1
    await store.close()


async def test_sessions_that_are_kept_count_as_idle(store: PostgresStore) -> None:
    assert len(await sessions_at_once(store, KEPT_SESSIONS + 1)) == KEPT_SESSIONS + 1

    found = store.connections()

    assert (found.active, found.idle, found.waiting) == (0, KEPT_SESSIONS + 1, 0)


async def test_a_kept_session_that_postgresql_has_ended_is_not_used(
    store: PostgresStore, other: asyncpg.Connection[asyncpg.Record]
) -> None:
    ended = await sessions_at_once(store, 2)
    for pid in ended:
        await other.fetchval(END, pid)
    await until_so(lambda: not any(map(is_kept, ended.values())))

    assert ended.keys().isdisjoint(await sessions_at_once(store, 3))


async def test_sessions_of_before_are_left_when_the_pool_is_resumed_or_closed(
    dsn: str, other: asyncpg.Connection[asyncpg.Record]
) -> None:
    """Not only after the time that calls under way have to finish: nobody is under way."""
    store = PostgresStore(dsn)
    await store.open()
    before = await sessions_at_once(store, 3)

    async with asyncio.timeout(LEAVE_SECONDS - 1):
        await store.resume()
    after = await session_of(store)
    async with asyncio.timeout(LEAVE_SECONDS - 1):
        await store.close()

    assert after not in before

    async def are_gone() -> bool:
        return {*before, after}.isdisjoint(await other.fetchval(SESSIONS) or ())

    await until_asked(are_gone)


async def test_a_session_whose_statement_was_cancelled_can_be_used_again(store: PostgresStore) -> None:
    first = await session_of(store)
    async with store.pool.connection() as connection:
        begun = asyncio.ensure_future(connection.execute("SELECT pg_sleep(60)"))
        await asyncio.sleep(0)
        begun.cancel()
        await asyncio.wait([begun])

    assert await session_of(store) == first


async def test_no_session_is_kept_to_a_server_that_takes_no_writes(store: PostgresStore) -> None:
    """Another server may take them by now, and a new session finds it."""
    before = await sessions_at_once(store, 3)

    with pytest.raises(SkepError) as caught:
        async with store.pool.connection() as connection:
            await connection.execute("BEGIN READ ONLY; DELETE FROM queue")

    assert caught.value.code is Code.STORE_UNAVAILABLE
    assert before.keys().isdisjoint(await sessions_at_once(store, 3))
