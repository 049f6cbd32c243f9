"""A transaction id that counts in the whole queue does so whichever way its message comes in (I3)."""

from __future__ import annotations

import msgspec
import pytest
import pytest_asyncio

from skep.model import ClearScope, NewMessage, PushStatus, Retry, Tried
from skep.model.scheduled import Change
from tests.contract.driver import Driver, payloads
from tests.contract.queueing import Ops
from tests.contract.test_scheduled import change
from tests.contract.test_staging import Stage

STORED, DUPLICATE, SCHEDULED = PushStatus.STORED, PushStatus.DUPLICATE, PushStatus.SCHEDULED
MANY = 300
"""More than PostgreSQL takes by one INSERT, and than one piece of a look-up."""


def message(driver: Driver, payload: str, partition: str, transaction_id: str = "t", queue: str = "q") -> NewMessage:
    return driver.message(payload, queue, partition=partition, transaction_id=transaction_id)


async def push(driver: Driver, payload: str, partition: str, transaction_id: str = "t") -> PushStatus:
    (result,) = (await driver.push_messages(message(driver, payload, partition, transaction_id))).results
    return result.status


async def log(driver: Driver, queue: str = "q") -> list[str]:
    return sorted(one.payload.decode() for one in (await driver.browse(queue)).messages)


@pytest_asyncio.fixture(autouse=True, loop_scope="session")
async def queue(driver: Driver) -> None:
    await driver.create(dedup_across_partitions=True)


async def test_I3_of_batches_that_come_together_the_first_takes_the_id(driver: Driver) -> None:
    first, again = await driver.push_batches(
        driver.batch(message(driver, "1", "a")), driver.batch(message(driver, "2", "b"), message(driver, "3", "b", "u"))
    )
    assert [one.status for one in again.results] == [DUPLICATE, STORED]
    assert (again.results[0].id, again.results[0].seq) == (first.results[0].id, 1)
    assert await log(driver) == ["1", "3"]


