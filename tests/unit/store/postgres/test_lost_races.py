"""A transaction that loses a race is tried again, a bounded number of times, and what takes too long is STORE_BUSY."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, TypeAlias

import asyncpg
import pytest
import pytest_asyncio

from skep.clock import ManualClock
from skep.errors import Code, SkepError
from skep.model import PushStatus, SettleStatus
from skep.store.postgres import PostgresStore
from skep.store.postgres.connection import SESSION, TRIES
from tests.contract.driver import Driver
from tests.support.postgres import PostgresServer

Session: TypeAlias = "asyncpg.Connection[asyncpg.Record]"
Verb: TypeAlias = "Callable[[Driver], Awaitable[Callable[[], Awaitable[Any]]]]"


@pytest_asyncio.fixture(loop_scope="module")
async def session(dsn: str) -> AsyncIterator[Session]:
    """A session that makes others lose, and leaves no trace of it."""
    session = await asyncpg.connect(dsn, server_settings={"search_path": "skep"})
    yield session
    await session.execute("DROP FUNCTION IF EXISTS public.lose() CASCADE; DROP SEQUENCE IF EXISTS attempt")
    await session.close()


@pytest_asyncio.fixture(loop_scope="module")
async def narrow(dsn: str) -> AsyncIterator[PostgresStore]:
    """A store with one connection: who does not give it back stops everyone."""
    store = PostgresStore(dsn, max_connections=1)
    await store.open()
    yield store
    await store.close()


async def lose(session: Session, table: str, event: str, sqlstate: str, times: int) -> None:
    """Make the next ``times`` transactions that write to a table fail as the loser of a race."""
    await session.execute(
        f"""
        CREATE SEQUENCE attempt;
        CREATE FUNCTION public.lose() RETURNS trigger LANGUAGE plpgsql AS $$
        BEGIN
            IF nextval('skep.attempt') <= {times} THEN
                RAISE EXCEPTION 'lost' USING ERRCODE = '{sqlstate}';
            END IF;
            RETURN NULL;
        END $$;
        CREATE TRIGGER lose AFTER {event} ON {table} FOR EACH STATEMENT EXECUTE FUNCTION public.lose();
        """
    )


async def attempts(session: Session) -> int:
    return int(await session.fetchval("SELECT last_value FROM attempt"))


async def pushing(driver: Driver) -> Callable[[], Awaitable[Any]]:
    batch = driver.batch(driver.message("x", transaction_id="t"))
    return lambda: driver.store.push([batch], driver.now)


async def popping(driver: Driver) -> Callable[[], Awaitable[Any]]:
    await driver.push("x")
    await driver.pop(partition="nobody's")
    request = driver.request()
    return lambda: driver.store.pop([request], driver.now)


async def acking(driver: Driver) -> Callable[[], Awaitable[Any]]:
    await driver.push("x")
    settlement = driver.settlement(await driver.pop_one())
    return lambda: driver.store.settle([settlement], driver.now)


async def rejecting(driver: Driver) -> Callable[[], Awaitable[Any]]:
    await driver.push("x")
    delivery = await driver.pop_one()
    return lambda: driver.reject(delivery)


async def transacting(driver: Driver) -> Callable[[], Awaitable[Any]]:
    await driver.push("x")
    settlement = driver.settlement(await driver.pop_one())
    return lambda: driver.transact([settlement], [driver.message("y")])


WRITES: dict[Verb, tuple[str, str]] = {
    pushing: ("dedup", "INSERT"),
    popping: ("partition_lease", "UPDATE"),
    acking: ("lease_history", "INSERT"),
    rejecting: ("dead_letter", "INSERT"),
    transacting: ("message", "INSERT"),
}
"""What each verb writes last, or nearly so."""


@pytest.mark.parametrize("sqlstate", ["40P01", "40001"])
@pytest.mark.parametrize("verb", WRITES, ids=lambda verb: verb.__name__)
async def test_the_loser_of_a_race_is_tried_again(
    narrow: PostgresStore, session: Session, verb: Verb, sqlstate: str
) -> None:
    driver = Driver(narrow, ManualClock(), "tenant")
    await driver.create()
    call = await verb(driver)
    await lose(session, *WRITES[verb], sqlstate, TRIES - 1)

    assert await call()

    assert await attempts(session) == TRIES
    await driver.check_accounts()


@pytest.mark.parametrize("verb", WRITES, ids=lambda verb: verb.__name__)
async def test_after_the_last_try_it_is_busy_and_nothing_happened(
    narrow: PostgresStore, session: Session, verb: Verb
) -> None:
    driver = Driver(narrow, ManualClock(), "tenant")
    await driver.create()
    call = await verb(driver)
    before = await driver.queue_stats()
    await lose(session, *WRITES[verb], "40P01", 1_000)

    with pytest.raises(SkepError) as caught:
        await call()

    assert caught.value.code is Code.STORE_BUSY
    assert caught.value.retryable
    assert await attempts(session) == TRIES
    assert (await driver.queue_stats()).last_seq == before.last_seq
    await session.execute("SELECT setval('attempt', 1000)")
    assert await call()
    await driver.check_accounts()


async def test_what_is_no_lost_race_is_tried_once(narrow: PostgresStore, session: Session) -> None:
    driver = Driver(narrow, ManualClock(), "tenant")
    await driver.create()
    push = await pushing(driver)
    await lose(session, "dedup", "INSERT", "55P03", 1_000)
    with pytest.raises(SkepError) as caught:
        await push()

    assert caught.value.code is Code.STORE_BUSY
    assert await attempts(session) == 1


async def test_between_tries_others_have_the_connection(narrow: PostgresStore, session: Session) -> None:
    driver = Driver(narrow, ManualClock(), "tenant")
    await driver.create()
    push = await pushing(driver)
    await lose(session, "dedup", "INSERT", "40P01", TRIES - 1)
    finished: list[str] = []

    async def note(name: str, call: Awaitable[Any]) -> None:
        await call
        finished.append(name)

    pushed = asyncio.create_task(note("push", push()))
    await asyncio.sleep(0)
    await asyncio.gather(pushed, note("look", narrow.get_queue(driver.key())))

    assert finished == ["look", "push"]


async def test_a_real_deadlock_is_survived(postgres_server: PostgresServer, postgres_dsn: str) -> None:
    before = postgres_server.log().count("deadlock detected")
    session = await asyncpg.connect(postgres_dsn, server_settings={"search_path": "skep"})
    # The store looks for a deadlock once, this long after it began to wait: the other wait must have begun by then.
    await session.execute("SET deadlock_timeout = '1min'")
    await session.execute(
        f"ALTER DATABASE {await session.fetchval('SELECT current_database()')} SET deadlock_timeout = '4s'"
    )
    store = PostgresStore(postgres_dsn)
    await store.open()
    driver = Driver(store, ManualClock(), "tenant")
    await driver.create()
    await driver.push("1", partition="a")
    await driver.push("2", partition="b")
    held = await driver.pop()
    lock = "SELECT 1 FROM partition_lease WHERE partition = '{}' FOR UPDATE"

    await session.execute("BEGIN; " + lock.format("b"))
    settling = asyncio.ensure_future(store.settle([driver.settlement(d) for d in held], driver.now))
    watcher = await asyncpg.connect(postgres_dsn)
    while not await watcher.fetchval(
        "SELECT count(*) FROM pg_stat_activity WHERE application_name LIKE 'skep %' AND wait_event_type = 'Lock'"
    ):
        pass
    await session.execute(lock.format("a"))
    await session.execute("COMMIT")

    assert [result.status for result in await settling] == [SettleStatus.COMPLETED] * 2
    # More than one when the store, trying again, is quicker than the session that has waited for the lock.
    assert postgres_server.log().count("deadlock detected") > before
    await driver.check_accounts()
    for connection in (session, watcher):
        await connection.close()
    await store.close()


@pytest.mark.parametrize("setting", ["lock_timeout", "statement_timeout"])
async def test_who_waits_too_long_is_busy_and_nothing_happened(
    postgres_dsn: str, monkeypatch: pytest.MonkeyPatch, setting: str
) -> None:
    monkeypatch.setitem(SESSION, setting, "1000")
    store = PostgresStore(postgres_dsn)
    await store.open()
    driver = Driver(store, ManualClock(), "tenant")
    await driver.create()
    await driver.push("1")
    delivery = await driver.pop_one()
    session = await asyncpg.connect(postgres_dsn, server_settings={"search_path": "skep"})
    await session.execute("BEGIN; LOCK TABLE dedup, lease_history IN EXCLUSIVE MODE")
    batch = driver.batch(driver.message("2", transaction_id="t"))

    for call in (store.push([batch], driver.now), store.settle([driver.settlement(delivery)], driver.now)):
        with pytest.raises(SkepError) as caught:
            await call
        assert caught.value.code is Code.STORE_BUSY

    await session.execute("ROLLBACK")
    assert (await driver.queue_stats()).last_seq == 1
    assert [r.status for r in (await driver.push_batches(batch))[0].results] == [PushStatus.STORED]
    assert [r.status for r in await driver.ack(delivery)] == [SettleStatus.COMPLETED]
    await session.close()
    await store.close()
