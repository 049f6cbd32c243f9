"""Messages with a time to come: they wait outside the log and enter it when due."""

from __future__ import annotations

from skep.errors import Code
from skep.model import DEFAULT_PARTITION, Ordering, PushStatus
from tests.contract.driver import Driver, payloads


async def test_a_scheduled_message_enters_the_log_when_due(driver: Driver) -> None:
    (result,) = await driver.push("later", deliver_at=driver.later(10))
    await driver.push("now")
    assert (result.status, result.seq) == (PushStatus.SCHEDULED, None)

    assert (await driver.promote()).next_at == driver.later(10)
    assert payloads(await driver.pop(auto_ack=True)) == ["now"]
    driver.clock.advance(10)
    assert (await driver.promote()).done == 1

    (delivery,) = await driver.pop()
    assert (delivery.payload, delivery.seq, delivery.id) == (b"later", 2, result.id)
    assert delivery.created_at == driver.now


async def test_scheduled_messages_enter_oldest_due_first_then_in_order_of_arrival(driver: Driver) -> None:
    await driver.push("third", "fourth", deliver_at=driver.later(20))
    await driver.push("first", "second", deliver_at=driver.later(10))
    driver.clock.advance(30)

    chore = await driver.promote(limit=3)
    assert (chore.done, chore.more) == (3, True)
    chore = await driver.promote(limit=3)
    assert (chore.done, chore.more, chore.next_at) == (1, False, None)

    assert payloads(await driver.pop()) == ["first", "second", "third", "fourth"]


async def test_a_time_that_has_passed_is_no_schedule(driver: Driver) -> None:
    (result,) = await driver.push("a", deliver_at=driver.now)

    assert result.status is PushStatus.STORED


async def test_I3_a_scheduled_message_holds_its_transaction_id(driver: Driver) -> None:
    (first,) = await driver.push("a", transaction_id="t", deliver_at=driver.later(10))
    (waiting,) = await driver.push("b", transaction_id="t")
    driver.clock.advance(10)
    await driver.promote()
    (entered,) = await driver.push("c", transaction_id="t")

    assert (waiting.status, waiting.id, waiting.seq) == (PushStatus.DUPLICATE, first.id, None)
    assert (entered.status, entered.id, entered.seq) == (PushStatus.DUPLICATE, first.id, 1)


async def test_scheduled_messages_count_towards_the_depth(driver: Driver) -> None:
    await driver.create(max_depth=2)
    await driver.push("a", deliver_at=driver.later(10))
    await driver.push("b")

    (full,) = await driver.push("c")

    assert full.code is Code.QUEUE_FULL
    stats = await driver.queue_stats()
    assert (stats.depth, stats.scheduled) == (2, 1)


async def test_a_trace_is_found_for_a_message_that_was_scheduled(driver: Driver) -> None:
    (result,) = await driver.push("a", deliver_at=driver.later(100))
    driver.clock.advance(100)
    await driver.promote()

    found = await driver.store.trace(driver.tenant, result.id)

    assert [m.id for m in found] == [result.id]


async def test_what_was_scheduled_before_a_queue_became_fifo_enters_its_one_partition(driver: Driver) -> None:
    await driver.push("a", partition="a", transaction_id="t", deliver_at=driver.later(10))
    await driver.update(ordering=Ordering.FIFO)
    driver.clock.advance(10)

    await driver.promote()

    assert (await driver.pop_one()).partition == DEFAULT_PARTITION
