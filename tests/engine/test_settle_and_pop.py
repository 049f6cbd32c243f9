"""A pop that settles first: both in one transaction where that can be, and neither loses what the other does."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest
from msgspec import structs

from skep.config import EngineSettings, Limits
from skep.errors import Code, SkepError
from skep.model import (
    QUEUE_MODE_GROUP,
    Delivery,
    PopRequest,
    PopResult,
    QueueKey,
    QueueSettings,
    Retry,
    SettleResult,
    SettleStatus,
    Token,
)
from tests.engine.driver import ORDERS, EngineDriver, message, settlement, until

Answer = tuple[list[SettleResult], PopResult]


@pytest.fixture
def settings() -> EngineSettings:
    return EngineSettings(limits=Limits(parked_polls=3))


@pytest.fixture(autouse=True)
async def orders(driver: EngineDriver) -> None:
    await driver.engine.create_queue(ORDERS, QueueSettings(max_attempts=2, lease_seconds=30))


def going_on(driver: EngineDriver, held: Sequence[Delivery], wait_seconds: float = 0.0) -> asyncio.Task[Answer]:
    """Acks what is held, and pops."""
    said = [settlement(delivery) for delivery in held]
    return asyncio.ensure_future(
        driver.engine.settle_and_pop(said, PopRequest(ORDERS, batch=10), wait_seconds=wait_seconds)
    )


async def told(task: asyncio.Task[Answer]) -> tuple[list[SettleStatus], list[str]]:
    async with asyncio.timeout(10):
        results, popped = await task
    return [result.status for result in results], [delivery.payload.decode() for delivery in popped.deliveries]


async def given_back(driver: EngineDriver) -> tuple[bytes, int]:
    """The payload and the attempt of the message that comes again."""
    async with asyncio.timeout(10):
        [delivery] = (await driver.engine.pop(PopRequest(ORDERS), wait_seconds=60)).deliveries
    return delivery.payload, delivery.attempt


async def pending(driver: EngineDriver) -> int:
    group = next(
        one for one in (await driver.engine.browse.queue_stats(ORDERS)).groups if one.group == QUEUE_MODE_GROUP
    )
    return group.pending + group.in_flight


@pytest.mark.parametrize("wait_seconds", [0.0, 60.0])
async def test_what_an_ack_frees_comes_with_its_answer_in_one_transaction(
    driver: EngineDriver, wait_seconds: float
) -> None:
    await driver.push("1")
    held = await driver.pop(batch=1)
    await driver.push("2", "3")
    looks = len(driver.store.calls["pop"])

    assert await told(going_on(driver, held, wait_seconds)) == ([SettleStatus.COMPLETED], ["2", "3"])
    assert len(driver.store.calls["pop"]) == looks, "the transaction of the ack found them"
    assert len(driver.store.calls["settle_and_pop"]) == 1


async def test_without_a_wait_it_answers_though_there_is_nothing(driver: EngineDriver) -> None:
    await driver.push("1")

    assert await told(going_on(driver, await driver.pop())) == ([SettleStatus.COMPLETED], [])
    assert await pending(driver) == 0


async def test_other_partitions_are_looked_at_too(driver: EngineDriver) -> None:
    await driver.push("1", partition="a")
    held = await driver.pop()
    await driver.push("2", partition="b")
    assert await driver.pop(group="other") != []  # so that nothing about them is new to the engine

    assert await told(going_on(driver, held)) == ([SettleStatus.COMPLETED], ["2"])


async def test_with_a_wait_the_ack_is_made_at_once_and_a_push_brings_the_messages(driver: EngineDriver) -> None:
    await driver.push("1")
    held = await driver.pop()
    task = going_on(driver, held, 60)
    await until(lambda: len(driver.store.calls["settle"]) + len(driver.store.calls["settle_and_pop"]) == 1)
    await driver.engine._registry.drained()
    assert await pending(driver) == 0
    assert not task.done()
    await driver.push("2")

    assert await told(task) == ([SettleStatus.COMPLETED], ["2"])


async def test_with_a_wait_it_ends_when_the_time_is_over(driver: EngineDriver) -> None:
    await driver.push("1")
    task = going_on(driver, await driver.pop(), 60)
    await until(lambda: driver.engine.parked_polls == 1)
    await driver.quiet()
    await driver.advance(61)

    assert await told(task) == ([SettleStatus.COMPLETED], [])


async def test_I6_a_stale_ack_is_refused_and_keeps_no_message_away(driver: EngineDriver) -> None:
    await driver.push("1")
    [held] = await driver.pop()
    await driver.push("2", partition="b")
    stale = structs.replace(settlement(held), token=Token(b"x" * 16))
    results, popped = await driver.engine.settle_and_pop([stale], PopRequest(ORDERS))

    assert [result.status for result in results] == [SettleStatus.REFUSED]
    assert [delivery.payload for delivery in popped.deliveries] == [b"2"]


async def test_who_waited_longer_gets_the_freed_messages_first(driver: EngineDriver) -> None:
    await driver.push("1", "2")
    held = await driver.pop(batch=1)
    first = await driver.polling()
    task = going_on(driver, held, 60)

    async with asyncio.timeout(10):
        assert [delivery.payload for delivery in (await first).deliveries] == [b"2"]
    await driver.ack((await first).deliveries)
    await driver.push("3")
    assert await told(task) == ([SettleStatus.COMPLETED], ["3"])


async def test_I15_when_the_acks_fail_nothing_is_leased(driver: EngineDriver) -> None:
    await driver.push("1", "2")
    held = await driver.pop(batch=1)
    driver.store.fail_next("settle_and_pop", SkepError(Code.STORE_UNAVAILABLE, "gone"))
    with pytest.raises(SkepError, match="STORE_UNAVAILABLE"):
        await going_on(driver, held, 60)
    await driver.quiet()

    assert await told(going_on(driver, held)) == ([SettleStatus.COMPLETED], ["2"])


async def test_what_a_push_brought_is_given_back_when_the_acks_fail(driver: EngineDriver) -> None:
    await driver.push("1", partition="a")
    held, other = await driver.pop(), await driver.pop(group="other")
    driver.store.hold("settle")
    ahead = asyncio.ensure_future(driver.ack(other))
    await driver.store.held("settle")
    task = going_on(driver, held, 60)
    await until(lambda: driver.engine.parked_polls == 1)
    await driver.push("2", partition="b")
    assert driver.store.calls["push_and_pop"], "the push leased its message for the caller"
    driver.store.fail_next("settle", None, SkepError(Code.STORE_UNAVAILABLE, "gone"))
    driver.store.let_go("settle")
    await ahead
    with pytest.raises(SkepError, match="STORE_UNAVAILABLE"):
        await task

    assert await given_back(driver) == (b"2", 1)


async def test_when_only_the_pop_fails_the_acks_are_told_of(driver: EngineDriver) -> None:
    await driver.push("1", partition="a")
    await driver.push("2", partition="b")
    held = await driver.pop(batch=1)
    driver.store.fail_next("pop", SkepError(Code.STORE_BUSY, "too much to do"))

    assert await told(going_on(driver, held)) == ([SettleStatus.COMPLETED], [])
    assert len(await driver.pop()) == 1


async def test_a_cancelled_caller_leaves_no_message_behind(driver: EngineDriver) -> None:
    await driver.push("1", "2")
    held = await driver.pop(batch=1)
    driver.store.hold("settle_and_pop")
    task = going_on(driver, held, 60)
    await driver.store.held("settle_and_pop")
    task.cancel()
    driver.store.let_go("settle_and_pop")
    with pytest.raises(asyncio.CancelledError):
        await task

    assert await given_back(driver) == (b"2", 1)


async def test_acks_that_wait_for_the_store_are_made_though_their_caller_has_gone(driver: EngineDriver) -> None:
    await driver.push("1", "2")
    held, other = await driver.pop(), await driver.pop(group="other")
    driver.store.hold("settle")
    ahead = asyncio.ensure_future(driver.ack(other))
    await driver.store.held("settle")
    task = going_on(driver, held, 60)
    await until(lambda: driver.engine.parked_polls == 1)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    driver.store.let_go("settle")
    await ahead

    assert await given_back(driver) == (b"2", 1)
    assert await pending(driver) == 1


async def test_a_pop_that_fails_while_its_acks_are_made_does_not_hide_them(driver: EngineDriver) -> None:
    await driver.push("1")
    held = await driver.pop(group="other")
    driver.store.hold("settle")
    task = going_on(driver, held, 60)
    await driver.store.held("settle")
    driver.store.fail_next("pop", SkepError(Code.STORE_BUSY, "too much to do"))
    await driver.engine.transact([], [message("2")])
    await until(lambda: not driver.store.errors["pop"])
    await driver.quiet()
    driver.store.let_go("settle")

    assert await told(task) == ([SettleStatus.COMPLETED], [])
    assert [delivery.payload for delivery in await driver.pop(batch=2)] == [b"1", b"2"]


async def test_without_a_wait_it_looks_though_nothing_was_known_to_be_ready(driver: EngineDriver) -> None:
    await driver.push("1")
    await driver.nack((await driver.pop())[0], Retry.AT, retry_at=driver.clock.now() + 10_000)
    held = await driver.pop(group="other")
    poll = await driver.polling()
    await driver.quiet()
    poll.cancel()
    await driver.advance(0.015)  # a line looks again after 20 ms, not sooner

    assert await told(going_on(driver, held)) == ([SettleStatus.COMPLETED], ["1"])


async def test_a_wait_that_is_over_before_the_acks_are_made_ends_with_a_look(driver: EngineDriver) -> None:
    await driver.push("1")
    held = await driver.pop(group="other")
    driver.store.hold("settle")
    task = going_on(driver, held, 60)
    await driver.store.held("settle")
    await driver.advance(61)
    driver.store.let_go("settle")

    assert await told(task) == ([SettleStatus.COMPLETED], ["1"])


async def test_I15_nobody_looks_when_the_acks_fail_after_the_time_is_over(driver: EngineDriver) -> None:
    await driver.push("1")
    held = await driver.pop(group="other")
    driver.store.hold("settle")
    driver.store.fail_next("settle", SkepError(Code.STORE_UNAVAILABLE, "gone"))
    task = going_on(driver, held, 60)
    await driver.store.held("settle")
    looks = len(driver.store.calls["pop"])
    await driver.advance(61)
    driver.store.let_go("settle")
    with pytest.raises(SkepError, match="STORE_UNAVAILABLE"):
        await task

    assert len(driver.store.calls["pop"]) == looks


async def test_what_is_settled_as_it_is_handed_out_is_not_touched_before_the_acks_are_made(
    driver: EngineDriver,
) -> None:
    await driver.push("1")
    held = await driver.pop(group="other")
    driver.store.hold("settle")
    driver.store.fail_next("settle", SkepError(Code.STORE_UNAVAILABLE, "gone"))
    said = [settlement(delivery) for delivery in held]
    asked = PopRequest(ORDERS, batch=10, auto_ack=True)
    task = asyncio.ensure_future(driver.engine.settle_and_pop(said, asked, wait_seconds=60))
    await driver.store.held("settle")
    await driver.push("2")
    driver.store.let_go("settle")
    with pytest.raises(SkepError, match="STORE_UNAVAILABLE"):
        await task

    assert [delivery.payload for delivery in await driver.pop(batch=10)] == [b"1", b"2"]
    async with asyncio.timeout(10):
        results, popped = await driver.engine.settle_and_pop(said, structs.replace(asked, group="third"))
    assert ([result.status for result in results], len(popped.deliveries)) == ([SettleStatus.COMPLETED], 2)


async def test_without_a_place_to_wait_nothing_is_settled(driver: EngineDriver) -> None:
    await driver.engine.create_queue(QueueKey("empty"), QueueSettings())
    await driver.push("1")
    held = await driver.pop()
    polls = [await driver.polling(QueueKey("empty")) for _ in range(3)]
    with pytest.raises(SkepError, match="STORE_BUSY"):
        await going_on(driver, held, 60)
    await driver.quiet()

    assert await pending(driver) == 1
    for poll in polls:
        poll.cancel()
