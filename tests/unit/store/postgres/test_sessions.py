"""Sessions by name: given up, replaced, and fenced, so that what was sent through them before takes no effect later."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable
from typing import Any

import asyncpg
import pytest
import pytest_asyncio

from skep.clock import ManualClock
from skep.errors import Code, SkepError
from skep.store.postgres import PostgresStore
from skep.store.postgres.connection import COMMAND_SECONDS, LOCK_TIMEOUT_MS, STATEMENT_TIMEOUT_MS, Connection
from tests.contract.driver import Driver
from tests.support.postgres import PostgresServer
from torture.proxy import Proxy

NAMES = "SELECT application_name FROM pg_stat_activity WHERE datname = current_database() AND application_name LIKE 'skep %'"
WAITING = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND application_name LIKE 'skep %' AND wait_event_type = 'Lock'"


@pytest.fixture
def dsn(postgres_server: PostgresServer, tables_to_copy: str) -> str:
    return postgres_server.create_database(template=tables_to_copy)


@pytest_asyncio.fixture(loop_scope="module")
async def proxy(dsn: str) -> AsyncIterator[Proxy]:
    async with Proxy(dsn) as proxy:
        yield proxy


@pytest_asyncio.fixture(loop_scope="module")
async def driver(proxy: Proxy) -> AsyncIterator[Driver]:
    store = PostgresStore(proxy.dsn, max_connections=3)
    await store.open()
    yield Driver(store, ManualClock(), "tenant")
    await store.close()


@pytest_asyncio.fixture(loop_scope="module")
async def observer(dsn: str) -> AsyncIterator[Any]:
    session = await asyncpg.connect(dsn)
    yield session
    await session.close()


async def failed(call: Awaitable[Any]) -> Code:
    with pytest.raises(SkepError) as caught:
        await call
    return caught.value.code


async def waiting(observer: Any, count: int = 1) -> None:
    async with asyncio.timeout(20):
        while await observer.fetchval(WAITING) < count:
            pass


async def test_the_store_answers_a_probe_and_a_standby_would_not(driver: Driver) -> None:
    await driver.store.probe()


async def test_suspended_everything_fails_at_once_and_resumed_it_goes_on(driver: Driver, proxy: Proxy) -> None:
    await driver.push("1")
    proxy.stall()
    hanging = [asyncio.ensure_future(driver.store.get_queue(driver.key())) for _ in range(8)]
    await proxy.held_back.wait()

    driver.store.suspend()

    assert {await failed(call) for call in hanging} == {Code.STORE_UNAVAILABLE}
    assert await failed(driver.push("2")) is Code.STORE_UNAVAILABLE
    assert await failed(driver.store.probe()) is Code.STORE_UNAVAILABLE
    proxy.resume()
    await driver.store.resume()
    assert [result.seq for result in await driver.push("3")] == [2]


def test_postgresql_ends_a_statement_before_its_session_is_given_up() -> None:
    """Else a session that is only slow would be given up, and its statement go on."""
    assert LOCK_TIMEOUT_MS < STATEMENT_TIMEOUT_MS < COMMAND_SECONDS * 1_000


@pytest.mark.parametrize("way", ["once", "transaction", "snapshot"])
async def test_a_session_that_does_not_answer_is_left_at_once_with_those_beside_it(
    driver: Driver, proxy: Proxy, way: str
) -> None:
    """Its statement had its time. To cancel it, and to roll it back, would take as long again, and each session beside it, too."""
    assert isinstance(driver.store, PostgresStore)
    pool = driver.store.pool
    run = getattr(pool, way)

    async def number(connection: Connection, *, seconds: float | None = None) -> int:
        return int(await connection.fetchval("SELECT 1", timeout=seconds))

    async def all_sessions_are_lost(connection: Connection) -> int:
        await asyncio.gather(pool.once(number), pool.once(number))
        proxy.abandon()
        return await number(connection, seconds=0.2)

    async with asyncio.timeout(20):
        assert await failed(run(all_sessions_are_lost)) is Code.STORE_UNAVAILABLE
        assert await asyncio.gather(*(run(number) for _ in range(3))) == [1, 1, 1]


async def test_one_that_connects_when_the_store_is_suspended_fails_at_once(dsn: str) -> None:
    async with Proxy(dsn) as proxy:
        store = PostgresStore(proxy.dsn, max_connections=1)
        await store.open()
        proxy.cut()
        proxy.stall()
        calls = [asyncio.ensure_future(store.tenants()) for _ in range(3)]
        await asyncio.wait(calls, timeout=0.05)
        store.suspend()
        async with asyncio.timeout(10):
            assert {await failed(call) for call in calls} == {Code.STORE_UNAVAILABLE}
        proxy.resume()
        await store.resume()
        assert await store.tenants() == []
        await store.close()


async def test_I13_what_hangs_in_a_session_of_before_is_ended_by_resuming(
    driver: Driver, dsn: str, observer: Any
) -> None:
    """A push that PostgreSQL has got, but not done: without the fence it would be stored any time later."""
    await driver.push("0")
    blocker = await asyncpg.connect(dsn)
    await blocker.execute("BEGIN; LOCK TABLE skep.message IN EXCLUSIVE MODE")
    pushes = [asyncio.ensure_future(driver.push("1")), asyncio.ensure_future(driver.push(*"23456" * 10))]
    await waiting(observer)
    before = {row["application_name"] for row in await observer.fetch(NAMES)}

    driver.store.suspend()
    assert {await failed(push) for push in pushes} == {Code.STORE_UNAVAILABLE}
    await driver.store.resume()

    assert before.isdisjoint(row["application_name"] for row in await observer.fetch(NAMES))
    await blocker.execute("COMMIT")
    await blocker.close()
    assert [m.payload for m in (await driver.browse()).messages] == [b"0"]


async def test_I13_sessions_of_a_server_that_died_are_ended_by_name(driver: Driver, dsn: str, observer: Any) -> None:
    other = PostgresStore(dsn)
    await other.open()
    dead = Driver(other, driver.clock, "tenant")
    await dead.push("0")
    blocker = await asyncpg.connect(dsn)
    await blocker.execute("BEGIN; LOCK TABLE skep.message IN EXCLUSIVE MODE")
    push = asyncio.ensure_future(dead.push("1"))
    await waiting(observer)

    await driver.store.fence([other.session])

    assert await failed(push) is Code.STORE_UNAVAILABLE
    await blocker.execute("COMMIT")
    await blocker.close()
    assert [m.payload for m in (await driver.browse()).messages] == [b"0"]
    await driver.store.fence([driver.store.session])  # never those in use
    await driver.push("2")
    await other.close()


async def test_resumed_without_being_suspended_calls_under_way_finish(driver: Driver, dsn: str, observer: Any) -> None:
    await driver.push("0")
    blocker = await asyncpg.connect(dsn)
    await blocker.execute("BEGIN; LOCK TABLE skep.message IN EXCLUSIVE MODE")
    # Two of them wait for a session, and must not go on with one of before.
    pushes = [asyncio.ensure_future(driver.push(str(number))) for number in range(5)]
    await waiting(observer, 3)
    (before,) = {row["application_name"] for row in await observer.fetch(NAMES)}

    resuming = asyncio.ensure_future(driver.store.resume())
    async with asyncio.timeout(4):
        while len({row["application_name"] for row in await observer.fetch(NAMES)}) < 2:
            pass
    await blocker.execute("COMMIT")
    await blocker.close()

    assert [len(results) for results in await asyncio.gather(*pushes)] == [1] * 5
    await resuming
    assert before not in {row["application_name"] for row in await observer.fetch(NAMES)}


async def test_who_cannot_resume_stays_suspended(driver: Driver, proxy: Proxy) -> None:
    proxy.cut()
    proxy.refuse()
    driver.store.suspend()
    assert await failed(driver.store.resume()) is Code.STORE_UNAVAILABLE
    assert await failed(driver.store.resume()) is Code.STORE_UNAVAILABLE
    proxy.refuse(False)
    assert await failed(driver.store.tenants()) is Code.STORE_UNAVAILABLE
    await driver.store.resume()
    assert await driver.store.tenants() == []
