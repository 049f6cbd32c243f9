"""QoS 0: answered at once, stored together soon, in order, never twice, and within bounds."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from skep.clock import ManualClock
from skep.config import BufferSettings, EngineSettings
from skep.engine import Engine
from skep.errors import Code, SkepError
from skep.model import MessageFilter, PushOutcome, PushStatus, QueueKey, QueueSettings
from tests.engine.driver import ORDERS, EngineDriver, message, until
from tests.engine.recording import RecordingStore
from tests.support.waiting import until_so


@pytest.fixture
def settings() -> EngineSettings:
    return EngineSettings(buffer=BufferSettings(max_messages=50, max_bytes=1000, retry_seconds=1))


async def buffer(driver: EngineDriver, *payloads: str, queue: QueueKey = ORDERS, **fields: Any) -> PushOutcome:
    options = {name: fields.pop(name) for name in ("wait_ms", "most") if name in fields}
    return await driver.engine.push_buffered([message(p, queue, **fields) for p in payloads], **options)


async def log(driver: EngineDriver, queue: QueueKey = ORDERS) -> list[str]:
    wanted = MessageFilter(queue=queue, limit=1000)
    return [m.payload.decode() for m in (await driver.store.inner.messages(wanted, driver.clock.now())).messages]


def pending(driver: EngineDriver) -> int:
    return driver.engine.buffer.figures().pending


async def settled(driver: EngineDriver, seconds: float = 1.0) -> None:
    driver.clock.advance(seconds)
    await until(lambda: not pending(driver))


async def test_it_is_answered_with_its_ids_before_it_is_stored_and_flushed_by_time(driver: EngineDriver) -> None:
    outcome = await buffer(driver, "1", "2")
    assert [result.status for result in outcome.results] == [PushStatus.BUFFERED] * 2
    driver.clock.advance(0.099)
    for _ in range(20):
        await asyncio.sleep(0)
    assert not driver.store.calls["push"]
    driver.clock.advance(0.001)
    await until(lambda: not pending(driver))
    page = await driver.engine.browse.messages(MessageFilter(queue=ORDERS))
    assert [m.id for m in page.messages] == [result.id for result in outcome.results]


async def test_it_is_flushed_by_number(driver: EngineDriver) -> None:
    for number in range(1, 8):
        await buffer(driver, str(number), most=3)
        await until(lambda number=number: pending(driver) == number % 3)  # type: ignore[misc]
    assert await log(driver) == ["1", "2", "3", "4", "5", "6"]
    assert [len(batches) for batches in driver.store.calls["push"]] == [1, 1]


async def test_the_shortest_wait_and_the_smallest_number_decide(driver: EngineDriver) -> None:
    await buffer(driver, "1", wait_ms=50_000)
    await buffer(driver, "2", wait_ms=10)
    driver.clock.advance(0.01)
    await until(lambda: not pending(driver))
    assert await log(driver) == ["1", "2"]


async def test_I4_one_flush_at_a_time_and_in_order(driver: EngineDriver) -> None:
    driver.store.hold("push")
    await buffer(driver, "1", most=1)
    await driver.store.held("push")
    for number in range(2, 20):
        await buffer(driver, str(number), most=1)
    for _ in range(20):
        await asyncio.sleep(0)
    assert len(driver.store.calls["push"]) == 1
    driver.store.let_go("push")
    await until(lambda: not pending(driver))
    assert await log(driver) == [str(number) for number in range(1, 20)]
    assert len(driver.store.calls["push"]) == 2


async def test_I4_a_push_that_waits_for_its_answer_comes_after_what_was_buffered(driver: EngineDriver) -> None:
    await buffer(driver, "1", wait_ms=60_000)
    await driver.push("2")
    await buffer(driver, "3", wait_ms=60_000)
    await driver.engine.transact([], [message("4")])
    assert await log(driver) == ["1", "2", "3", "4"]


async def test_I4_also_when_a_flush_is_under_way(driver: EngineDriver) -> None:
    driver.store.hold("push")
    await buffer(driver, "1", most=1)
    await driver.store.held("push")
    await buffer(driver, "2", wait_ms=60_000)
    push = asyncio.ensure_future(driver.push("3"))
    for _ in range(20):
        await asyncio.sleep(0)
    assert not push.done()
    driver.store.let_go("push")
    await push
    assert await log(driver) == ["1", "2", "3"]


async def test_what_comes_while_a_flush_is_under_way_is_flushed_at_its_own_time(driver: EngineDriver) -> None:
    driver.store.hold("push")
    await buffer(driver, "1", most=1)
    await driver.store.held("push")
    await buffer(driver, "2", wait_ms=500)
    driver.store.let_go("push")
    await until(lambda: pending(driver) == 1)
    driver.clock.advance(0.5)
    await until(lambda: not pending(driver))
    assert await log(driver) == ["1", "2"]


async def test_another_queue_does_not_wait(driver: EngineDriver) -> None:
    await buffer(driver, "1", wait_ms=60_000)
    await driver.push("2", queue=QueueKey("other"))
    assert pending(driver) == 1


async def test_a_flush_of_which_only_the_answer_may_be_lost_is_not_repeated(driver: EngineDriver) -> None:
    driver.store.fail_next("push", SkepError(Code.STORE_UNAVAILABLE, "gone"))
    await buffer(driver, "1", "2")
    await settled(driver)
    await buffer(driver, "3")
    await settled(driver)
    assert await log(driver) == ["3"]
    assert driver.engine.buffer.figures().lost == 2


async def test_a_busy_store_is_tried_again_for_a_while(driver: EngineDriver) -> None:
    busy = SkepError(Code.STORE_BUSY, "busy")
    driver.store.fail_next("push", busy, busy)
    await buffer(driver, "1")
    driver.clock.advance(0.1)
    await until_so(lambda: not pending(driver), lambda: driver.clock.advance(0.1))
    assert await log(driver) == ["1"]
    driver.store.fail_next("push", *[busy] * 100)
    await buffer(driver, "2")
    await until_so(lambda: not pending(driver), lambda: driver.clock.advance(0.2))
    assert driver.engine.buffer.figures().lost == 1
    driver.store.errors.clear()


async def test_I4_nothing_overtakes_a_flush_that_is_tried_again(driver: EngineDriver) -> None:
    driver.store.fail_next("push", SkepError(Code.STORE_BUSY, "busy"))
    await buffer(driver, "1", most=1)
    await until(lambda: len(driver.store.calls["push"]) == 1)
    await buffer(driver, "2", most=1)
    await driver.push("3", queue=QueueKey("other"))
    await settled(driver)
    assert await log(driver) == ["1", "2"]


async def test_one_that_is_refused_does_not_take_the_others_with_it(driver: EngineDriver) -> None:
    await driver.engine.create_queue(ORDERS, QueueSettings(max_depth=3))
    await buffer(driver, "1", "2")
    await buffer(driver, "3", "4")
    await buffer(driver, "5")
    await settled(driver)
    assert await log(driver) == ["1", "2", "5"]
    assert driver.engine.buffer.figures().lost == 2
    assert driver.engine.buffer.figures().flushed == 3


async def test_there_is_room_for_so_many_and_no_more(driver: EngineDriver) -> None:
    await buffer(driver, *"7" * 50)
    with pytest.raises(SkepError) as caught:
        await buffer(driver, "1")
    assert caught.value.code is Code.OVERLOADED
    assert caught.value.details["retry_after_seconds"] == 1
    await settled(driver)
    with pytest.raises(SkepError) as caught:
        await buffer(driver, f'"{"x" * 1000}"')
    assert caught.value.code is Code.OVERLOADED
    await buffer(driver, "1")
    await settled(driver)
    assert len(await log(driver)) == 51


async def test_several_queues_in_one_push_are_divided(driver: EngineDriver) -> None:
    await driver.engine.push_buffered([message("1"), message("2", QueueKey("other")), message("3")])
    await settled(driver)
    assert (await log(driver), await log(driver, QueueKey("other"))) == (["1", "3"], ["2"])


async def test_what_is_unfit_is_refused_at_once(driver: EngineDriver) -> None:
    outcome = await driver.engine.push_buffered([message("1"), message("not json")])
    assert outcome.refused
    unfit: list[dict[str, Any]] = [{"wait_ms": -1}, {"wait_ms": 60_001}, {"most": 0}, {"most": 10_001}]
    for fields in unfit:
        with pytest.raises(SkepError) as caught:
            await buffer(driver, "1", **fields)
        assert caught.value.code is Code.INVALID_REQUEST
    assert pending(driver) == 0


async def test_a_stop_flushes(store: RecordingStore, clock: ManualClock, settings: EngineSettings) -> None:
    from random import Random

    from skep.ids import IdMint

    engine = Engine(store.as_store, clock, IdMint(clock), Random(7), settings)
    await engine.start()
    driver = EngineDriver(engine, clock, store)
    for number in range(30):
        await buffer(driver, str(number), wait_ms=60_000, queue=QueueKey(f"q{number % 3}"))
    await engine.stop()
    for queue in range(3):
        assert await log(driver, QueueKey(f"q{queue}")) == [str(number) for number in range(queue, 30, 3)]


async def test_a_scheduled_message_may_be_buffered(driver: EngineDriver) -> None:
    await buffer(driver, "1", deliver_at=driver.clock.now() + 3_600_000_000)
    await settled(driver)
    assert await log(driver) == []
    await driver.advance(3700)
    assert await log(driver) == ["1"]


async def test_I3_a_transaction_id_is_stored_once(driver: EngineDriver) -> None:
    await buffer(driver, "1", transaction_id="t")
    await buffer(driver, "1 again", transaction_id="t")
    await settled(driver)
    assert await log(driver) == ["1"]


async def test_many_queues_leave_nothing_behind(driver: EngineDriver) -> None:
    for number in range(40):
        await buffer(driver, "1", queue=QueueKey(f"q{number}"))
    await settled(driver)
    assert not driver.engine.buffer._queues
    assert driver.engine.buffer.figures().size_bytes == 0
