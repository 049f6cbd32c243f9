"""Two servers on one database: whatever both do at once takes effect once."""

from __future__ import annotations

import asyncio

import pytest

from skep.clock import ManualClock
from skep.model import Ordering, PushStatus
from skep.store.postgres import PostgresStore
from tests.contract.driver import PLENTY, Driver, seqs
from tests.unit.store.postgres.conftest import TENANTS

BOTH = pytest.mark.parametrize("ordering", [Ordering.PER_KEY, Ordering.UNORDERED])


@pytest.fixture
def drivers(servers: tuple[PostgresStore, PostgresStore], dsn: str) -> tuple[Driver, Driver]:
    """Two servers whose clocks agree, on a database that was emptied."""
    clock, tenant = ManualClock(), next(TENANTS)
    return Driver(servers[0], clock, tenant), Driver(servers[1], clock, tenant)


async def test_a_queue_that_many_push_to_first_is_made_once(drivers: tuple[Driver, Driver]) -> None:
    outcomes = await asyncio.gather(
        *(d.store.push([d.batch(d.message("x"), d.message("y"))], d.now) for d in drivers for _ in range(5))
    )

    results = [result for (outcome,) in outcomes for result in outcome.results]
    assert sorted(result.seq or 0 for result in results) == list(range(1, 21))
    assert len(await drivers[0].store.list_queues(drivers[0].tenant)) == 1
    await drivers[0].check_accounts()


async def test_I15_a_batch_to_several_new_queues_goes_to_each_whole(drivers: tuple[Driver, Driver]) -> None:
    names = ["a", "b", "c"]
    orders = [names, names[::-1]] * 5

    async def push(driver: Driver, order: list[str]) -> None:
        await driver.store.push([driver.batch(*(driver.message("x", name) for name in order))], driver.now)

    await asyncio.gather(*(push(drivers[i % 2], order) for i, order in enumerate(orders)))

    assert [(await drivers[0].queue_stats(name)).last_seq for name in names] == [10, 10, 10]


async def test_I1_a_queue_deleted_while_it_is_pushed_to_begins_anew(drivers: tuple[Driver, Driver]) -> None:
    here, there = drivers
    await here.create()
    deleted = asyncio.Event()
    after: list[int] = []

    async def push(driver: Driver) -> None:
        for _ in range(15):
            is_after = deleted.is_set()
            (outcome,) = await driver.store.push([driver.batch(driver.message("x"))], driver.now)
            assert outcome.results[0].status is PushStatus.STORED
            after.append(int(is_after))

    async def delete() -> None:
        await there.push("x")
        assert await there.delete()
        deleted.set()

    await asyncio.gather(push(here), push(there), delete())
    await here.push("x")

    stats = await here.queue_stats()
    assert sum(after) < stats.last_seq <= 31
    page = await here.browse()
    assert [message.seq for message in page.messages] == list(range(1, stats.last_seq + 1))
    await here.check_accounts()


async def test_I2_without_leave_to_create_a_push_to_a_deleted_queue_is_refused(drivers: tuple[Driver, Driver]) -> None:
    here, there = drivers
    await here.create()
    batches = [here.batch(here.message("x")) for _ in range(10)]

    pushing = asyncio.gather(*(here.store.push([batch], here.now, create_queues=False) for batch in batches))
    _, outcomes = await asyncio.gather(there.delete(), pushing)

    answers = {result.status for (outcome,) in outcomes for result in outcome.results}
    assert answers <= {PushStatus.STORED, PushStatus.REFUSED}
    assert await here.store.get_queue(here.key()) is None


@BOTH
async def test_I11_a_dead_letter_queue_that_two_need_first_is_made_once(
    drivers: tuple[Driver, Driver], ordering: Ordering
) -> None:
    here, there = drivers
    await here.create(ordering=ordering)
    for partition in "abcdef":
        await here.push(partition, partition=partition)
    held = [await driver.pop(batch=3) for driver in drivers]

    await asyncio.gather(here.reject(*held[0]), there.reject(*held[1]))

    letters = await here.dead()
    assert [letter.seq for letter in letters] == [1, 2, 3, 4, 5, 6]
    assert sorted(letter.payload for letter in letters) == [b"a", b"b", b"c", b"d", b"e", b"f"]
    assert (await here.stats()).dead == 6


