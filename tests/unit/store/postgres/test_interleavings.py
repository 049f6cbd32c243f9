"""Two calls at once, one held at the very place where the other could get between its steps."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import asyncpg
import pytest

from skep.errors import Code
from skep.model import Seq
from skep.model.transaction import Transaction
from skep.store.postgres import connection as connections
from skep.store.postgres import dead_letters
from tests.contract.driver import Driver, seqs

ROUNDS = 6


async def test_I10_rows_that_others_hold_do_not_lead_past_the_attempts_of_the_next(
    driver: Driver, other: asyncpg.Connection[asyncpg.Record]
) -> None:
    await driver.create(max_attempts=1)
    await driver.push("held by another", partition="a")
    driver.clock.advance(1)
    await driver.push("tried once", partition="b")
    await driver.pop(partition="b", lease_seconds=1)
    driver.clock.advance(5)

    async with other.transaction():
        await other.execute("SELECT 1 FROM partition_lease WHERE partition = 'a' FOR UPDATE")
        popped = await driver.pop(batch=1)

    assert popped == []
    assert seqs(await driver.pop()) == [1]
    assert [letter.attempts for letter in await driver.dead()] == [1]


@pytest.mark.parametrize(
    ("hold", "new"),
    [
        ("SELECT 1 FROM partition_lease WHERE partition = 'theirs' FOR UPDATE", ["mine", "theirs"]),
        ("SELECT 1 FROM consumer_group FOR UPDATE", ["mine"]),
        ("SELECT pg_advisory_xact_lock(1936418164, id) FROM consumer_group", ["mine"]),
    ],
)
async def test_acks_for_who_waits_wait_for_nothing_once_they_hold_leases(
    driver: Driver, other: asyncpg.Connection[asyncpg.Record], hold: str, new: list[str]
) -> None:
    """Another has a lease row for which something new is there, or the group: who waits looks by itself."""
    await driver.push("1", partition="mine")
    await driver.push("2", partition="theirs")
    mine, _ = await driver.pop_one(), await driver.pop_one()
    for partition in new:
        await driver.push("new", partition=partition)

    async with other.transaction():
        await other.execute(hold)
        (result,), popped = await driver.store.settle_and_pop([mine.settlement()], [driver.request()], driver.now)

    assert (result.status, result.frees, popped) == ("completed", True, [None])
    assert seqs(await driver.pop()) == [3]


class HeldConnection:
    """A connection that waits at a gate after one statement."""

    def __init__(self, connection: Any, statement: str) -> None:
        self._connection = connection
        self._statement = statement
        self.reached = asyncio.Event()
        self.gate = asyncio.Event()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._connection, name)

    async def execute(self, statement: str, *arguments: Any) -> Any:
        status = await self._connection.execute(statement, *arguments)
        if statement == self._statement:
            self.reached.set()
            await self.gate.wait()
        return status


async def test_a_group_made_beside_a_purge_gets_every_message_once(
    driver: Driver, monkeypatch: pytest.MonkeyPatch
) -> None:
    await driver.push("purged", "kept")
    await driver.reject(*await driver.pop())
    held: list[HeldConnection] = []
    remove = dead_letters.remove
    purging_now = asyncio.Event()

    async def held_remove(connection: Any, queue: Any, which: Sequence[int], *rest: Any) -> None:
        held.append(HeldConnection(connection, dead_letters.SQL["withdraw"]))
        purging_now.set()
        await remove(held[0], queue, which, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(dead_letters, "remove", held_remove)
    purging = asyncio.create_task(driver.store.purge(driver.dead_filter(seqs=[1]), 1, driver.now))
    async with asyncio.timeout(10):
        await purging_now.wait()
        await held[0].reached.wait()
    popping = asyncio.create_task(driver.store.pop([driver.request("q.dead", partition="nobody's")], driver.now))
    await asyncio.wait([popping], timeout=0.5)
    held[0].gate.set()
    await asyncio.gather(purging, popping)

    delivered = await driver.pop("q.dead")
    await driver.ack(*delivered)
    await driver.push("pushed later")
    await driver.reject(*await driver.pop())
    for _ in range(3):
        more = await driver.pop("q.dead", batch=1)
        await driver.ack(*more)
        delivered += more

    assert seqs(delivered) == [2, 3]
    stats = await driver.stats("q.dead")
    assert (stats.pushed, stats.completed, stats.expired) == (2, 2, 0), "what was purged before was never there for it"


@pytest.fixture
def no_second_try(monkeypatch: pytest.MonkeyPatch) -> None:
    """A deadlock fails at once, rather than being hidden by another try."""
    monkeypatch.setattr(connections, "TRIES", 1)


@pytest.mark.usefixtures("no_second_try")
async def test_transactions_that_push_crosswise_do_not_wait_for_each_other(driver: Driver) -> None:
    await driver.create("a")
    await driver.create("b")

    async def transact(*names: str) -> None:
        for _ in range(ROUNDS):
            pushes = [Transaction([], driver.batch(driver.message("x", name))) for name in names]
            await driver.store.transact(pushes, driver.now)

    await asyncio.gather(transact("a", "b"), transact("b", "a"))

    assert (await driver.queue_stats("a")).last_seq == (await driver.queue_stats("b")).last_seq == 2 * ROUNDS


@pytest.mark.usefixtures("no_second_try")
async def test_a_purge_and_retention_do_not_wait_for_each_other(driver: Driver) -> None:
    await driver.create("q.dead", retention_seconds=5)
    for _ in range(ROUNDS):
        await driver.push(*map(str, range(50)))
        await driver.reject(*await driver.pop())
        await driver.ack(*await driver.pop("q.dead"))
        driver.clock.advance(10)

        await asyncio.gather(
            driver.store.purge(driver.dead_filter(), 100, driver.now),
            driver.store.retain(driver.key("q.dead"), driver.now, 1000),
        )

        assert await driver.dead() == []


@pytest.mark.usefixtures("no_second_try")
async def test_a_replay_and_pushes_to_both_its_queues_do_not_wait_for_each_other(driver: Driver) -> None:
    await driver.create("q.dead")
    await driver.create("q")

    async def push() -> None:
        for _ in range(ROUNDS):
            batch = driver.batch(driver.message("x", "q.dead"), driver.message("y", "q"))
            await driver.store.push([batch], driver.now)

    for _ in range(ROUNDS):
        await driver.push(*map(str, range(50)))
        await driver.reject(*await driver.pop())
        ids = driver.mint.mint_many(100)
        await asyncio.gather(driver.store.replay(driver.dead_filter(), ids, Seq(2**60), driver.now), push())
        await driver.ack(*await driver.pop())

        assert await driver.dead() == []


async def test_who_begins_to_wait_waits_for_a_push_that_could_not_know_of_it(
    driver: Driver, other: asyncpg.Connection[asyncpg.Record], dsn: str
) -> None:
    queue = await driver.create()
    observer = await asyncpg.connect(dsn)
    async with other.transaction():
        # What a push does first: take the log's lock, and look whether someone waits.
        await other.execute("SELECT * FROM open_logs($1, $2, $3)", [driver.tenant], [queue.key.name], driver.now)
        watching = asyncio.ensure_future(driver.store.watch([queue.key], driver.later(60)))
        while not watching.done() and not await observer.fetchval(
            "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted"
        ):
            pass

        assert not watching.done()
    await watching
    await observer.close()


@pytest.mark.usefixtures("no_second_try")
async def test_effects_and_receipts_taken_crosswise_do_not_wait_for_each_other(driver: Driver) -> None:
    """New and known entities, receipts of transactions and of pushes, and the log of the queue, all wanted in all orders."""
    await driver.create()
    names = ["a", "b", "c", "d"]
    kept: list[int] = []

    async def transact(order: list[str], together: int) -> None:
        for round_ in range(ROUNDS):
            known = await driver.store.records.entities([driver.entity(name) for name in order])
            transactions = []
            for start in range(0, len(order), together):
                some = [
                    effect
                    for name, state in list(zip(order, known, strict=True))[start : start + together]
                    for effect in (
                        driver.effect(
                            state.version if state else 0, 1, id_=name, state=int(state.state) if state else 0
                        ),
                        driver.effect(0, 1, id_=f"{name}{round_}"),
                    )
                ]
                receipts = [driver.receipt(f"{name}{round_}") for name in order[start : start + together]]
                transactions.append(Transaction([], driver.batch(driver.message("x")), some, receipts))
            outcomes = await driver.store.transact(transactions, driver.now)
            kept.append(sum(outcome.committed for outcome in outcomes))

    async def push(order: list[str]) -> None:
        for round_ in range(ROUNDS):
            keys = [f"{name}{round_}" for name in order]
            batches = [driver.batch(driver.message("p"), receipt=driver.receipt(key)) for key in keys]
            outcomes = await driver.store.push(batches, driver.now)
            kept.append(sum(outcome.recorded is None for outcome in outcomes))

    back = names[::-1]
    await asyncio.gather(
        transact(names, 4), transact(back, 1), push(back), transact(back, 2), push(names), transact(names[2:] + names[:2], 1)
    )  # fmt: skip

    await driver.counters(*names)
    assert (await driver.queue_stats()).last_seq == sum(kept)
    assert None not in await driver.recorded(*(f"{name}{round_}" for name in names for round_ in range(ROUNDS)))


@pytest.mark.usefixtures("no_second_try")
async def test_I15_an_entity_that_another_is_making_is_waited_for(
    driver: Driver, other: asyncpg.Connection[asyncpg.Record]
) -> None:
    made = other.transaction()
    await made.start()
    await other.execute(
        "INSERT INTO entity (tenant, type, id, version, created_at, updated_at, state) VALUES ($1, 'Counter', '1', 1, 1, 1, '1')",
        driver.tenant,
    )

    waiting = asyncio.ensure_future(
        driver.transact([], [], effects=[driver.effect(0, 5)], receipts=[driver.receipt("k")])
    )
    async with asyncio.timeout(10):
        while not await other.fetchval("SELECT EXISTS (SELECT 1 FROM pg_locks WHERE NOT granted)"):
            assert not waiting.done()
    await made.commit()

    assert (await waiting).conflict is Code.ENTITY_CHANGED
    assert await driver.recorded("k") == [None]
