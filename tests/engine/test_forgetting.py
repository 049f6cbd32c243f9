"""Forgetting what a caller names by more than seqs: in the log, among dead letters, in the schedule, and among queued pushes."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from skep.clock import Instant, seconds
from skep.config import EngineSettings, Limits, OperationSettings
from skep.engine.forgetting import ForgetReport
from skep.errors import Code, SkepError
from skep.model import DeadLetterFilter, MessageFilter, Outcome, PushBatch, QueueKey, QueueSettings
from skep.model.forgetting import ForgetFilter, SeqRange
from skep.model.operation import OperationFilter, OperationStatus, QueuedReason
from skep.model.scheduled import ScheduledFilter
from tests.engine.driver import ORDERS, EngineDriver, answer, message, settlement

DEAD = QueueKey("orders.dead")


@pytest.fixture
def settings() -> EngineSettings:
    return EngineSettings(operations=OperationSettings(backoff_seconds=1.0), limits=Limits(replay_batch=3))


async def forget(driver: EngineDriver, dry_run: bool = False, **wanted: Any) -> ForgetReport:
    return await driver.engine.forgetting.forget(ForgetFilter(queue=ORDERS, **wanted), dry_run=dry_run)


async def in_log(driver: EngineDriver) -> list[str]:
    found = await driver.engine.browse.messages(MessageFilter(queue=ORDERS))
    return [one.payload.decode().strip('"') for one in found.messages]


async def fill(driver: EngineDriver) -> None:
    """Two customers: each with messages, of which one is dead and another was replayed, and one that is scheduled."""
    engine = driver.engine
    await engine.create_queue(ORDERS, QueueSettings(max_attempts=5))
    for customer in ("ann", "bob"):
        await driver.push(*(f'"{customer}{number}"' for number in (1, 2, 3)), partition=customer)
        given = await driver.pop(partition=customer, batch=2)
        await engine.settle([settlement(one, Outcome.REJECT, error="no such card") for one in given])
        at = Instant(driver.clock.now() + seconds(60))
        await driver.push(f'"{customer} later"', partition=customer, transaction_id=f"{customer}-t", deliver_at=at)
    await engine.dead_letters.replay(DeadLetterFilter(queue=DEAD, partition="ann", seqs=[1]))  # type: ignore[list-item]
    unfit = message('"ann?"', partition="ann")
    await driver.store.inner.quarantine(unfit, engine._ids.mint(), "not an order", None, driver.clock.now())


async def test_a_partition_is_forgotten_wherever_its_messages_are(driver: EngineDriver) -> None:
    await fill(driver)
    would = await forget(driver, dry_run=True, partition="ann")
    assert (would.messages, would.letters, would.scheduled, would.count) == (4, 2, 1, 7)
    assert would.ranges == [SeqRange(1, 3), SeqRange(7, 7)]

    done = await forget(driver, partition="ann")

    assert (done.messages + done.copies, done.letters, done.scheduled, done.count) == (4, 2, 1, 7)
    assert await in_log(driver) == ["bob1", "bob2", "bob3"]
    assert [x.payload for x in await driver.engine.dead_letters.page(DeadLetterFilter(queue=DEAD))] == [
        b'"bob1"',
        b'"bob2"',
    ]
    left = await driver.engine.scheduled.page(ScheduledFilter(tenant=ORDERS.tenant, queue=ORDERS.name))
    assert [one.payload for one in left.messages] == [b'"bob later"']
    again = await forget(driver, partition="ann")
    assert again.count == 0
    told = await driver.engine.forgetting.tombstones(ORDERS)
    assert sorted((one.first_seq, one.last_seq) for one in told.tombstones) == [(1, 1), (2, 2), (3, 3), (7, 7)]


async def test_seqs_narrow_what_else_is_given(driver: EngineDriver) -> None:
    await fill(driver)

    done = await forget(driver, partition="ann", ranges=[SeqRange(2, 5)])

    assert (done.messages, done.letters, done.scheduled) == (2, 1, 0)
    assert await in_log(driver) == ["ann1", "bob1", "bob2", "bob3", "ann1"]


async def test_ids_name_messages_too(driver: EngineDriver) -> None:
    trace = driver.engine._ids.mint()
    await driver.push("1", trace_id=trace)
    await driver.push("2", transaction_id="t")
    (plain,) = (await driver.push("3")).results
    await driver.push("4", trace_id=trace, transaction_id="t", partition="p")

    assert (await forget(driver, trace_id=trace, transaction_id="t")).messages == 1
    assert await in_log(driver) == ["1", "2", "3"]
    assert (await forget(driver, trace_id=trace)).messages == 1
    assert (await forget(driver, transaction_id="t")).messages == 1
    assert await in_log(driver) == ["3"]
    assert (await forget(driver, trace_id=plain.id)).messages == 1, "a message without a trace is its own"


async def test_queued_pushes_of_a_partition_are_cancelled(driver: EngineDriver) -> None:
    await driver.engine.create_queue(ORDERS)
    driver.store.hold("claim_operations")
    for partition in ("ann", "bob"):
        batch = PushBatch([message("1", partition=partition)], driver.engine._ids.mint_many(1))
        await driver.engine.operations.push(batch, 10, QueuedReason.SYSTEM_BUSY)
    assert (await forget(driver, dry_run=True, partition="ann")).operations == 1

    assert (await forget(driver, partition="ann")).operations == 1

    found = await driver.engine.operations.page(OperationFilter(tenant=ORDERS.tenant), None, 10)
    assert {one.partition: one.status for one in found.operations} == {
        "ann": OperationStatus.CANCELLED, "bob": OperationStatus.PENDING,
    }  # fmt: skip


async def test_who_waits_for_the_message_behind_a_forgotten_one_is_woken(driver: EngineDriver) -> None:
    await driver.engine.create_queue(ORDERS, QueueSettings(max_attempts=5, lease_seconds=30))
    await driver.push("1", "2")
    held = await driver.pop()
    poll = await driver.polling()

    await forget(driver, ranges=[SeqRange(1, 1)])

    assert await answer(poll) == ["2"]
    assert [result.code for result in await driver.ack(held)] == [Code.STALE_LEASE]


async def test_many_messages_are_forgotten_step_by_step(driver: EngineDriver) -> None:
    await driver.push(*map(str, range(10)))

    done = await forget(driver, ranges=[SeqRange(6, 10), SeqRange(1, 2), SeqRange(3, 5)])

    assert (done.messages, done.ranges) == (10, [SeqRange(1, 10)])
    assert len(driver.store.calls["forget"]) == 4
    with pytest.raises(SkepError) as beyond:
        await forget(driver, ranges=[SeqRange(1, 11)])
    assert beyond.value.code is Code.INVALID_REQUEST


async def test_a_failure_half_way_tells_how_many_were_forgotten_and_the_next_call_does_the_rest(
    driver: EngineDriver,
) -> None:
    await driver.push(*map(str, range(10)))
    driver.store.fail_next("forget", None, SkepError(Code.STORE_BUSY, "busy"))

    with pytest.raises(SkepError) as failed:
        await forget(driver, ranges=[SeqRange(1, 10)])

    assert (failed.value.code, failed.value.details["forgotten"]) == (Code.STORE_BUSY, 3)
    assert (await forget(driver, ranges=[SeqRange(1, 10)])).messages == 7
    assert (await forget(driver, ranges=[])).count == 0, "a search that found nothing"


@pytest.mark.parametrize(
    "wanted",
    [
        {},
        {"ranges": [SeqRange(0, 1)]},
        {"ranges": [SeqRange(2, 1)]},
        {"ranges": [SeqRange(1, 2**63)]},
        {"ranges": [SeqRange(1, 1)] * 10_001},
        {"partition": "\0"},
    ],
)
async def test_what_cannot_be_is_refused(driver: EngineDriver, wanted: dict[str, Any]) -> None:
    await driver.push("1")

    with pytest.raises(SkepError):
        await forget(driver, **wanted)

    assert await in_log(driver) == ["1"]


async def test_a_queue_that_was_made_anew_keeps_its_messages(driver: EngineDriver) -> None:
    before = await driver.engine.create_queue(ORDERS)
    await driver.engine.delete_queue(ORDERS)
    driver.clock.advance(1)
    await driver.push("1", partition="p")

    for wanted in ({"ranges": [SeqRange(1, 1)]}, {"partition": "p"}):
        with pytest.raises(SkepError) as refused:
            await forget(driver, log=before.created_at, **wanted)
        assert refused.value.code is Code.LOG_REPLACED
    assert await in_log(driver) == ["1"]


async def test_a_queue_that_is_made_anew_meanwhile_keeps_its_messages(driver: EngineDriver) -> None:
    await driver.push("1", partition="p")
    driver.store.hold("forget")
    forgetting = asyncio.ensure_future(forget(driver, partition="p"))
    await driver.store.held("forget")
    await driver.engine.delete_queue(ORDERS)
    driver.clock.advance(1)
    await driver.push("2", partition="p")

    driver.store.let_go("forget")

    with pytest.raises(SkepError) as refused:
        await forgetting
    assert refused.value.code is Code.LOG_REPLACED
    assert await in_log(driver) == ["2"]
