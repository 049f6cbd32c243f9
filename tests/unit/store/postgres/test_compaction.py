"""Compaction: it keeps all state, waits for nobody long, and nobody who runs beside it sees the tables empty."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, TypeAlias

import asyncpg
import pytest
import pytest_asyncio
from structlog.testing import capture_logs

from skep.model import Delivery, MessageState, Ordering, PushStatus, SettleStatus
from skep.store.postgres import PostgresStore
from tests.contract.driver import Driver, check_account, seqs

Session: TypeAlias = "asyncpg.Connection[asyncpg.Record]"
COMPACTED = ("partition_lease", "set_lease", "consumer_group", "group_counter")
CHURN = 25_000
"""More dead rows than compaction lets be, whoever holds a snapshot."""


async def contents(session: Session) -> dict[str, list[str]]:
    """Every row of the tables that are compacted."""
    return {
        table: sorted(row[0] for row in await session.fetch(f"SELECT t::text FROM {table} t")) for table in COMPACTED
    }


async def busy_state(driver: Driver) -> list[Delivery]:
    """Groups, leases in every state, and sets; the leases that are live."""
    await driver.create()
    await driver.create("u", ordering=Ordering.UNORDERED)
    for queue in ("q", "u"):
        for partition in "abcd":
            await driver.push("1", "2", "3", queue=queue, partition=partition)
        await driver.pop(queue, group="other", batch=2)
        await driver.ack(*await driver.pop(queue, batch=2))
        await driver.nack(*await driver.pop(queue, batch=2))
    return [delivery for queue in ("q", "u") for delivery in await driver.pop(queue, batch=3)]


async def flush_statistics(store: PostgresStore) -> None:
    """Let the counters show what this store's session did."""
    async with store.pool.connection() as connection:
        await connection.execute("SELECT pg_stat_force_next_flush()")


async def churn(session: Session) -> None:
    """Leave many dead rows behind, as leases that come and go do while someone holds an old snapshot."""
    await session.execute("ALTER TABLE partition_lease SET (autovacuum_enabled = off)")
    await session.execute(
        f"""INSERT INTO partition_lease (partition, queue_id, group_id, delivered_seq, pending, ready_at, oldest_at, newest_at)
            SELECT 'p' || n, 0, 0, 0, 1, 1, 1, 1 FROM generate_series(1, {CHURN}) n"""
    )
    await session.execute("DELETE FROM partition_lease WHERE group_id = 0")
    await session.execute("SELECT pg_stat_force_next_flush()")


async def blocked(session: Session, count: int) -> None:
    """Return once that many of the store's sessions wait for a lock."""
    waiting = "SELECT count(*) FROM pg_stat_activity WHERE application_name LIKE 'skep %' AND wait_event_type = 'Lock'"
    while await session.fetchval(waiting) < count:
        await session.execute("SELECT pg_stat_clear_snapshot()")


@pytest_asyncio.fixture(loop_scope="module")
async def pinned(store: PostgresStore, dsn: str) -> Any:
    """An old snapshot that something else holds open."""
    connection = await asyncpg.connect(dsn)
    await connection.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
    await connection.fetchval("SELECT count(*) FROM pg_class")
    yield connection
    connection.terminate()


async def test_I12_compaction_keeps_every_row_and_every_account(driver: Driver, other: Session) -> None:
    live = await busy_state(driver)
    rows = await contents(other)
    accounts = [await driver.queue_stats(queue) for queue in ("q", "u")]
    assert all(rows.values())

    await other.execute("SELECT compact()")

    assert await contents(other) == rows
    assert [await driver.queue_stats(queue) for queue in ("q", "u")] == accounts
    await driver.check_accounts()
    assert {result.status for result in await driver.ack(*live)} == {SettleStatus.COMPLETED}


async def test_ids_go_on_after_a_compaction(driver: Driver, other: Session) -> None:
    await busy_state(driver)
    known = await other.fetchval("SELECT max(id) FROM consumer_group")
    sets = await other.fetchval("SELECT max(id) FROM set_lease")

    await other.execute("SELECT compact()")

    await driver.pop(group="a new one")
    await driver.pop("u", group="a new one")
    assert await other.fetchval("SELECT max(id) FROM consumer_group") > known
    assert await other.fetchval("SELECT max(id) FROM set_lease") > sets


async def test_maintaining_shrinks_the_tables_under_a_pinned_snapshot(
    driver: Driver, store: PostgresStore, other: Session, pinned: Session
) -> None:
    (delivery, *_) = await busy_state(driver)
    assert not await other.fetchval("SELECT wants_compaction()")
    await churn(other)
    assert await other.fetchval("SELECT wants_compaction()")
    size = await other.fetchval("SELECT pg_total_relation_size('partition_lease')")
    rows = await contents(other)

    await store.maintain()

    assert await other.fetchval("SELECT pg_total_relation_size('partition_lease')") < size / 4
    assert await contents(other) == rows
    await flush_statistics(store)
    await other.execute("SELECT pg_stat_clear_snapshot()")
    assert not await other.fetchval("SELECT wants_compaction()")
    await driver.check_accounts()
    assert [result.status for result in await driver.ack(delivery)] == [SettleStatus.COMPLETED]


async def test_a_table_in_use_postpones_compaction(
    driver: Driver, store: PostgresStore, other: Session, pinned: Session
) -> None:
    await busy_state(driver)
    await churn(other)
    size = await other.fetchval("SELECT pg_total_relation_size('partition_lease')")
    await other.execute("BEGIN; LOCK TABLE partition_lease IN ACCESS SHARE MODE")

    with capture_logs() as logs:
        await store.maintain()

    assert [entry["event"] for entry in logs] == ["compaction postponed"]
    await other.execute("COMMIT")
    await store.maintain()
    assert await other.fetchval("SELECT pg_total_relation_size('partition_lease')") < size / 4


