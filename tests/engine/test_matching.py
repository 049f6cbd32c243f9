"""Pops over a namespace or task: higher priority first, equals in turn, batches filled across queues."""

from __future__ import annotations

import asyncio

import pytest

from skep.engine.pop.matching import REMEMBERED
from skep.errors import SkepError
from skep.model import PopRequest, PopResult, QueueKey, QueueSettings
from tests.engine.driver import ANY, EngineDriver, answer, message, until
from tests.support.memory import census


async def make(driver: EngineDriver, name: str, priority: int = 0, task: str | None = None) -> QueueKey:
    key = QueueKey(name)
    await driver.engine.create_queue(key, QueueSettings(namespace="shop", task=task, priority=priority))
    return key


def sources(result: PopResult) -> list[str]:
    return [delivery.queue.name for delivery in result.deliveries]


async def test_queues_of_higher_priority_come_first_and_fill_the_batch_with_the_others(driver: EngineDriver) -> None:
    for name, priority in (("low", -1), ("high", 9), ("middle", 0)):
        await driver.push("1", "2", queue=await make(driver, name, priority))

    result = await driver.engine.pop_matching(PopRequest(ANY, batch=5), namespace="shop")

    assert sources(result) == ["high", "high", "middle", "middle", "low"]
    assert len({delivery.token for delivery in result.deliveries}) == 1


async def test_equals_take_turns_so_that_none_starves(driver: EngineDriver) -> None:
    for name in ("a", "b", "c"):
        key = await make(driver, name)
        await driver.engine.push([message("1", key, partition=f"p{number}") for number in range(9)])

    first = [sources(await driver.engine.pop_matching(PopRequest(ANY), namespace="shop"))[0] for _ in range(6)]

    assert sorted(first) == ["a", "a", "b", "b", "c", "c"]


async def test_only_what_matches_is_popped(driver: EngineDriver) -> None:
    for name, task in (("mail", "send"), ("print", "print")):
        await driver.push("1", queue=await make(driver, name, task=task))
    await driver.push("1", queue=QueueKey("elsewhere"))

    assert sources(await driver.engine.pop_matching(PopRequest(ANY, batch=9), task="send")) == ["mail"]
    assert sources(await driver.engine.pop_matching(PopRequest(ANY, batch=9), namespace="shop", task="print")) == [
        "print"
    ]
    assert sources(await driver.engine.pop_matching(PopRequest(ANY), namespace="nobody")) == []


async def test_it_needs_a_namespace_or_a_task(driver: EngineDriver) -> None:
    with pytest.raises(SkepError, match="INVALID_REQUEST"):
        await driver.engine.pop_matching(PopRequest(ANY))


async def test_a_poll_waits_at_all_its_queues(driver: EngineDriver) -> None:
    keys = [await make(driver, name) for name in ("a", "b")]
    polls = [
        await driver.parked(driver.engine.pop_matching(PopRequest(ANY), namespace="shop", wait_seconds=60)),
        await driver.polling(keys[1]),
    ]
    looks = len(driver.store.calls["pop"])
    await driver.push("1", queue=keys[1])
    assert await answer(polls[0]) == ["1"]
    assert len(driver.store.calls["pop"]) == looks + 1, "only the queue that has something is looked at"
    await driver.push("2", queue=keys[1], partition="other")
    assert await answer(polls[1]) == ["2"]


async def test_a_queue_made_while_a_poll_waits_is_seen(driver: EngineDriver) -> None:
    poll = await driver.parked(driver.engine.pop_matching(PopRequest(ANY), namespace="shop", wait_seconds=60))
    await driver.push("1", queue=await make(driver, "new"))

    assert await answer(poll) == ["1"]


async def test_a_list_of_queues_that_grew_old_while_it_was_read_is_not_believed(driver: EngineDriver) -> None:
    await make(driver, "b")
    driver.store.hold("list_queues")
    first = asyncio.ensure_future(driver.engine.pop_matching(PopRequest(ANY), namespace="shop"))
    await driver.store.held("list_queues")
    driver.store.let_go("list_queues")
    driver.store.hold("list_queues")
    await driver.store.held("list_queues")  # it has read b, and looks for queues behind it
    await driver.push("1", queue=await make(driver, "a"))
    driver.store.let_go("list_queues")
    assert sources(await first) == []

    assert sources(await driver.engine.pop_matching(PopRequest(ANY), namespace="shop")) == ["a"]


async def test_a_poll_over_queues_ends_when_its_time_is_over(driver: EngineDriver) -> None:
    await make(driver, "a")
    poll = await driver.parked(driver.engine.pop_matching(PopRequest(ANY), namespace="shop", wait_seconds=12))
    for pause in (5, 5):
        driver.clock.advance(pause)
        await asyncio.sleep(0)
        await until(lambda: driver.engine.parked_polls == 1)
    driver.clock.advance(2)

    assert await answer(poll) == []


async def test_a_poll_over_queues_ends_though_its_time_was_over_while_their_list_was_read(driver: EngineDriver) -> None:
    await make(driver, "a")
    driver.store.hold("list_queues")
    poll = asyncio.ensure_future(driver.engine.pop_matching(PopRequest(ANY), namespace="shop", wait_seconds=10))
    await driver.store.held("list_queues")
    driver.clock.advance(11)
    driver.store.let_go("list_queues")

    assert await answer(poll) == []


async def test_a_queue_that_vanishes_does_not_spoil_the_pop(driver: EngineDriver) -> None:
    gone, there = await make(driver, "a", priority=5), await make(driver, "b")
    await driver.push("1", queue=there)
    await driver.engine.pop_matching(PopRequest(ANY, group="other"), namespace="shop")
    await driver.store.inner.delete_queue(gone, driver.clock.now())

    assert sources(await driver.engine.pop_matching(PopRequest(ANY, batch=5), namespace="shop")) == ["b"]


async def test_turns_are_kept_of_a_bounded_number_of_namespaces(driver: EngineDriver) -> None:
    for number in range(REMEMBERED + 2):
        if number % 500 == 0:
            await make(driver, f"queue-{number}")  # so that the lists are forgotten
        await driver.engine.pop_matching(PopRequest(ANY), namespace=f"namespace-{number}")

    assert 0 < census(driver.engine)["Match"] <= REMEMBERED
