"""PostgreSQL killed in the midst of a verb: the caller is told, and after a restart the same store goes on with all it promised."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import Any

import asyncpg
import pytest
from structlog.testing import capture_logs

from skep.clock import ManualClock
from skep.errors import Code, SkepError
from skep.ids import Id
from skep.model import Outcome, PushStatus
from skep.store.postgres import PostgresStore
from tests.contract.driver import Driver
from tests.engine.driver import until
from tests.support.postgres import PostgresServer, make_tables, running_postgres

Call = Callable[[], Awaitable[Any]]
Verb = Callable[[Driver], Awaitable[Call]]


@pytest.fixture(scope="module")
def mortal() -> Iterator[PostgresServer]:
    with running_postgres(shared_buffers="32MB") as server:
        yield server


@pytest.fixture(scope="module")
def tables(mortal: PostgresServer) -> str:
    """The name of a database with empty tables, to copy."""
    dsn = mortal.create_database()
    asyncio.run(make_tables(dsn))
    return dsn.rpartition("/")[2]


@pytest.fixture
def dsn(mortal: PostgresServer, tables: str) -> str:
    return mortal.create_database(template=tables)


@pytest.fixture
async def driver(dsn: str) -> AsyncIterator[Driver]:
    store = PostgresStore(dsn)
    await store.open()
    yield Driver(store, ManualClock(), "tenant")
    await store.close()


async def unavailable(call: Awaitable[Any]) -> None:
    with pytest.raises(SkepError) as caught:
        await call
    assert caught.value.code is Code.STORE_UNAVAILABLE
    assert caught.value.retryable


async def answer(call: Awaitable[Any]) -> Any:
    """What a call was answered with, or None when it may be tried again."""
    try:
        return await call
    except SkepError as error:
        if not error.retryable:
            raise
        return None


async def kill_during(server: PostgresServer, dsn: str, table: str, call: Call) -> None:
    """Kill the server while a call waits, with its work half done, for a table that another session has locked."""
    session = await asyncpg.connect(dsn)
    await session.execute(f"BEGIN; LOCK TABLE skep.{table} IN EXCLUSIVE MODE")
    running = asyncio.ensure_future(call())
    waiting = "SELECT count(*) FROM pg_stat_activity WHERE application_name LIKE 'skep %' AND wait_event_type = 'Lock'"
    while not await session.fetchval(waiting):
        await session.execute("SELECT pg_stat_clear_snapshot()")
    await asyncio.to_thread(server.kill)
    await unavailable(running)
    session.terminate()


async def a_push(driver: Driver) -> Call:
    batch = driver.batch(*(driver.message("x", partition=p, transaction_id="t") for p in "ab"))
    return lambda: driver.store.push([batch], driver.now)


async def a_pop(driver: Driver) -> Call:
    """Of a lease that ran out, so that there is history to write."""
    await driver.push("x", "y")
    await driver.pop(lease_seconds=1)
    driver.clock.advance(5)
    request = driver.request()
    return lambda: driver.store.pop([request], driver.now)


async def an_ack(driver: Driver) -> Call:
    await driver.push("x", "y")
    settlements = [driver.settlement(delivery) for delivery in await driver.pop()]
    return lambda: driver.store.settle(settlements, driver.now)


async def a_rejection(driver: Driver) -> Call:
    await driver.push("x", "y")
    settlements = [driver.settlement(delivery, Outcome.REJECT) for delivery in await driver.pop()]
    return lambda: driver.store.settle(settlements, driver.now)


async def a_transaction(driver: Driver) -> Call:
    await driver.push("x")
    held = await driver.pop_one()
    return lambda: driver.transact([driver.settlement(held)], [driver.message("y", "next", transaction_id="t")])


async def a_replay(driver: Driver) -> Call:
    await driver.push("x", "y")
    await driver.reject(*await driver.pop())
    return driver.replay


LOCKED: dict[Verb, str] = {
    a_push: "dedup",
    a_pop: "lease_history",
    an_ack: "lease_history",
    a_rejection: "lease_history",
    a_transaction: "dedup",
    a_replay: "replay_history",
}
"""What each verb writes after other things, so that it is half done when it waits for it."""


async def figures(driver: Driver) -> dict[str, Any]:
    """All that a verb could have changed: per queue its log and its accounts."""
    found: dict[str, Any] = {}
    for queue in await driver.store.list_queues(driver.tenant):
        stats = await driver.store.queue_stats(queue.key, driver.now)
        log = [message.id for message in (await driver.browse(queue.key.name, limit=1000)).messages]
        found[queue.key.name] = (stats, log)
    return found


@pytest.mark.parametrize("verb", LOCKED, ids=lambda verb: verb.__name__)
async def test_I1_I11_I12_I15_a_verb_that_dies_with_postgres_has_not_happened_and_can_be_done_again(
    mortal: PostgresServer, dsn: str, driver: Driver, verb: Verb
) -> None:
    await driver.create()
    await driver.create("next")
    call = await verb(driver)
    before = await figures(driver)

    await kill_during(mortal, dsn, LOCKED[verb], call)
    await unavailable(call())
    await asyncio.to_thread(mortal.start)

    assert await figures(driver) == before
    assert await call()
    await driver.check_accounts()
    after = await figures(driver)
    assert after != before
    ids: list[Id] = [id_ for _, log in after.values() for id_ in log]
    assert len(ids) == len(set(ids)) + (len(after["q.dead"][1]) if "q.dead" in after else 0)


async def test_I1_I3_what_is_pushed_through_two_deaths_is_stored_once(
    mortal: PostgresServer, dsn: str, driver: Driver
) -> None:
    await driver.create()
    rising = asyncio.Event()
    rising.set()
    stored: list[Id] = []
    progress = asyncio.Condition()

    async def push(name: int) -> None:
        for number in range(40):
            batch = driver.batch(driver.message("x", partition=str(name), transaction_id=f"{name}-{number}"))
            outcome = None
            while outcome is None:
                await rising.wait()
                outcome = await answer(driver.store.push([batch], driver.now))
            (result,) = outcome[0].results
            assert result.status in (PushStatus.STORED, PushStatus.DUPLICATE)
            assert result.id == batch.ids[0]
            async with progress:
                stored.append(result.id)
                progress.notify_all()

    async def kill_twice() -> None:
        for share in (40, 100):
            async with progress:
                await progress.wait_for(lambda share=share: len(stored) >= share)  # type: ignore[misc]
            rising.clear()
            await asyncio.to_thread(mortal.kill)
            await asyncio.to_thread(mortal.start)
            rising.set()

    await asyncio.gather(*(push(name) for name in range(4)), kill_twice())

    log = [message.id for message in (await driver.browse(limit=1000)).messages]
    assert sorted(log) == sorted(stored)
    assert len(log) == 160
    assert (await driver.queue_stats()).last_seq == 160
    await driver.check_accounts()


async def test_a_clean_restart_is_survived_without_reopening(mortal: PostgresServer, driver: Driver) -> None:
    await driver.push("1")
    await asyncio.to_thread(mortal.stop)
    await unavailable(driver.store.get_queue(driver.key()))
    await unavailable(driver.store.maintain())
    await unavailable(driver.store.watch([driver.key()], driver.later(10)))
    await asyncio.to_thread(mortal.start)

    assert [result.seq for result in await driver.push("2")] == [2]


async def test_news_come_again_after_a_time_in_which_no_server_took_writes(
    mortal: PostgresServer, dsn: str, driver: Driver
) -> None:
    name = dsn.rpartition("/")[2]
    with capture_logs() as logs:
        other = PostgresStore(f"{dsn}?target_session_attrs=read-write")
        await other.open()
        missed = asyncio.Event()
        other.on_news(lambda _: None, missed.set)
        await driver.push("1")
        await other.watch([driver.key()], driver.later(1000))
        await asyncio.to_thread(mortal.execute, f'ALTER DATABASE "{name}" SET default_transaction_read_only = on')
        await asyncio.to_thread(mortal.restart)
        async with asyncio.timeout(30):
            await until(lambda: any("target attribute" in entry.get("error", "") for entry in logs))
            assert not missed.is_set()
            await asyncio.to_thread(mortal.execute, f'ALTER DATABASE "{name}" RESET default_transaction_read_only')
            await missed.wait()
        await other.close()


async def test_news_come_again_after_a_restart(mortal: PostgresServer, dsn: str, driver: Driver) -> None:
    other = PostgresStore(dsn)
    await other.open()
    heard, missed = asyncio.Event(), asyncio.Event()
    other.on_news(lambda _key: heard.set(), missed.set)
    await driver.push("1")
    await other.watch([driver.key()], driver.later(1000))
    await asyncio.to_thread(mortal.restart)

    async with asyncio.timeout(30):
        await missed.wait()  # without a call of this server
        await driver.push("2")
        await heard.wait()
    await other.close()