async def test_I13_what_both_promote_enters_the_log_once(drivers: tuple[Driver, Driver]) -> None:
    here, there = drivers
    await here.push(*map(str, range(60)), deliver_at=here.later(5))
    here.clock.advance(10)

    chores = await asyncio.gather(*(d.store.promote(d.key(), d.now, 20) for d in drivers for _ in range(2)))

    assert sum(chore.done for chore in chores) == 60
    stats = await here.queue_stats()
    assert (stats.last_seq, stats.scheduled) == (60, 0)
    assert len({message.id for message in (await here.browse()).messages}) == 60
    await there.check_accounts()


@BOTH
async def test_I10_what_both_expire_is_buried_once(drivers: tuple[Driver, Driver], ordering: Ordering) -> None:
    here, there = drivers
    await here.create(ordering=ordering, max_age_seconds=10)
    for partition in "abcdef":
        await here.push("1", "2", partition=partition)
    await here.pop(batch=3, lease_seconds=1)
    here.clock.advance(100)

    await asyncio.gather(*(d.store.expire(d.key(), d.now, 3) for d in drivers for _ in range(4)))
    while (await there.expire()).more:
        pass
    await here.expire()

    assert (await here.stats()).expired == 12
    assert len({letter.source_seq for letter in await here.dead()}) == len(await here.dead()) == 12


async def test_what_both_retain_is_deleted_once(drivers: tuple[Driver, Driver]) -> None:
    here, there = drivers
    await here.create(retention_seconds=10)
    await here.push(*map(str, range(50)))
    await here.pop(batch=40, auto_ack=True)
    here.clock.advance(100)

    chores = await asyncio.gather(*(d.store.retain(d.key(), d.now, 15) for d in drivers for _ in range(2)))

    assert sum(chore.done for chore in chores) == 40
    assert (await here.queue_stats()).first_seq == 41
    assert sum(p.deleted for p in await here.store.retention_history(here.key())) == 40
    assert seqs(await there.pop()) == list(range(41, 51))


async def test_what_both_sweep_is_removed_once(drivers: tuple[Driver, Driver]) -> None:
    here, there = drivers
    await here.create(dedup_window_seconds=10)
    await here.push_messages(*(here.message("x", transaction_id=f"t{n}") for n in range(30)))
    await here.create("gone")
    await here.push(*map(str, range(30)), queue="gone")
    await here.delete("gone")
    here.clock.advance(100)

    done = 0
    while True:
        chores = await asyncio.gather(*(d.store.sweep(d.now, 10) for d in drivers for _ in range(2)))
        done += sum(chore.done for chore in chores)
        if not any(chore.more for chore in chores):
            break

    # 30 keys, 30 messages, and the queue itself.
    assert done == 61
    assert [r.status for r in await there.push("x", transaction_id="t1")] == [PushStatus.STORED]
    assert (await here.queue_stats()).last_seq == 31


async def test_I11_what_both_replay_goes_back_once(drivers: tuple[Driver, Driver]) -> None:
    here, there = drivers
    await here.push(*"123456")
    for delivery in await here.pop():
        await here.reject(delivery)

    replayed = await asyncio.gather(*(d.replay(limit=4) for d in drivers))

    moved = [int(one.dead_seq) for part in replayed for one in part]
    assert sorted(moved) == sorted(set(moved))
    await there.replay(limit=PLENTY)
    assert await here.dead() == []
    assert len({delivery.trace_id for delivery in await here.pop()}) == (await here.stats()).in_flight == 6


async def test_I5_the_same_partition_is_leased_to_one(drivers: tuple[Driver, Driver]) -> None:
    here, _ = drivers
    for partition in "abcd":
        await here.push("1", "2", "3", partition=partition)

    results = await asyncio.gather(*(d.store.pop([d.request(batch=3)], d.now) for d in drivers for _ in range(6)))

    results.append(await here.store.pop([here.request()], here.now))
    owners = [{d.partition for d in result.deliveries} for (result,) in results]
    assert sorted(partition for owned in owners for partition in owned) == list("abcd")
