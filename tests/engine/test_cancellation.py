"""A caller who goes away takes no lease along."""

from __future__ import annotations

import asyncio

import pytest

from skep.clock import Instant, seconds
from skep.engine.answers import Answers
from skep.errors import Code, SkepError
from skep.model import PopRequest, QueueChanges, QueueKey
from tests.engine.driver import ANY, ORDERS, EngineDriver, answer, until

ROOM_BYTES = 256_000


async def cancelled_while_the_store_answers(driver: EngineDriver, batch: int = 1) -> None:
    driver.store.hold("pop")
    popping = asyncio.ensure_future(driver.pop(batch=batch))
    await driver.store.held("pop")
    popping.cancel()
    driver.store.let_go("pop")
    with pytest.raises(asyncio.CancelledError):
        await popping


async def test_what_was_leased_for_a_cancelled_caller_is_given_back_at_once(driver: EngineDriver) -> None:
    await driver.push("1", "2")
    await cancelled_while_the_store_answers(driver, batch=2)
    poll = asyncio.ensure_future(driver.engine.pop(PopRequest(ORDERS, batch=2), wait_seconds=60))

    assert await answer(poll) == ["1", "2"]
    assert [one.attempt for one in poll.result().deliveries] == [1, 1], "nobody saw them, so that was no attempt"


async def test_I10_a_message_with_one_attempt_is_no_dead_letter_when_its_caller_has_gone(driver: EngineDriver) -> None:
    await driver.engine.configure_queue(ORDERS, QueueChanges(max_attempts=1))
    await driver.push("1")
    await cancelled_while_the_store_answers(driver)
    poll = asyncio.ensure_future(driver.engine.pop(PopRequest(ORDERS), wait_seconds=60))

    assert await answer(poll) == ["1"]


async def test_an_answer_that_comes_in_the_turn_of_the_cancellation_is_given_back(driver: EngineDriver) -> None:
    await driver.push("1")
    popping = asyncio.ensure_future(driver.pop())
    await until(lambda: len(driver.store.calls["pop"]) == 1)
    # The answer wakes the caller and this task in the same turn of the loop; whichever goes first, nothing is lost.
    while not popping.done():
        popping.cancel()
        await asyncio.sleep(0)
    assert popping.cancelled()
    poll = asyncio.ensure_future(driver.engine.pop(PopRequest(ORDERS), wait_seconds=60))

    assert await answer(poll) == ["1"]


async def test_an_answer_that_the_cancelled_caller_has_not_heard_of_yet_is_given_back(driver: EngineDriver) -> None:
    await driver.push("1", partition="a")
    await driver.push("2", partition="b")

    async def pop_and_cancel() -> list[str]:
        """One call of the store answers both; this task hears it first."""
        deliveries = await driver.pop()
        other.cancel()
        return [delivery.payload.decode() for delivery in deliveries]

    popping = asyncio.ensure_future(pop_and_cancel())
    other = asyncio.ensure_future(driver.pop())
    assert await popping == ["1"]
    await asyncio.wait([other])
    assert other.cancelled()
    assert len(driver.store.calls["pop"]) == 1
    poll = asyncio.ensure_future(driver.engine.pop(PopRequest(ORDERS), wait_seconds=60))

    assert await answer(poll) == ["2"]


async def test_messages_of_the_first_queue_are_given_back_when_the_caller_goes_during_the_second(
    driver: EngineDriver,
) -> None:
    first, second = QueueKey("a"), QueueKey("b")
    for key in (first, second):
        await driver.engine.configure_queue(key, QueueChanges(namespace="shop"))
        await driver.push("1", queue=key)
    popping = asyncio.ensure_future(driver.engine.pop_matching(PopRequest(ANY, batch=5), namespace="shop"))
    await until(lambda: len(driver.store.calls["pop"]) == 1)
    driver.store.hold("pop")
    await driver.store.held("pop")
    popping.cancel()
    driver.store.let_go("pop")
    with pytest.raises(asyncio.CancelledError):
        await popping
    got = [
        await answer(asyncio.ensure_future(driver.engine.pop(PopRequest(key), wait_seconds=60)))
        for key in (first, second)
    ]

    assert got == [["1"], ["1"]]


async def test_messages_that_could_not_be_handed_on_can_be_given_back(driver: EngineDriver) -> None:
    await driver.push("1")
    deliveries = await driver.pop()
    poll = await driver.polling()
    driver.engine.give_back(deliveries)

    assert await answer(poll) == ["1"]


async def test_messages_that_there_is_no_room_for_are_given_back_though_the_caller_goes(driver: EngineDriver) -> None:
    answers = Answers(ROOM_BYTES)
    await driver.push("1", partition="a")
    first = (
        await driver.engine.pop(PopRequest(ORDERS), room=answers.room())
    ).deliveries  # messages are expected to be small now
    assert answers.room().try_take(answers.largest - 2 * answers.least)
    large = "2" * 5 * answers.least
    await driver.push(large, partition="b")
    driver.store.hold("settle")
    acking = asyncio.ensure_future(driver.ack(first))
    await driver.store.held("settle")
    popping = asyncio.ensure_future(driver.engine.pop(PopRequest(ORDERS), room=answers.room()))
    await until(lambda: len(driver.store.calls["pop"]) == 2)
    await until(lambda: answers.held_bytes < answers.largest - answers.least)
    popping.cancel()
    driver.store.let_go("settle")
    await acking
    await asyncio.wait([popping])

    poll = asyncio.ensure_future(driver.engine.pop(PopRequest(ORDERS), wait_seconds=60))

    assert await answer(poll) == [large]
    assert poll.result().deliveries[0].attempt == 1


async def test_a_stop_waits_for_what_is_given_back(driver: EngineDriver) -> None:
    await driver.push("1")
    await cancelled_while_the_store_answers(driver)
    await driver.engine.stop()

    leases = await driver.store.inner.leases("default", driver.clock.now())
    assert leases == []


async def test_a_give_back_that_fails_is_left_to_the_lease(driver: EngineDriver) -> None:
    await driver.push("1")
    deliveries = await driver.pop(lease_seconds=10)
    driver.store.fail_next("settle", SkepError(Code.STORE_UNAVAILABLE, "gone"))
    driver.engine.give_back(deliveries)
    poll = await driver.polling()
    driver.clock.advance(10)

    assert await answer(poll) == ["1"]


async def test_a_scheduled_message_comes_in_time_though_its_pusher_has_gone(driver: EngineDriver) -> None:
    await driver.engine.create_queue(ORDERS)
    await driver.quiet()
    poll = await driver.polling()
    driver.store.hold("push")
    pushing = asyncio.ensure_future(driver.push("1", deliver_at=Instant(driver.clock.now() + seconds(3))))
    await driver.store.held("push")
    pushing.cancel()
    driver.store.let_go("push")
    await until(lambda: len(driver.store.calls["push"]) == 1 and pushing.done())
    await until(lambda: driver.engine.is_quiet)
    driver.clock.advance(3)

    assert await answer(poll) == ["1"]
