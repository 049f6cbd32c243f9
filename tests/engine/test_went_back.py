"""A store that went back: a standby took over without the last commits, or a backup was put back, and a server goes on.

What that server holds in memory came from commits that are undone, and the numbers it has read up to are given out again.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack

import asyncpg
import pytest

from skep.access.gate import Gate
from skep.access.keys import Minted, mint
from skep.apps.applying import apply
from skep.clock import ManualClock
from skep.config import AccessSettings
from skep.crypto.master import MasterKeys, new_master_line
from skep.engine import Engine
from skep.errors import Code, SkepError
from skep.model import PopRequest, QueueChanges, QueueKey, QueueSettings
from skep.model.key import Grant, Verb
from skep.model.system_event import SystemEventKind
from skep.server.compose import Opened, open_engine, open_server
from skep.spec import load
from skep.store.postgres import PostgresStore
from tests.engine.driver import ORDERS, message, until

MASTERS = MasterKeys(new_master_line("first"))
PAYMENTS = QueueKey("payments")


@pytest.fixture
async def servers(empty_tables_dsn: str, clock: ManualClock) -> AsyncIterator[tuple[Engine, Engine]]:
    async with AsyncExitStack() as stack:
        here, there = [
            await stack.enter_async_context(open_engine(empty_tables_dsn, clock=clock, masters=MASTERS))
            for _ in range(2)
        ]
        await here.create_queue(ORDERS)
        await there.update_queue(ORDERS, QueueChanges(max_depth=1))
        yield here, there


@pytest.fixture
async def database(empty_tables_dsn: str) -> AsyncIterator[asyncpg.Connection[asyncpg.Record]]:
    connection = await asyncpg.connect(empty_tables_dsn, server_settings={"search_path": "skep"})
    yield connection
    await connection.close()


async def newest(database: asyncpg.Connection[asyncpg.Record]) -> int:
    position: int = await database.fetchval("SELECT coalesce(max(position), 0) FROM system_event")
    return position


async def go_back(database: asyncpg.Connection[asyncpg.Record], to: int) -> None:
    """Undo the changes after a position: the next ones get their numbers."""
    await database.execute("DELETE FROM system_event WHERE position > $1", to)
    await database.execute("SELECT setval(pg_get_serial_sequence('system_event', 'position'), $1)", to)


async def followed(here: Engine, clock: ManualClock) -> None:
    """Let a server read what others told."""
    clock.advance(1)
    await until(lambda: here.is_quiet)


async def looked_anew(here: Engine, clock: ManualClock) -> None:
    """Let a server notice that the store is another."""
    missed: list[bool] = []
    here.caches.on_missed(lambda: missed.append(True))
    clock.advance(1)
    await until(lambda: bool(missed) and here.is_quiet)


async def a_key(engine: Engine, clock: ManualClock) -> Minted:
    minted = mint("k", [Grant((Verb.PUSH,))], created_by="test", now=clock.now())
    await engine.access.put_key(minted.record)
    return minted


async def refused(gate: Gate, minted: Minted) -> bool:
    try:
        await gate.admit(minted.text.encode())
    except SkepError as error:
        if error.code is not Code.UNAUTHENTICATED:
            raise
        return True
    return False


async def shut_out(gate: Gate, minted: Minted, here: Engine, clock: ManualClock) -> None:
    """Return once a key lets nobody in any more; ten seconds mean that it always will."""
    async with asyncio.timeout(10):
        while not await refused(gate, minted):
            await followed(here, clock)


@pytest.mark.parametrize("more", [0, 2, 5], ids=["before the position", "at the position", "beyond the position"])
async def test_a_revocation_is_heard_of_after_commits_were_lost(
    servers: tuple[Engine, Engine], database: asyncpg.Connection[asyncpg.Record], clock: ManualClock, more: int
) -> None:
    """Its number is one that this server has read already, or follows numbers of which it has read others."""
    here, there = servers
    gate = Gate(here.access, clock, AccessSettings(required=True))
    minted = await a_key(there, clock)
    before = await newest(database)
    for depth in (2, 3, 4):  # these will be lost
        await there.update_queue(ORDERS, QueueChanges(max_depth=depth))
    await followed(here, clock)
    assert not await refused(gate, minted)

    await go_back(database, before)
    for depth in range(more):
        await there.update_queue(ORDERS, QueueChanges(max_depth=10 + depth))
    await there.access.revoke_key(minted.record.id)

    await shut_out(gate, minted, here, clock)


async def test_a_revocation_is_heard_of_after_all_changes_were_lost(
    servers: tuple[Engine, Engine], database: asyncpg.Connection[asyncpg.Record], clock: ManualClock
) -> None:
    here, there = servers
    gate = Gate(here.access, clock, AccessSettings(required=True))
    minted = await a_key(there, clock)
    await followed(here, clock)
    assert not await refused(gate, minted)
    await database.execute("TRUNCATE system_event RESTART IDENTITY")
    await there.access.revoke_key(minted.record.id)

    await shut_out(gate, minted, here, clock)


async def test_a_key_that_was_lost_with_its_commit_lets_nobody_in(
    servers: tuple[Engine, Engine], database: asyncpg.Connection[asyncpg.Record], clock: ManualClock
) -> None:
    here, there = servers
    gate = Gate(here.access, clock, AccessSettings(required=True))
    before = await newest(database)
    minted = await a_key(there, clock)
    await followed(here, clock)
    assert not await refused(gate, minted)
    await database.execute("DELETE FROM access_key")
    await go_back(database, before)

    await looked_anew(here, clock)

    assert await refused(gate, minted)


async def test_shredded_data_keys_are_forgotten_after_commits_were_lost(
    servers: tuple[Engine, Engine], database: asyncpg.Connection[asyncpg.Record], clock: ManualClock
) -> None:
    here, there = servers
    await there.create_queue(PAYMENTS, QueueSettings(encryption_enabled=True))
    await there.push([message("1", PAYMENTS)])
    (delivery,) = (await here.pop(PopRequest(PAYMENTS))).deliveries
    assert (delivery.payload, len(here.encryption._keys)) == (b"1", 1)
    before = await newest(database)
    for depth in (2, 3, 4):
        await there.update_queue(ORDERS, QueueChanges(max_depth=depth))
    await followed(here, clock)
    await go_back(database, before)
    await there.encryption.shred(PAYMENTS.tenant, PAYMENTS.name)

    clock.advance(1)

    await until(lambda: not here.encryption._keys)


async def test_settings_of_a_queue_that_were_lost_are_not_believed(
    servers: tuple[Engine, Engine], database: asyncpg.Connection[asyncpg.Record], clock: ManualClock
) -> None:
    here, there = servers
    before = await newest(database)
    await there.update_queue(ORDERS, QueueChanges(encryption_enabled=True))
    await followed(here, clock)
    await until(lambda: here.encryption.seals(ORDERS))
    await database.execute("UPDATE queue SET encryption_enabled = false")
    await go_back(database, before)

    await looked_anew(here, clock)

    await until(lambda: not here.encryption.seals(ORDERS))


async def test_another_timeline_is_noticed_though_no_change_was_lost(
    servers: tuple[Engine, Engine], database: asyncpg.Connection[asyncpg.Record], clock: ManualClock
) -> None:
    """Commits may be lost that told nobody, such as the queue that a push made."""
    here, _ = servers
    await followed(here, clock)
    await database.execute("CREATE OR REPLACE FUNCTION timeline() RETURNS text LANGUAGE sql AS $$ SELECT '00000002' $$")

    await looked_anew(here, clock)


async def test_who_has_read_everything_goes_on_when_old_changes_were_swept(
    servers: tuple[Engine, Engine], empty_tables_dsn: str, clock: ManualClock
) -> None:
    """The newest change stays, so that its place can be told from that of another one."""
    store = PostgresStore(empty_tables_dsn)
    await store.open()
    try:
        position = (await store.system_events(None)).position
        clock.advance(3 * 86_400)
        await store.sweep(clock.now(), 1_000)
        idle = await store.system_events(position)
        assert (idle.complete, idle.position, idle.events) == (True, position, [])

        await servers[1].update_queue(ORDERS, QueueChanges(max_depth=7))
        found = await store.system_events(position)
        assert (found.complete, [event.kind for event in found.events]) == (True, [SystemEventKind.QUEUE])
    finally:
        await store.close()


async def test_a_store_whose_clock_is_put_right_is_no_other_store(empty_tables_dsn: str) -> None:
    """And what the clock stamped that was ahead is swept, once what came after it is old."""
    store, clock = PostgresStore(empty_tables_dsn), ManualClock()
    await store.open()
    try:
        await store.create_queue(ORDERS, QueueSettings(), clock.now())
        clock.advance(10 * 365 * 86_400)
        await store.put_right(clock.now(), 1_000)
        for depth in (1, 2, 3):
            await store.update_queue(ORDERS, QueueChanges(max_depth=depth), clock.now())
        position = (await store.system_events(None)).position

        clock.put_back(10 * 365 * 86_400)
        for _ in range(2):
            while (await store.put_right(clock.now(), 1_000)).more:
                pass
            clock.advance(601)
        found = await store.system_events(position)
        assert (found.complete, found.position) == (True, position)

        for depth in (4, 5):
            await store.update_queue(ORDERS, QueueChanges(max_depth=depth), clock.now())
        clock.advance(2 * 86_400)
        await store.sweep(clock.now(), 1)
        async with store.pool.connection() as connection:
            left = await connection.fetchval("SELECT array_agg(position ORDER BY position) FROM system_event")
        newest = (await store.system_events(None)).position.number
        assert left == list(range(left[0], newest + 1))
        while (await store.sweep(clock.now(), 1)).more:
            pass
        async with store.pool.connection() as connection:
            assert await connection.fetchval("SELECT count(*) FROM system_event") == 1
    finally:
        await store.close()


@pytest.fixture
async def opened(empty_tables_dsn: str, clock: ManualClock) -> AsyncIterator[tuple[Opened, Opened]]:
    async with AsyncExitStack() as stack:
        here, there = [
            await stack.enter_async_context(open_server(empty_tables_dsn, clock=clock, environment={}))
            for _ in range(2)
        ]
        yield here, there


async def test_an_app_that_was_lost_is_not_taken_for_the_one_that_got_its_revision(
    opened: tuple[Opened, Opened], database: asyncpg.Connection[asyncpg.Record], clock: ManualClock
) -> None:
    here, there = opened
    spec: Callable[[str], str] = lambda queue: f"app Shop {{ queue {queue} {{}} }}"  # noqa: E731 - short
    await apply(there.engine, there.catalogue, load(spec("Lost"), "test.skep"))
    await here.catalogue.load()
    assert here.catalogue.queue(QueueKey("Lost")) is not None
    revision = await database.fetchval("SELECT revision FROM app_revision")
    document = await database.fetchval("SELECT document FROM app")
    kept = document.replace(b"Lost", b"Kept") if isinstance(document, bytes) else document.replace("Lost", "Kept")
    await database.execute("UPDATE app SET document = $1, applied_at = applied_at + 1", kept)
    assert await database.fetchval("SELECT revision FROM app_revision") == revision

    here.engine.caches.missed()
    await here.catalogue.load()

    assert here.catalogue.queue(QueueKey("Lost")) is None
    assert here.catalogue.queue(QueueKey("Kept")) is not None
