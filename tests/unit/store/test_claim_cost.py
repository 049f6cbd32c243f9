"""A claim of operations costs the same however many wait behind one that is blocked, and finds what need not wait."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from typing import NamedTuple

import asyncpg
import pytest

from skep.clock import ManualClock
from skep.errors import Code
from skep.model.operation import ClaimedOperations, GivenBack, NewOperations, OperationKind
from skep.store.postgres import PostgresStore
from skep.store.protocol import Store
from skep.store.rules import CLAIM_HEADS, CLAIM_LOOKS, CLAIM_PASSED
from skep.store.sqlite import SqliteStore
from tests.contract.driver import Driver
from tests.contract.queueing import Ops, texts
from tests.support.postgres import PostgresServer

FEW, MANY = 2_000, 8_000
assert FEW > CLAIM_PASSED
SLACK = 60
"""Index entries, or steps by the hundred, by which a claim may differ: each search takes a few more."""

Work = Callable[[], Awaitable[None]]
Cost = Callable[[Work], Awaitable[int]]


async def enqueue(ops: Ops, partitions: list[str]) -> None:
    """An operation for each, in order, in a few calls."""
    driver = ops.driver
    for start in range(0, len(partitions), 1_000):
        batches = [
            driver.batch(driver.message(str(n), partition=partition))
            for n, partition in enumerate(partitions[start : start + 1_000], start)
        ]
        requests = [NewOperations(OperationKind.PUSH, driver.mint.mint_many(1), push=batch) for batch in batches]
        await driver.store.enqueue(requests, driver.now)


async def block(ops: Ops) -> None:
    """Whatever can be claimed is blocked for an hour."""
    driver = ops.driver
    while (claim := await ops.claim())[1]:
        token, claimed = claim
        retry_at = driver.later(3_600)
        back = [
            GivenBack(one.position, retry_at, "busy", Code.STORE_BUSY, untried=True, blocked_at=driver.now)
            for one in claimed
        ]
        await driver.store.give_back(token, back, driver.now)


class Counted(NamedTuple):
    """A store, and what a call to it costs."""

    ops: Ops
    cost: Cost


async def on_postgres(store: PostgresStore, observer: asyncpg.Connection[asyncpg.Record]) -> Counted:
    async def read() -> int:
        async with store.pool.connection() as session:
            await session.execute("SELECT pg_stat_force_next_flush()")
        return int(
            await observer.fetchval("SELECT sum(idx_tup_read) FROM pg_stat_user_indexes WHERE relname = 'operation'")
        )

    async def cost(work: Work) -> int:
        await observer.execute("VACUUM operation")
        before = await read()
        await work()
        return await read() - before

    return Counted(_ops(store), cost)


async def on_sqlite(store: SqliteStore) -> Counted:
    steps = 0

    def step() -> bool:
        nonlocal steps
        steps += 1
        return False

    async def cost(work: Work) -> int:
        await store._write(lambda session: session.db.set_progress_handler(step, 100))
        before = steps
        await work()
        await store._write(lambda session: session.db.set_progress_handler(None, 100))
        return steps - before

    return Counted(_ops(store), cost)


@pytest.fixture(params=["sqlite", "postgres"])
def server(request: pytest.FixtureRequest) -> PostgresServer | None:
    return request.getfixturevalue("postgres_server") if request.param == "postgres" else None


@pytest.fixture
async def make(
    request: pytest.FixtureRequest, server: PostgresServer | None
) -> AsyncIterator[Callable[[], Awaitable[Counted]]]:
    async with AsyncExitStack() as made:

        async def make() -> Counted:
            if server is None:
                memory = SqliteStore(":memory:")
                await memory.open()
                made.push_async_callback(memory.close)
                return await on_sqlite(memory)
            dsn = server.create_database(template=request.getfixturevalue("tables_to_copy"))
            made.callback(server.drop_database, dsn)
            store = PostgresStore(dsn, max_connections=1)
            await store.open()
            made.push_async_callback(store.close)
            observer = await asyncpg.connect(dsn, server_settings={"search_path": "skep"})
            made.push_async_callback(observer.close)
            return await on_postgres(store, observer)

        yield make


def _ops(store: Store) -> Ops:
    return Ops(Driver(store, ManualClock(), "tenant", checks=False))


async def test_a_claim_costs_the_same_however_many_wait_behind_a_blocked_one(
    make: Callable[[], Awaitable[Counted]],
) -> None:
    costs = []
    for followers in (FEW, MANY):
        ops, cost = await make()
        await enqueue(ops, ["blocked"])
        await block(ops)
        await enqueue(ops, ["blocked"] * followers)
        await enqueue(ops, [f"free {n}" for n in range(20)])
        found: list[str] = []

        async def claim(ops: Ops = ops, found: list[str] = found) -> None:
            _, claimed = await ops.claim(operations=10)
            found += texts(claimed)

        costs.append(await cost(claim))
        await claim()
        assert sorted(found, key=int) == [str(n) for n in range(20)]

    assert abs(costs[1] - costs[0]) <= SLACK, costs


async def test_more_blocked_partitions_than_one_look_takes_in_do_not_hide_the_others(
    make: Callable[[], Awaitable[Counted]],
) -> None:
    ops, _ = await make()
    await enqueue(ops, [f"blocked {n:05}" for n in range(2 * CLAIM_HEADS)])
    await block(ops)
    await enqueue(ops, [partition for n in range(5) for partition in (f"free {n}", f"free {n}")])

    taken: list[str] = []
    for _ in range(4):
        token, claimed = await ops.claim()
        taken += texts(claimed)
        await ops.perform(token, claimed)

    assert sorted(taken, key=int) == [str(n) for n in range(10)]


async def test_one_claim_costs_the_same_however_many_partitions_are_blocked(
    make: Callable[[], Awaitable[Counted]],
) -> None:
    costs = []
    for partitions in (CLAIM_LOOKS * CLAIM_HEADS + 1, 2 * CLAIM_LOOKS * CLAIM_HEADS - 1):
        ops, cost = await make()
        await enqueue(ops, [f"blocked {n:05}" for n in range(partitions)])
        await block(ops)
        claims: list[ClaimedOperations] = []

        async def claim(ops: Ops = ops, claims: list[ClaimedOperations] = claims) -> None:
            claims.append((await ops.claim_once())[1])

        costs.append(await cost(claim))
        while claims[-1].more:
            await claim()
        assert [claim.more for claim in claims] == [True, False]
        assert not any(claim.operations for claim in claims)

    assert abs(costs[1] - costs[0]) <= SLACK, costs


async def test_I13_a_look_by_partition_takes_no_follower_before_its_head(
    make: Callable[[], Awaitable[Counted]],
) -> None:
    ops, _ = await make()
    await enqueue(ops, ["blocked"])
    await block(ops)
    await enqueue(ops, ["blocked"] * (CLAIM_PASSED + 1))
    await enqueue(ops, ["a", "b", "a", "b", "a"])

    _, first = await ops.claim(operations=2)
    _, second = await ops.claim(operations=2)
    _, third = await ops.claim(operations=2)

    # Partition by partition: of each the first ones, and none twice. What follows waits for them.
    assert [[(one.partition, text) for one, text in zip(claim, texts(claim), strict=True)] for claim in (first, second)] == [
        [("a", "0"), ("a", "2")], [("b", "1"), ("b", "3")],
    ]  # fmt: skip
    assert third == []