async def test_I3_many_ids_are_told_from_many(driver: Driver) -> None:
    await driver.push_messages(*(message(driver, str(n), f"p{n % 7}", str(n)) for n in range(0, MANY, 2)))
    outcome = await driver.push_messages(*(message(driver, str(n), f"q{n % 5}", str(n)) for n in range(MANY)))
    assert [one.status for one in outcome.results] == [DUPLICATE, STORED] * (MANY // 2)
    assert (await driver.queue_stats()).depth == MANY


async def test_I3_other_queues_have_ids_of_their_own(driver: Driver) -> None:
    await driver.create("other")
    outcome = await driver.push_messages(
        *(
            message(driver, f"{queue} {partition}", partition, queue=queue)
            for queue in ("q", "other")
            for partition in "ab"
        )
    )
    assert [one.status for one in outcome.results] == [STORED, DUPLICATE, STORED, STORED]


async def test_I3_an_id_is_free_in_all_partitions_when_its_window_is_over(driver: Driver) -> None:
    await driver.update(dedup_window_seconds=60.0)
    await push(driver, "1", "a")
    driver.clock.advance(61)
    assert [await push(driver, payload, payload) for payload in ("b", "c")] == [STORED, DUPLICATE]


async def test_a_repeat_needs_no_room_in_a_full_queue(driver: Driver) -> None:
    await driver.update(max_depth=2)
    await push(driver, "1", "a")
    outcome = await driver.push_messages(
        message(driver, "2", "b"), message(driver, "3", "b", "u"), message(driver, "4", "c", "u")
    )
    assert [one.status for one in outcome.results] == [DUPLICATE, STORED, DUPLICATE]


async def test_I3_staged_messages_are_told_from_each_other_and_from_those_of_the_log(driver: Driver) -> None:
    await push(driver, "1", "a")
    stage = Stage(driver)
    await stage.rich(message(driver, "2", "b"), message(driver, "3", "b", "u"))
    await stage.rich(message(driver, "4", "c", "u"), message(driver, "5", "c", "v"), number=1)
    await stage.rich(message(driver, "6", "d", "v"), message(driver, "7", "d", "w"), partition=1)
    answer = await stage.publish((0, 0, 4), (1, 0, 2))
    assert (answer.messages, answer.duplicates) == (3, 3)
    assert await log(driver) == ["1", "3", "5", "7"]
    assert [await push(driver, "8", partition, "w") for partition in "de"] == [DUPLICATE, DUPLICATE]


async def test_I3_I13_of_queued_pushes_to_several_partitions_one_takes_the_id(driver: Driver, ops: Ops) -> None:
    await ops.enqueue(message(driver, "1", "a"))
    await ops.enqueue(message(driver, "2", "b"))
    # Its partition has nothing queued, so it goes before them.
    assert await push(driver, "3", "c") is STORED
    await ops.drain()
    assert await log(driver) == ["3"]

    for payload, partition in (("4", "a"), ("5", "b"), ("6", "a")):
        await ops.enqueue(message(driver, payload, partition, "u"))
    await ops.drain()
    assert await push(driver, "7", "c", "u") is DUPLICATE
    assert len(await log(driver)) == 2


async def test_I3_I15_pushes_of_a_transaction(driver: Driver) -> None:
    await push(driver, "1", "a")
    first = await driver.transact([], [message(driver, "2", "b"), message(driver, "3", "b", "u")])
    delivery = await driver.pop_one(partition="a")
    second = await driver.transact([driver.settlement(delivery)], [message(driver, "4", "c", "u")])
    assert [one.status for one in (*first.pushed.results, *second.pushed.results)] == [DUPLICATE, STORED, DUPLICATE]
    assert second.committed
    assert await log(driver) == ["1", "3"]


async def test_I3_effects_of_a_command_with_their_pushes(driver: Driver) -> None:
    receipt = driver.receipt("command")
    pushed = [message(driver, "1", "a"), message(driver, "2", "b")]
    outcome = await driver.transact([], pushed, effects=[driver.effect(0, 1)], receipts=[receipt])
    assert [one.status for one in outcome.pushed.results] == [STORED, DUPLICATE]
    assert await log(driver) == ["1"]


async def test_I3_a_push_that_may_have_been_stored_and_is_tried_again(driver: Driver) -> None:
    """After an attempt with an unknown outcome the batch is told from its own messages, and from those of others."""
    lost = driver.batch(message(driver, "1", "a"), message(driver, "2", "b"))
    since = driver.now
    tried = msgspec.structs.replace(lost, tried=Tried(since, driver.now, driver.store.session))
    for _ in range(2):
        await driver.push_batches(tried)
    assert await push(driver, "3", "c") is DUPLICATE
    assert await log(driver) == ["1"]


async def test_I3_a_scheduled_message_and_one_for_now(driver: Driver) -> None:
    due = driver.later(10)
    later = message(driver, "1", "a")
    (first,) = (await driver.push_messages(msgspec.structs.replace(later, deliver_at=due))).results
    (again,) = (await driver.push_messages(msgspec.structs.replace(later, partition="b", deliver_at=due))).results
    (now,) = (await driver.push_messages(message(driver, "2", "c"))).results
    assert [one.status for one in (first, again, now)] == [SCHEDULED, DUPLICATE, DUPLICATE]
    assert [(one.id, one.seq, one.trace_id) for one in (again, now)] == [(first.id, None, first.trace_id)] * 2
    assert await push(driver, "3", "a", "u") is STORED
    (waiting,) = await driver.push("4", partition="b", transaction_id="u", deliver_at=due)
    assert waiting.status is DUPLICATE


@pytest.mark.parametrize("by_hand", [False, True])
@pytest.mark.parametrize("before", [False, True])
async def test_I3_a_scheduled_message_keeps_its_id_though_the_setting_was_changed(
    driver: Driver, before: bool, by_hand: bool
) -> None:
    """Its key is of its partition or of the queue, as the setting said; when it enters the log the setting may say another thing."""
    await driver.update(dedup_across_partitions=before)
    (first,) = await driver.push("1", transaction_id="t", partition="a", deliver_at=driver.later(10))
    await driver.update(dedup_across_partitions=not before)
    if by_hand:
        await change(driver, Change.RUN)
    else:
        driver.clock.advance(11)
        await driver.promote()
    await driver.update(dedup_across_partitions=before)
    (again,) = await driver.push("2", transaction_id="t", partition="b" if before else "a")
    assert (again.status, again.id, again.seq, again.trace_id) == (DUPLICATE, first.id, 1, first.trace_id)


async def test_a_forgotten_message_frees_its_id_in_the_whole_queue(driver: Driver) -> None:
    await push(driver, "1", "a")
    await driver.push("2", transaction_id="u", partition="a", deliver_at=driver.later(10))
    await driver.update(dedup_across_partitions=False)
    await driver.forget(1)
    await change(driver, Change.FORGET)
    await driver.update(dedup_across_partitions=True)
    assert [await push(driver, "3", "b", name) for name in "tu"] == [STORED, STORED]


async def test_an_id_is_taken_after_its_message_was_settled_deleted_or_cleared(driver: Driver) -> None:
    await push(driver, "1", "a", "settled")
    await push(driver, "2", "a", "deleted")
    await push(driver, "3", "a", "cleared")
    await driver.ack(await driver.pop_one())
    await driver.delete_message(2)
    await driver.clear(ClearScope.PENDING)
    assert [await push(driver, "4", "b", name) for name in ("settled", "deleted", "cleared")] == [DUPLICATE] * 3


async def test_I3_a_replay_comes_though_its_id_is_taken_and_takes_it_from_nobody(driver: Driver) -> None:
    await push(driver, "1", "a")
    await driver.reject(*await driver.pop())
    assert await push(driver, "2", "b") is DUPLICATE
    (replayed,) = await driver.replay()
    assert payloads(await driver.pop()) == ["1"]
    (again,) = (await driver.push_messages(message(driver, "3", "c"))).results
    assert (again.status, again.seq) == (DUPLICATE, 1)
    assert replayed.seq == 2


async def test_a_message_that_comes_again_to_one_group_is_stored_though_its_id_is_taken(driver: Driver) -> None:
    """A push for one group alone brings back what it has lost: others have the first one."""
    await push(driver, "1", "a")
    await driver.nack(*await driver.pop(), retry=Retry.NOW)
    stage = Stage(driver)
    await stage.rich(message(driver, "again", "b"), audience="__QUEUE_MODE__")
    assert (await stage.publish((0, 0, 1))).duplicates == 0
    assert await push(driver, "2", "c") is DUPLICATE
    assert await log(driver) == ["1", "again"]
