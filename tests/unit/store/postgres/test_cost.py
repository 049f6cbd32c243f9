"""The cost law by PostgreSQL's own counters: what a call reads does not grow with the backlog, the partitions or the past.

Each verb is called a few times on a small queue and on one ten times as large. The index entries and rows that it read are
compared, full scans are forbidden. No clock is involved, so the answer is the same on any machine.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from typing import Any

import asyncpg
import pytest
import pytest_asyncio

from skep.clock import ManualClock
from skep.model import Delivery, Ordering, Outcome, Retry, Seq
from skep.store.postgres import PostgresStore
from tests.contract.driver import Driver
from tests.support.postgres import PostgresServer
from tests.unit.store.postgres.conftest import TENANTS

SMALL, LARGE = 200, 2_000
CALLS = 5
TABLES = "message, partition_lease, set_lease, consumer_group, group_counter, queue, dedup, scheduled, lease_history"
SLACK = 15.0
"""Index entries per call by which the large one may differ: each binary search takes a few steps more."""

MAY_BE_SCANNED = {"sweep": {"watcher", "queue"}}
"""Once a minute every queue and every watcher has its turn."""

FILLED = """
SELECT string_agg(oid::regclass::text, ', ') FROM pg_class
WHERE relnamespace = 'skep'::regnamespace AND relkind = 'r' AND relname NOT IN ('migration', 'app_revision', 'clock')
"""

Work = Callable[[Driver], Awaitable[None]]


class Counted:
    """A store in one session, whose counters can be read after each call."""

    def __init__(self, store: PostgresStore, connection: asyncpg.Connection[asyncpg.Record]) -> None:
        self.store = store
        self.connection = connection
        self.driver = Driver(store, ManualClock(), next(TENANTS), checks=False)

    async def cost(self, work: Work, vacuum: bool = True) -> float:
        """Index entries that one call reads, on average over a few, when no dead rows are in the way."""
        await work(self.driver)
        if vacuum:
            await self.connection.execute(f"VACUUM {TABLES}")
        before = await self._read()
        for _ in range(CALLS):
            await work(self.driver)
        after = await self._read()
        scanned = {name for name in after if after[name][1] > before[name][1]}
        assert scanned <= MAY_BE_SCANNED.get(work.__name__, set()), f"full scans in {work.__name__}"
        return sum(after[name][0] - before[name][0] for name in after) / CALLS

    async def _read(self) -> dict[str, tuple[int, int]]:
        async with self.store.pool.connection() as session:
            await session.execute("SELECT pg_stat_force_next_flush()")
        rows = await self.connection.fetch(
            "SELECT t.relname, t.seq_scan, (SELECT coalesce(sum(i.idx_tup_read), 0)::bigint FROM pg_stat_user_indexes i WHERE i.relid = t.relid)"
            " AS entries FROM pg_stat_user_tables t WHERE t.schemaname = 'skep'"
        )
        return {row["relname"]: (row["entries"], row["seq_scan"]) for row in rows}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def stores(
    postgres_server: PostgresServer, tables_to_copy: str
) -> AsyncIterator[list[tuple[PostgresStore, asyncpg.Connection[asyncpg.Record]]]]:
    """Two for all tests: one with little in it, one with much. Each has a session beside it."""
    async with AsyncExitStack() as made:
        stores = []
        for _ in range(2):
            dsn = postgres_server.create_database(template=tables_to_copy)
            made.callback(postgres_server.drop_database, dsn)
            store = PostgresStore(dsn, max_connections=1)
            await store.open()
            made.push_async_callback(store.close)
            connection = await asyncpg.connect(dsn, server_settings={"search_path": "skep"})
            made.push_async_callback(connection.close)
            stores.append((store, connection))
        yield stores


@pytest_asyncio.fixture(loop_scope="module")
async def sizes(stores: list[tuple[PostgresStore, asyncpg.Connection[asyncpg.Record]]]) -> tuple[Counted, Counted]:
    """The one that is to be small and the one that is to be large, both empty: as new ones are, to those who plan."""
    for _, connection in stores:
        await connection.execute(f"TRUNCATE {await connection.fetchval(FILLED)}; DELETE FROM pg_statistic")
        await connection.execute("SELECT pg_stat_force_next_flush()")  # no scan of this counts later
    small, large = [Counted(store, connection) for store, connection in stores]
    return small, large


async def fill(driver: Driver, size: int, partitions: int, **fields: Any) -> None:
    """A backlog of ``size`` messages."""
    for start in range(0, size, 1000):
        await driver.push_messages(
            *(
                driver.message(str(n), partition=f"p{n % partitions}", **fields)
                for n in range(start, min(size, start + 1000))
            )
        )


async def discover(driver: Driver) -> None:
    """Let the group walk to the end of the log, which happens once per message, so that it does not happen later."""
    await driver.pop(partition="nobody's")


async def many_partitions(driver: Driver, size: int) -> None:
    """As many partitions as messages: a tenth settled, a tenth in flight, the rest ready."""
    await driver.create()
    await fill(driver, size, partitions=size)
    await discover(driver)
    await driver.ack(*await driver.pop(batch=size // 10))
    await driver.pop(batch=size // 10)


async def few_partitions(driver: Driver, size: int) -> None:
    """Two deep partitions, the first tenth of them settled."""
    await driver.create(max_depth=1_000_000, max_attempts=0)
    await fill(driver, size, partitions=2)
    await discover(driver)
    await driver.ack(*await driver.pop(batch=size // 10))


async def unordered(driver: Driver, size: int) -> None:
    """Sets, some of them settled. A pop looks over all that were discovered, which is at most one stretch of the log ahead."""
    size *= 10
    await driver.create(ordering=Ordering.UNORDERED)
    await fill(driver, size, partitions=2)
    await driver.ack(*await driver.pop(batch=200))


async def _past(driver: Driver, size: int) -> None:
    await fill(driver, size, partitions=20)
    while await driver.pop(batch=1000, auto_ack=True):
        pass
    await fill(driver, 400, partitions=20)


async def settled(driver: Driver, size: int) -> None:
    """A long past, all of it settled, and a little to do."""
    await driver.create()
    await _past(driver, size)


async def settled_unordered(driver: Driver, size: int) -> None:
    await driver.create(ordering=Ordering.UNORDERED)
    await _past(driver, size)


async def schedule(driver: Driver, size: int) -> None:
    """Messages that are due one after the other."""
    await driver.create()
    for start in range(0, size, 1000):
        numbers = range(start, min(size, start + 1000))
        await driver.push_messages(
            *(driver.message("x", transaction_id=f"t{n}", deliver_at=driver.later(1 + n)) for n in numbers)
        )


async def old_log(driver: Driver, size: int) -> None:
    """A log that is all settled and ages bit by bit."""
    await driver.create(retention_seconds=100)
    for _ in range(20):
        await fill(driver, size // 20, partitions=10)
        driver.clock.advance(10)
    while await driver.pop(auto_ack=True):
        pass
    driver.clock.advance(50)


async def many_queues(driver: Driver, size: int) -> None:
    """Queues beside ours, some of them deleted."""
    await driver.push_messages(*(driver.message("x", f"q{n}") for n in range(size // 10)))
    for n in range(0, size // 10, 4):
        await driver.delete(f"q{n}")
    await driver.create()


async def many_dead_letters(driver: Driver, size: int) -> None:
    """A long log, of which much was rejected."""
    await driver.create(max_attempts=0)
    await fill(driver, size, partitions=100)
    await discover(driver)
    await driver.reject(*await driver.pop(batch=size // 2))


async def deleted_queue(driver: Driver, size: int) -> None:
    """A queue that is gone and yet to be swept, with messages, keys, schedule and leases."""
    await driver.create()
    await fill(driver, size, partitions=size)
    await discover(driver)
    await driver.push_messages(
        *(driver.message("x", transaction_id=f"t{n}", deliver_at=driver.later(10)) for n in range(size))
    )
    await driver.delete()


async def push(driver: Driver) -> None:
    await driver.push("1", "2", "3")


async def push_with_keys(driver: Driver) -> None:
    key = driver.mint.mint().hex()
    await driver.push_messages(*(driver.message("x", transaction_id=f"{key}{n}") for n in range(3)))


async def pop(driver: Driver) -> None:
    assert len(await driver.pop(batch=10)) == 10


async def pop_one_partition(driver: Driver) -> None:
    if not await driver.pop(batch=2, partition="p1"):
        driver.clock.advance(1000)


async def pop_and_ack(driver: Driver) -> None:
    held = await driver.pop(batch=10)
    assert len(held) == 10
    await driver.ack(*held)


async def pop_and_ack_leases(driver: Driver) -> None:
    """By a group that nothing else happened to."""
    held = await driver.pop(batch=10, group="leases")
    assert len(held) == 10
    assert sum(result.messages for result in await driver.ack_leases(*held)) == 10


async def pop_and_nack(driver: Driver) -> None:
    held = await driver.pop(batch=2)
    assert held
    await driver.settle(*(driver.settlement(d, Outcome.NACK, retry=Retry.NOW) for d in held))


async def pop_and_renew(driver: Driver) -> None:
    held: list[Delivery] = await driver.pop(batch=1)
    assert (await driver.renew(held[0])).deadline is not None


async def promote(driver: Driver) -> None:
    driver.clock.advance(10)
    assert (await driver.promote(limit=10)).done == 10


async def retain(driver: Driver) -> None:
    assert (await driver.retain(limit=10)).done == 10


async def expire(driver: Driver) -> None:
    await driver.expire(limit=10)


async def sweep(driver: Driver) -> None:
    await driver.store.sweep(driver.now, 10)


async def push_pop_and_ack(driver: Driver) -> None:
    await driver.push("1", "2", "3")
    held = await driver.pop(batch=3)
    assert len(held) == 3
    await driver.ack(*held)


async def watch(driver: Driver) -> None:
    await driver.store.watch([driver.key()], driver.later(10))


async def reject(driver: Driver) -> None:
    (held,) = await driver.pop(batch=1, max_partitions=1)
    await driver.reject(held)


async def look_at_dead_letters(driver: Driver) -> None:
    wanted = driver.dead_filter(seqs=[3])
    assert len(await driver.store.dead_letters(driver.dead_filter(), None, 10)) == 10
    assert len(await driver.store.dead_letters(wanted, Seq(2), 1)) == 1


async def figures(driver: Driver) -> None:
    assert (await driver.queue_stats()).dead_letters > 10


async def replay(driver: Driver) -> None:
    assert len(await driver.replay(limit=2)) == 2


async def purge(driver: Driver) -> None:
    assert await driver.purge(limit=2) == 2


async def trace(driver: Driver) -> None:
    driver.clock.advance(10)
    trace_id = driver.mint.mint()
    await driver.push("x", trace_id=trace_id)
    assert len(await driver.store.trace(driver.tenant, trace_id)) == 1


Preparation = Callable[[Driver, int], Awaitable[None]]
CASES: dict[Preparation, list[Work]] = {
    many_partitions: [push, push_with_keys, pop, pop_one_partition, pop_and_ack, pop_and_nack, pop_and_renew, expire, sweep],
    few_partitions: [push, push_with_keys, pop_and_ack, pop_and_nack, pop_one_partition, pop_and_ack_leases],
    unordered: [push, pop_and_ack, pop_and_nack, pop, pop_and_renew, pop_and_ack_leases],
    settled: [push, pop_and_ack, pop_and_nack, pop_and_renew, pop],
    settled_unordered: [push, pop_and_ack, pop_and_nack, pop_and_renew, pop],
    many_queues: [push_pop_and_ack, push_with_keys, watch],
    many_dead_letters: [push, pop, reject, look_at_dead_letters, figures, purge, replay, trace],
    deleted_queue: [sweep],
    schedule: [promote],
    old_log: [retain],
}  # fmt: skip


@pytest.mark.parametrize("prepare", CASES, ids=lambda prepare: prepare.__name__)
async def test_a_call_reads_no_more_when_everything_is_ten_times_as_large(
    sizes: tuple[Counted, Counted], prepare: Preparation
) -> None:
    small, large = sizes
    await prepare(small.driver, SMALL)
    await prepare(large.driver, LARGE)
    grown = {}
    for work in CASES[prepare]:
        before, after = [await counted.cost(work) for counted in (small, large)]
        if after > before + SLACK:
            grown[work.__name__] = (before, after)

    assert grown == {}, "index entries a call, before and after"


async def many_small_groups(driver: Driver, size: int) -> None:
    """A queue for every message, each with something in flight and something to do."""
    names = [f"q{n}" for n in range(size // 10)]
    for _ in range(2):
        await driver.push_messages(*(driver.message("x", name) for name in names))
        for name in names:
            await driver.pop(name, batch=1)
    await driver.create()


UNSTEADY: dict[Preparation, list[Work]] = {
    many_small_groups: [push_pop_and_ack],
    many_partitions: [push, pop, pop_one_partition, pop_and_ack, pop_and_nack, pop_and_renew],
    settled_unordered: [push, pop_and_ack, pop_and_nack, pop_and_renew],
}


@pytest.mark.parametrize("prepare", UNSTEADY, ids=lambda prepare: prepare.__name__)
async def test_a_call_reads_no_more_though_the_tables_were_analyzed_when_all_was_settled(
    sizes: tuple[Counted, Counted], prepare: Preparation
) -> None:
    grown = {}
    small, large = sizes
    for counted, size in ((small, SMALL), (large, LARGE)):
        await counted.driver.create("drained")
        await counted.driver.push_messages(
            *(counted.driver.message("x", "drained", partition=f"p{n}", transaction_id=f"t{n}") for n in range(200))
        )
        await counted.driver.ack(*await counted.driver.pop("drained", batch=200))
        await counted.connection.execute(f"ANALYZE {TABLES}")
        await prepare(counted.driver, size)
    for work in UNSTEADY[prepare]:
        before, after = [await counted.cost(work, vacuum=False) for counted in (small, large)]
        if after > before + SLACK:
            grown[work.__name__] = (before, after)

    assert grown == {}, "index entries a call, before and after"
