"""A stop refuses what is new, answers who waits, finishes what is under way, and loses nothing."""

from __future__ import annotations

import asyncio

import pytest

from skep.errors import Code, SkepError
from tests.engine.driver import ORDERS, EngineDriver, answer, message, until


async def test_parked_polls_are_answered_with_nothing(driver: EngineDriver) -> None:
    await driver.engine.create_queue(ORDERS)
    polls = [await driver.polling() for _ in range(3)]
    await driver.engine.stop()

    assert [await answer(poll) for poll in polls] == [[], [], []]


async def test_I1_a_push_under_way_is_finished_and_answered(driver: EngineDriver) -> None:
    driver.store.hold("push")
    pushes = [asyncio.ensure_future(driver.push("1"))]
    await driver.store.held("push")
    pushes.append(asyncio.ensure_future(driver.push("2")))
    await asyncio.sleep(0)
    stopping = asyncio.ensure_future(driver.engine.stop())
    await asyncio.sleep(0)
    assert not stopping.done()
    driver.store.let_go("push")
    await stopping

    assert [(await push).results[0].seq for push in pushes] == [1, 2]
    assert (await driver.store.inner.queue_stats(ORDERS, driver.clock.now())).last_seq == 2


async def test_new_requests_are_refused_as_retryable(driver: EngineDriver) -> None:
    await driver.engine.stop()
    with pytest.raises(SkepError) as refused:
        await driver.engine.push([message()])
    assert refused.value.code is Code.STOPPING
    assert refused.value.retryable
    with pytest.raises(SkepError, match="STOPPING"):
        await driver.engine.list_queues()


async def test_a_chore_under_way_is_finished_and_none_begins_after(driver: EngineDriver) -> None:
    await until(lambda: len(driver.store.calls["sample"]) == 1)
    driver.store.hold("sample")
    driver.clock.advance(10)
    await driver.store.held("sample")
    stopping = asyncio.ensure_future(driver.engine.stop())
    await asyncio.sleep(0)
    assert not stopping.done()
    driver.store.let_go("sample")
    await stopping
    driver.clock.advance(100)
    await asyncio.sleep(0)

    assert len(driver.store.calls["sample"]) == 2


async def test_a_second_stop_is_harmless(driver: EngineDriver) -> None:
    await driver.engine.stop()
    await driver.engine.stop()


async def test_a_stop_waits_for_a_store_call_whose_caller_has_gone(driver: EngineDriver) -> None:
    driver.store.hold("push")
    pushing = asyncio.ensure_future(driver.push("1"))
    await driver.store.held("push")
    pushing.cancel()
    await until(pushing.done)
    stopping = asyncio.ensure_future(driver.engine.stop())
    await asyncio.sleep(0)
    assert not stopping.done()
    driver.store.let_go("push")
    await stopping

    assert (await driver.store.inner.queue_stats(ORDERS, driver.clock.now())).last_seq == 1
