"""Notices of messages go to servers that wait elsewhere: a server that alone waits sends none."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable

import asyncpg
import msgspec
import pytest
import pytest_asyncio

from skep.store.postgres import PostgresStore
from skep.store.postgres.news import CHANNEL
from skep.store.postgres.push import SMALL_PUSH
from tests.contract.driver import Driver

LAST = "no notice follows"
LONG_PUSH = [str(number) for number in range(SMALL_PUSH + 1)]


@pytest_asyncio.fixture(loop_scope="module")
async def heard(other: asyncpg.Connection[asyncpg.Record]) -> asyncio.Queue[str]:
    """The payloads of notices, in their order."""
    payloads: asyncio.Queue[str] = asyncio.Queue()
    await other.add_listener(CHANNEL, lambda _connection, _pid, _channel, payload: payloads.put_nowait(str(payload)))
    return payloads


@pytest.fixture
def store(own_store: PostgresStore) -> PostgresStore:
    return own_store


@pytest_asyncio.fixture(loop_scope="module")
async def elsewhere(dsn: str) -> AsyncIterator[PostgresStore]:
    """The store of another server."""
    store = PostgresStore(dsn)
    await store.open()
    yield store
    await store.close()


async def push_a_few(driver: Driver) -> None:
    await driver.push("a")


async def push_many(driver: Driver) -> None:
    await driver.push(*LONG_PUSH)


async def push_to_who_waits(driver: Driver) -> None:
    await driver.store.push_and_pop([driver.batch(driver.message("a"))], [driver.request()], driver.now)


async def give_a_lease_back(driver: Driver) -> None:
    await driver.push("a")
    (held,) = await driver.pop()
    await driver.store.release_lease(held.queue, held.group, held.partition, held.token, driver.now)


@pytest.mark.parametrize("make_ready", [push_a_few, push_many, push_to_who_waits, give_a_lease_back])
async def test_only_other_servers_that_wait_are_told(
    driver: Driver,
    store: PostgresStore,
    elsewhere: PostgresStore,
    other: asyncpg.Connection[asyncpg.Record],
    heard: asyncio.Queue[str],
    make_ready: Callable[[Driver], Awaitable[None]],
) -> None:
    await driver.create()
    await driver.store.watch([driver.key()], driver.later(60))

    await make_ready(driver)
    await store.close()  # with what it had to say
    await make_ready(Driver(elsewhere, driver.clock, driver.tenant))
    await elsewhere.close()

    await other.execute("SELECT pg_notify($1, $2)", CHANNEL, LAST)  # notices come in the order of their commits
    notices = []
    while (notice := await heard.get()) != LAST:
        notices.append(notice)
    assert {msgspec.json.decode(notice)[0] for notice in notices} == {elsewhere.news.server.hex()}
