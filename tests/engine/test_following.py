"""Following a log: all who wait for more are told, whatever makes it longer, and nobody looks again and again."""

from __future__ import annotations

import asyncio

import pytest

from skep.errors import Code, SkepError
from skep.model import DeadLetterFilter, LogBounds, Outcome, QueueKey, QueueSettings, Seq
from tests.engine.driver import ORDERS, EngineDriver, message, settlement, until


@pytest.fixture(autouse=True)
async def orders(driver: EngineDriver) -> None:
    await driver.engine.create_queue(ORDERS, QueueSettings())


async def following(driver: EngineDriver, after: int = 0, key: QueueKey = ORDERS) -> asyncio.Task[LogBounds]:
    """A call that waits for more."""
    parked = driver.engine.parked_polls
    task = asyncio.ensure_future(driver.engine.log.bounds(key, after=Seq(after), wait_seconds=60))
    await until(lambda: driver.engine.parked_polls > parked or task.done())
    return task


async def test_a_push_wakes_all_who_follow_and_a_pop_that_waits_too(driver: EngineDriver) -> None:
    followers = [await following(driver) for _ in range(3)]
    poll = await driver.polling()
    await driver.push("1")

    assert [(await follower).last_seq for follower in followers] == [1, 1, 1]
    assert len((await poll).deliveries) == 1
    assert driver.engine.parked_polls == 0


async def test_a_push_in_the_middle_of_a_look_is_not_missed_by_anyone(driver: EngineDriver) -> None:
    driver.store.hold("log_bounds")
    followers = [
        asyncio.ensure_future(driver.engine.log.bounds(ORDERS, after=Seq(0), wait_seconds=60)) for _ in range(3)
    ]
    await driver.store.held("log_bounds")
    await driver.push("1")
    driver.store.let_go("log_bounds")

    assert {(await follower).last_seq for follower in followers} == {1}


async def test_what_is_there_already_is_told_at_once(driver: EngineDriver) -> None:
    await driver.push("1", "2")

    assert (await driver.engine.log.bounds(ORDERS, after=Seq(1), wait_seconds=60)).last_seq == 2


async def test_the_time_ends_the_wait(driver: EngineDriver) -> None:
    follower = await following(driver)
    driver.clock.advance(60)

    assert (await follower).last_seq == 0


async def test_a_scheduled_message_that_comes_due_and_a_replay_wake(driver: EngineDriver) -> None:
    follower = await following(driver)
    due = driver.clock.now() + 5_000_000
    await driver.engine.push([message("1", deliver_at=due)])
    driver.clock.advance(5)
    assert (await follower).last_seq == 1

    (delivery,) = await driver.pop()
    await driver.engine.settle([settlement(delivery, Outcome.REJECT)])
    follower = await following(driver, after=1)
    await driver.engine.dead_letters.replay(DeadLetterFilter(queue=QueueKey("orders.dead")))
    assert (await follower).last_seq == 2


async def test_a_burial_wakes_those_who_follow_the_dead_letter_queue(driver: EngineDriver) -> None:
    await driver.push("1")
    await driver.engine.create_queue(QueueKey("orders.dead"), QueueSettings())
    follower = await following(driver, key=QueueKey("orders.dead"))
    await driver.engine.settle([settlement((await driver.pop())[0], Outcome.REJECT)])

    assert (await follower).last_seq == 1


async def test_stopping_answers_those_who_wait(driver: EngineDriver) -> None:
    follower = await following(driver)
    driver.engine.end_polls()

    assert (await follower).last_seq == 0


async def test_a_queue_that_is_not_there_is_told(driver: EngineDriver) -> None:
    with pytest.raises(SkepError) as missing:
        await driver.engine.log.bounds(QueueKey("none"), after=Seq(0), wait_seconds=60)

    assert missing.value.code is Code.QUEUE_NOT_FOUND
    assert driver.engine.parked_polls == 0
