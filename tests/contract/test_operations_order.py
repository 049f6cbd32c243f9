"""Nothing overtakes an operation: what comes after it waits behind it, or is refused when it cannot wait (I13)."""

from __future__ import annotations

import asyncio

import pytest

from skep.errors import Code, SkepError
from skep.model import Ordering, PushBatch
from skep.model.operation import NewOperations, OperationKind
from tests.contract.driver import Driver, payloads
from tests.contract.queueing import Ops, texts
from tests.contract.test_bulk import rows
from tests.contract.test_staging import Stage, log

ROUNDS = 20


async def test_order_rests_on_the_place_in_the_queue_and_never_on_ids(driver: Driver, ops: Ops) -> None:
    falling = driver.mint.mint_many(8)
    for text in "abcd":
        batch = PushBatch([driver.message(text)], [falling.pop()])
        await driver.store.enqueue([NewOperations(OperationKind.PUSH, [falling.pop()], push=batch)], driver.now)

    token, claimed = await ops.claim()
    await ops.perform(token, claimed)

    assert texts(claimed) == ["a", "b", "c", "d"]
    assert payloads(await driver.pop()) == ["a", "b", "c", "d"]


@pytest.mark.parametrize("ordering", list(Ordering))
async def test_I13_a_push_beside_one_that_is_being_performed_does_not_overtake_it(
    driver: Driver, ops: Ops, ordering: Ordering
) -> None:
    """Whether something waits is decided where it is acted on: in the push's own transaction, under the queue's lock."""
    await driver.create(ordering=ordering)

    async def perform() -> None:
        token, claimed = await ops.claim()
        performed = await driver.store.perform(token, claimed, driver.now)
        assert len(performed.done) == 1

    async def push(text: str) -> None:
        while (await driver.store.push([driver.batch(driver.message(text))], driver.now))[0].held:  # noqa: ASYNC110 - nobody tells
            await asyncio.sleep(0)

    for number in range(ROUNDS):
        await ops.push(f"{number} queued")
        await asyncio.gather(push(f"{number} direct"), perform())

    assert await log(driver) == [f"{n} {way}" for n in range(ROUNDS) for way in ("queued", "direct")]


async def test_I13_calls_at_once_enter_the_log_once_and_each_pushers_in_order(driver: Driver, ops: Ops) -> None:
    """Pushers that go now one way and now the other, to one partition, while others perform."""
    pushers, each = 4, 6
    pushed = 0

    async def push(pusher: int) -> None:
        nonlocal pushed
        for number in range(each):
            batch = driver.batch(driver.message(f"{pusher}.{number}"))
            if (pusher + number) % 3 == 0 or (await driver.store.push([batch], driver.now))[0].held:
                await ops.enqueue_batch(batch)
        pushed += 1

    async def perform() -> None:
        while pushed < pushers or (await driver.store.waiting_operations(driver.now, 1)).total:
            token, claimed = await ops.claim(operations=3)
            await driver.store.perform(token, claimed, driver.now)
            await asyncio.sleep(0)

    await driver.create()
    async with asyncio.timeout(60):
        await asyncio.gather(*(push(pusher) for pusher in range(pushers)), perform(), perform())

    found = [tuple(map(int, text.split("."))) for text in await log(driver)]
    assert len(found) == pushers * each
    for pusher in range(pushers):
        assert [number for who, number in found if who == pusher] == list(range(each))


async def test_a_partition_that_waits_takes_no_room_in_claims_from_others(driver: Driver, ops: Ops) -> None:
    for text in "abcde":
        await ops.push(text, partition="waits")
    await ops.claim(operations=1)
    await ops.push("other", partition="other")

    _, claimed = await ops.claim(operations=2)

    assert texts(claimed) == ["other"]


async def test_a_transaction_that_would_overtake_is_refused_whole(driver: Driver, ops: Ops) -> None:
    await driver.push("a", queue="in")
    (a,) = await driver.pop("in")
    await ops.push("waits", queue="out")

    with pytest.raises(SkepError) as refused:
        await driver.transact([driver.settlement(a)], [driver.message("b", "out")])
    assert refused.value.code is Code.OPERATIONS_AHEAD

    await ops.drain()
    assert (await driver.transact([driver.settlement(a)], [driver.message("b", "out")])).committed
    assert payloads(await driver.pop("out")) == ["waits", "b"]


async def test_a_replay_that_would_overtake_is_refused(driver: Driver, ops: Ops) -> None:
    await driver.push("a")
    await driver.reject(*await driver.pop())
    await ops.push("waits")

    with pytest.raises(SkepError) as refused:
        await driver.replay("q.dead")
    assert refused.value.code is Code.OPERATIONS_AHEAD

    await ops.drain()
    await driver.replay("q.dead")
    assert payloads(await driver.pop()) == ["waits", "a"]


@pytest.mark.parametrize("ordering", list(Ordering))
async def test_a_bulk_push_that_would_overtake_is_refused_whole(driver: Driver, ops: Ops, ordering: Ordering) -> None:
    await driver.create(ordering=ordering)
    await ops.push("waits", partition="P")
    new = rows(driver, ("other", b"other"), ("P", b"behind"))

    with pytest.raises(SkepError) as refused:
        await driver.store.push_rows(driver.key(), new, driver.now)
    assert refused.value.code is Code.OPERATIONS_AHEAD
    assert await log(driver) == []

    await ops.drain()
    await driver.store.push_rows(driver.key(), new, driver.now)
    assert await log(driver) == ["waits", "other", "behind"]


async def test_a_bulk_push_to_other_partitions_waits_for_nobody(driver: Driver, ops: Ops) -> None:
    await ops.push("waits", partition="P")

    await driver.store.push_rows(driver.key(), rows(driver, ("other", b"1"), ("another", b"2")), driver.now)

    assert await log(driver) == ["1", "2"]


@pytest.mark.parametrize("ordering", list(Ordering))
@pytest.mark.parametrize("rich", [False, True])
async def test_publishing_what_would_overtake_is_refused_whole(
    driver: Driver, ops: Ops, ordering: Ordering, rich: bool
) -> None:
    stage = Stage(driver)
    await driver.create(ordering=ordering)
    await ops.push("waits", partition="P")
    if rich:
        await stage.rich(driver.message("other", partition="other"), driver.message("P", partition="P", priority=3))
    else:
        await stage.plain("other", "P")

    assert await stage.refusal((0, 0, 2)) is Code.OPERATIONS_AHEAD
    assert await log(driver) == []
    assert await stage.staged() == [(0, 0, 2, 1)]

    await ops.drain()
    assert (await stage.publish((0, 0, 2))).messages == 2
    assert await log(driver) == ["waits", "other", "P"]
