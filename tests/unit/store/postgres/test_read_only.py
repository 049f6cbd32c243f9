"""A PostgreSQL that takes no writes is away, whatever the reason, and nothing holds on to a server that has become so (I13)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

import asyncpg
import pytest
import pytest_asyncio

from skep.clock import ManualClock
from skep.engine.push.spool.spool import SpoolState
from skep.errors import Code, SkepError
from skep.model import NewMessage, PopRequest, PushStatus, QueueKey
from skep.server.compose import open_engine
from skep.store.postgres import PostgresStore
from skep.store.postgres.connection import translated
from tests.contract.driver import Driver
from tests.engine.driver import until
from tests.support.postgres import PostgresServer, running_postgres
from torture.proxy import Proxy

OF_A_CLASS = {
    "08006": Code.STORE_UNAVAILABLE,
    "25006": Code.STORE_UNAVAILABLE,
    "25P03": Code.STORE_BUSY,
    "28P01": Code.STORE_UNAVAILABLE,
    "3D000": Code.STORE_UNAVAILABLE,
    "40001": Code.STORE_BUSY,
    "40P01": Code.STORE_BUSY,
    "42501": Code.STORE_UNAVAILABLE,
    "53100": Code.STORE_FULL,
    "53200": Code.STORE_FULL,
    "53300": Code.STORE_UNAVAILABLE,
    "53400": Code.STORE_FULL,
    "55000": Code.STORE_UNAVAILABLE,
    "55006": Code.STORE_BUSY,
    "55P03": Code.STORE_BUSY,
    "57014": Code.STORE_BUSY,
    "57P01": Code.STORE_UNAVAILABLE,
    "57P02": Code.STORE_UNAVAILABLE,
    "57P03": Code.STORE_UNAVAILABLE,
    "57P04": Code.STORE_UNAVAILABLE,
    "57P05": Code.STORE_UNAVAILABLE,
    "58000": Code.STORE_UNAVAILABLE,
    "58030": Code.STORE_UNAVAILABLE,
    "58P01": Code.STORE_UNAVAILABLE,
    "XX000": Code.INTERNAL,
    "XX001": Code.STORE_CORRUPT,
    "XX002": Code.STORE_CORRUPT,
    "23505": Code.INTERNAL,
}


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    with running_postgres() as server:
        yield server


@pytest.fixture
def dsn(server: PostgresServer) -> str:
    return server.create_database()


def set_read_only(server: PostgresServer, dsn: str, is_read_only: bool) -> None:
    name = dsn.rsplit("/", 1)[-1]
    state = "on" if is_read_only else "off"
    server.execute(f'ALTER DATABASE "{name}" SET default_transaction_read_only = {state}')


@pytest_asyncio.fixture(loop_scope="module")
async def store(dsn: str) -> AsyncIterator[PostgresStore]:
    store = PostgresStore(dsn, max_connections=3)
    await store.open()
    yield store
    await store.close()


async def raised(dsn: str, state: str) -> SkepError:
    connection = await asyncpg.connect(dsn)
    try:
        with pytest.raises(SkepError) as caught, translated():
            await connection.execute(f"DO $$ BEGIN RAISE EXCEPTION 'x' USING ERRCODE = '{state}'; END $$")
    finally:
        await connection.close()
    return caught.value


@pytest.mark.parametrize(("state", "code"), OF_A_CLASS.items())
async def test_what_an_error_of_postgres_means(database_with_tables: str, state: str, code: Code) -> None:
    assert (await raised(database_with_tables, state)).code is code


async def test_the_probe_asks_whether_it_can_write(server: PostgresServer, dsn: str, store: PostgresStore) -> None:
    await store.probe()
    set_read_only(server, dsn, True)

    with pytest.raises(SkepError) as caught:
        await store.probe()
    store.suspend()
    with pytest.raises(SkepError) as still:
        await store.resume()
    set_read_only(server, dsn, False)
    await store.resume()

    assert (caught.value.code, still.value.code) == (Code.STORE_UNAVAILABLE, Code.STORE_UNAVAILABLE)
    assert "read-only" in caught.value.message
    await store.probe()


async def test_a_role_without_special_rights_can_be_asked(server: PostgresServer, dsn: str) -> None:
    name = dsn.rsplit("/", 1)[-1]
    server.execute("CREATE ROLE plain LOGIN")
    server.execute(f'GRANT ALL ON DATABASE "{name}" TO plain')
    store = PostgresStore(urlunsplit(urlsplit(dsn)._replace(netloc=f"plain@127.0.0.1:{server.port}")))
    await store.open()
    await store.probe()
    await store.close()


async def test_a_commit_that_waits_for_a_standby_for_ever_is_no_answer(
    server: PostgresServer, store: PostgresStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("skep.store.postgres.connection.PROBE_SECONDS", 0.5)
    server.execute("ALTER SYSTEM SET synchronous_standby_names = 'nobody'")
    server.execute("SELECT pg_reload_conf()")
    try:
        with pytest.raises(SkepError) as caught:
            await store.probe()
    finally:
        server.execute("ALTER SYSTEM RESET synchronous_standby_names")
        server.execute("SELECT pg_reload_conf()")

    assert caught.value.code is Code.STORE_UNAVAILABLE


@pytest.mark.slow
async def test_connections_to_a_server_that_became_read_only_are_made_anew() -> None:
    """Its address leads to another server by now, but those who are connected stay where they were."""
    with running_postgres() as demoted, running_postgres() as promoted:
        theirs = PostgresStore(promoted.dsn())
        await theirs.open()
        there = Driver(theirs, ManualClock(), "tenant")
        await there.create()
        async with Proxy(demoted.dsn()) as proxy:
            store = PostgresStore(proxy.dsn, max_connections=3)
            await store.open()
            driver = Driver(store, ManualClock(), "tenant")
            driver.check_accounts = there.check_accounts  # type: ignore[method-assign]
            await asyncio.gather(*(driver.push(str(n), partition=f"P{n}") for n in range(3)))
            demoted.execute("ALTER SYSTEM SET default_transaction_read_only = on")
            demoted.execute("SELECT pg_reload_conf()")
            proxy.lead_to(promoted.dsn())

            await wait_until_read_only(demoted)
            with pytest.raises(SkepError) as caught:
                await driver.push("lost")
            for n in range(5):
                await driver.push(f"kept {n}")

            assert caught.value.code is Code.STORE_UNAVAILABLE
            await store.close()
        assert len(await there.pop(batch=10)) == 5
        await theirs.close()


async def wait_until_read_only(server: PostgresServer) -> None:
    async with asyncio.timeout(20):
        while await asyncio.to_thread(server.execute, "SHOW transaction_read_only") != "on":
            pass


async def test_pushes_to_a_read_only_postgres_are_spooled_and_stored_in_order_when_it_takes_writes(
    server: PostgresServer, dsn: str, tmp_path: Path
) -> None:
    key = QueueKey("orders")
    async with open_engine(dsn, spool_folder=tmp_path / "spool") as engine:
        await engine.create_queue(key)

        async def push(payload: str) -> PushStatus:
            outcome = await engine.push([NewMessage(key, payload.encode(), "a")])
            return outcome.results[0].status

        assert await push("1") is PushStatus.STORED
        server.execute("ALTER SYSTEM SET default_transaction_read_only = on")
        server.execute("SELECT pg_reload_conf()")
        await wait_until_read_only(server)
        try:
            statuses = {await push(str(n)) for n in range(2, 6)}
            assert engine.spool is not None
            spool = engine.spool
            await until(lambda: spool.figures().state is SpoolState.AWAY)
            assert await push("6") is PushStatus.BUFFERED
        finally:
            server.execute("ALTER SYSTEM RESET default_transaction_read_only")
            server.execute("SELECT pg_reload_conf()")
        await until(lambda: not spool.figures().pending)

        assert statuses == {PushStatus.BUFFERED}
        assert engine.spool.figures().failed == 0
        popped = await engine.pop(PopRequest(key, batch=10))
        assert [delivery.payload for delivery in popped.deliveries] == [str(n).encode() for n in range(1, 7)]
