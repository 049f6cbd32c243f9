"""Opening: the schema is made once, whoever comes first; what this program cannot serve it says; the clock is the database's."""

from __future__ import annotations

import asyncio
from importlib.resources import files
from typing import TypeAlias

import asyncpg
import pytest

from skep.clock import Instant, ManualClock, SystemClock
from skep.errors import Code, SkepError
from skep.model import QueueKey
from skep.store.migrate import load_migrations
from skep.store.postgres import PostgresStore
from skep.store.protocol import Store
from skep.testing.postgres import free_port
from tests.contract.driver import Driver, payloads
from tests.support.postgres import PostgresServer

Session: TypeAlias = "asyncpg.Connection[asyncpg.Record]"
NOW = "SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint"


@pytest.fixture
def dsn(blank_dsn: str) -> str:
    """A database of its own: the schema is what is tested here."""
    return blank_dsn


@pytest.fixture
def store(own_store: PostgresStore) -> PostgresStore:
    return own_store


def test_it_is_a_store() -> None:
    store: Store = PostgresStore("postgresql://nowhere")
    assert isinstance(store, PostgresStore)


async def refused(dsn: str) -> SkepError:
    """What opening a store there is answered with."""
    store = PostgresStore(dsn)
    with pytest.raises(SkepError) as caught:
        await store.open()
    await store.close()
    return caught.value


async def test_servers_that_start_together_on_an_empty_database_all_open(blank_dsn: str) -> None:
    stores = [PostgresStore(blank_dsn) for _ in range(4)]

    await asyncio.gather(*(store.open() for store in stores))

    drivers = [Driver(store, ManualClock(), "tenant") for store in stores]
    for number, driver in enumerate(drivers):
        await driver.push(str(number))
    assert payloads(await drivers[0].pop()) == ["0", "1", "2", "3"]
    session = await asyncpg.connect(blank_dsn)
    assert await session.fetchval("SELECT array_agg(number ORDER BY number) FROM skep.migration") == [
        0,
        *(step.number for step in load_migrations(files("skep.store.postgres").joinpath("migrations"))),
    ]
    await session.close()
    for store in stores:
        await store.close()


async def test_opening_again_keeps_what_is_there(blank_dsn: str) -> None:
    for expected in (1, 2):
        store = PostgresStore(blank_dsn)
        await store.open()
        driver = Driver(store, ManualClock(), "tenant")
        await driver.push("x")
        assert (await driver.queue_stats()).last_seq == expected
        await store.close()


async def test_a_closed_store_refuses_and_opens_again(store: PostgresStore) -> None:
    await store.close()
    with pytest.raises(SkepError) as caught:
        await store.get_queue(QueueKey("q"))
    assert caught.value.code is Code.STORE_UNAVAILABLE

    await store.open()
    assert await store.get_queue(QueueKey("q")) is None


async def test_a_database_of_a_newer_program_is_left_alone(
    store: PostgresStore, other: Session, blank_dsn: str
) -> None:
    await other.execute("INSERT INTO migration VALUES (99, 'to_come', 'unknown')")

    error = await refused(blank_dsn)

    assert error.code is Code.STORE_UNAVAILABLE
    assert "newer" in error.message
    assert "upgrade" in error.message


async def test_a_migration_that_changed_is_refused(store: PostgresStore, other: Session, blank_dsn: str) -> None:
    await other.execute("UPDATE migration SET checksum = 'another' WHERE number = 1")

    error = await refused(blank_dsn)

    assert error.code is Code.STORE_CORRUPT
    assert "migration 1" in error.message


async def test_functions_of_another_version_are_replaced(store: PostgresStore, other: Session, blank_dsn: str) -> None:
    functions = "SELECT array_agg(oid::regprocedure::text ORDER BY oid::regprocedure::text) FROM pg_proc WHERE pronamespace = 'skep'::regnamespace"
    ours = await other.fetchval(functions)
    await other.execute("CREATE FUNCTION renew(p_token uuid) RETURNS boolean LANGUAGE sql AS 'SELECT true'")
    await other.execute("DROP FUNCTION last_seq; UPDATE migration SET checksum = 'another' WHERE number = 0")

    second = PostgresStore(blank_dsn)
    await second.open()

    assert await other.fetchval(functions) == ours
    await second.close()


async def test_no_server_no_database_no_login_is_unavailable(postgres_server: PostgresServer, blank_dsn: str) -> None:
    nobody = blank_dsn.replace("skep@", "nobody_known@")
    missing = postgres_server.dsn("no_such_database")

    codes = [(await refused(dsn)).code for dsn in (f"postgresql://skep@127.0.0.1:{free_port()}/x", missing, nobody)]

    assert codes == [Code.STORE_UNAVAILABLE] * 3


async def test_a_role_without_rights_is_told_so(postgres_server: PostgresServer, blank_dsn: str) -> None:
    postgres_server.execute("CREATE ROLE guest LOGIN")

    error = await refused(blank_dsn.replace("skep@", "guest@"))

    assert error.code is Code.STORE_UNAVAILABLE
    assert "permission denied" in error.message


async def test_too_many_connections_are_unavailable_and_those_it_has_go_on(
    postgres_server: PostgresServer, blank_dsn: str
) -> None:
    database = blank_dsn.rsplit("/", 1)[-1]
    postgres_server.execute(
        f'CREATE ROLE limited LOGIN CONNECTION LIMIT 1; GRANT CREATE ON DATABASE "{database}" TO limited'
    )
    dsn = blank_dsn.replace("skep@", "limited@")
    store = PostgresStore(dsn)
    await store.open()
    driver = Driver(store, ManualClock(), "tenant")
    await driver.create()

    pushes = [store.push([driver.batch(driver.message("x"))], driver.now) for _ in range(4)]
    answers = await asyncio.gather(*pushes, return_exceptions=True)

    errors = [answer for answer in answers if isinstance(answer, BaseException)]
    assert all(isinstance(error, SkepError) and error.code is Code.STORE_UNAVAILABLE for error in errors)
    assert len(errors) == 3
    assert (await driver.queue_stats()).last_seq == 1
    assert (await refused(dsn)).code is Code.STORE_UNAVAILABLE
    await store.close()


# the clock


async def test_the_clock_follows_the_database(blank_dsn: str) -> None:
    session = await asyncpg.connect(blank_dsn)
    clock = SystemClock()
    store = PostgresStore(blank_dsn, clock=clock)
    for follow in (store.open, store.maintain):
        clock.follow(Instant(0))
        before = await session.fetchval(NOW)

        await follow()

        assert before <= clock.now() <= await session.fetchval(NOW)
    await store.close()
    await session.close()


async def test_a_clock_of_tests_is_left_alone(blank_dsn: str) -> None:
    clock = ManualClock()
    shown = clock.now()
    store = PostgresStore(blank_dsn, clock=clock)

    await store.open()
    await store.maintain()

    assert clock.now() == shown
    await store.close()