async def test_I7_what_is_written_while_a_compaction_waits_is_kept(driver: Driver, other: Session) -> None:
    await driver.push("1", "2")
    await driver.ack(await driver.pop_one())
    store = driver.store
    assert isinstance(store, PostgresStore)
    writing = other.transaction()
    await writing.start()
    await other.execute("UPDATE group_counter SET completed = 7")
    compacting = asyncio.ensure_future(store.pool.once(lambda c: c.execute("SELECT compact()")))
    while not await other.fetchval("SELECT count(*) FROM pg_locks WHERE NOT granted"):
        assert not compacting.done()
    await writing.commit()
    await compacting

    assert await other.fetchval("SELECT completed FROM group_counter") == 7


async def test_two_servers_that_compact_at_once_do_no_harm(
    driver: Driver, store: PostgresStore, other: Session, pinned: Session, dsn: str
) -> None:
    await busy_state(driver)
    await churn(other)
    rows = await contents(other)
    second = PostgresStore(dsn)
    await second.open()

    await asyncio.gather(store.maintain(), second.maintain())

    assert await contents(other) == rows
    await second.close()


# beside a compaction


async def beside_compaction(session: Session, *calls: Callable[[], Awaitable[Any]]) -> list[Any]:
    """What calls answer that began while a compaction held its locks, and ended after it."""
    await session.execute("BEGIN; SELECT compact()")
    running = [asyncio.ensure_future(call()) for call in calls]
    await blocked(session, len(calls))
    await session.execute("COMMIT")
    return await asyncio.gather(*running)


async def test_a_push_beside_it_sees_how_full_the_queue_is(driver: Driver, other: Session) -> None:
    await driver.create(max_depth=5)
    await driver.push(*"12345")
    await driver.ack(*await driver.pop())

    batch = driver.batch(*(driver.message(payload) for payload in "678"))
    ((outcome,),) = await beside_compaction(other, lambda: driver.store.push([batch], driver.now))

    assert [result.status for result in outcome.results] == [PushStatus.STORED] * 3
    assert outcome.depths[driver.key()].depth == 3
    await driver.check_accounts()


async def test_a_push_to_a_full_queue_beside_it_is_refused(driver: Driver, other: Session) -> None:
    await driver.create(max_depth=5)
    await driver.push(*"12345")
    await driver.ack(*await driver.pop(batch=3))

    batch = driver.batch(*(driver.message(payload) for payload in "6789"))
    ((outcome,),) = await beside_compaction(other, lambda: driver.store.push([batch], driver.now))

    assert outcome.refused
    assert (await driver.stats()).pushed == 5


@pytest.mark.parametrize("ordering", [Ordering.PER_KEY, Ordering.UNORDERED])
async def test_I4_a_pop_beside_it_goes_on_where_its_group_is(
    driver: Driver, other: Session, ordering: Ordering
) -> None:
    await driver.create(ordering=ordering)
    await driver.push(*"12345")
    await driver.ack(*await driver.pop(batch=2))

    request = driver.request(batch=2)
    ((result,),) = await beside_compaction(other, lambda: driver.store.pop([request], driver.now))

    assert seqs(result.deliveries) == [3, 4]
    await driver.check_accounts()


async def test_I6_settling_and_renewing_beside_it_find_the_lease(driver: Driver, other: Session) -> None:
    await driver.create()
    await driver.push("1", partition="a")
    await driver.push("2", partition="b")
    one, two = await driver.pop()

    settled, nacked = await beside_compaction(
        other,
        lambda: driver.store.settle([driver.settlement(one)], driver.now),
        lambda: driver.store.settle([driver.settlement(two, retry_at=driver.now)], driver.now),
    )

    assert [settled[0].status, nacked[0].status] == [SettleStatus.COMPLETED] * 2
    await driver.check_accounts()


async def test_I12_stats_and_browsing_beside_it_see_the_accounts(driver: Driver, other: Session) -> None:
    await driver.create()
    await driver.push(*"12345")
    await driver.ack(*await driver.pop(batch=2))
    before = await driver.queue_stats()

    stats, partitions, page = await beside_compaction(
        other,
        driver.queue_stats,
        lambda: driver.store.partition_stats(driver.key(), before.groups[0].group, driver.now),
        lambda: driver.browse(group=before.groups[0].group, state=MessageState.PENDING),
    )

    assert stats == before
    check_account(stats.groups[0])
    assert [partition.pending for partition in partitions] == [3]
    assert [message.seq for message in page.messages] == [3, 4, 5]


@pytest.mark.parametrize("ordering", [Ordering.PER_KEY, Ordering.UNORDERED])
async def test_I8_retention_beside_it_keeps_what_is_unsettled(
    driver: Driver, other: Session, ordering: Ordering
) -> None:
    await driver.create(ordering=ordering, retention_seconds=10)
    await driver.push(*"12345")
    await driver.ack(*await driver.pop(batch=2))
    driver.clock.advance(100)

    (chore,) = await beside_compaction(other, lambda: driver.store.retain(driver.key(), driver.now, 100))

    assert chore.done == 2
    assert seqs(await driver.pop()) == [3, 4, 5]
    await driver.check_accounts()


async def test_chores_and_clearing_beside_it_see_the_groups(driver: Driver, other: Session) -> None:
    await driver.create(max_age_seconds=10)
    await driver.push("1", "2", "3")
    await driver.pop(batch=1, lease_seconds=1)
    driver.clock.advance(100)

    (chore,) = await beside_compaction(other, lambda: driver.store.expire(driver.key(), driver.now, 100))

    assert chore.done == 3
    assert (await driver.stats()).expired == 3
    await driver.check_accounts()
