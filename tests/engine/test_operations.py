"""Queued calls: performed in their order, one by one when that is needed, and never forgotten."""

from __future__ import annotations

import asyncio

import pytest

from skep.config import EngineSettings, OperationSettings
from skep.engine import Engine
from skep.errors import Code, SkepError
from skep.ids import Id
from skep.model import (
    DeadLetterFilter,
    Delivery,
    Outcome,
    PushBatch,
    PushOutcome,
    PushStatus,
    QueueChanges,
    QueueKey,
    QueueSettings,
    SettleStatus,
)
from skep.model.operation import Operation, OperationKind, OperationStatus, QueuedReason, decode_result
from tests.engine.driver import ORDERS, EngineDriver, message, settlement, until
from tests.engine.recording import RecordingStore

BUSY = QueuedReason.SYSTEM_BUSY


@pytest.fixture
def settings() -> EngineSettings:
    return EngineSettings(operations=OperationSettings(backoff_seconds=1.0))


async def queue(driver: EngineDriver, *payloads: str, queue: QueueKey = ORDERS, **fields: object) -> PushOutcome:
    """Queue a push as a busy server does."""
    messages = [message(payload, queue, **fields) for payload in payloads]
    ids = driver.engine._ids.mint_many(len(messages))
    return await driver.engine.operations.push(PushBatch(messages, ids), 10, BUSY)


async def shown(driver: EngineDriver, outcome: PushOutcome) -> Operation:
    assert outcome.operations is not None
    return await driver.engine.operations.find("default", outcome.operations[0].id)


async def payloads(driver: EngineDriver, queue: QueueKey = ORDERS, **fields: object) -> list[str]:
    return [delivery.payload.decode() for delivery in await driver.pop(queue, batch=100, **fields)]


async def test_a_queued_push_is_performed_at_once_when_there_is_room(driver: EngineDriver) -> None:
    outcome = await queue(driver, "1", "2")

    assert [result.status for result in outcome.results] == [PushStatus.QUEUED] * 2
    assert outcome.operations is not None
    (told,) = outcome.operations
    assert (told.queue, told.partition, told.indexes, told.queue_position, told.reason) == (
        ORDERS, "Default", [0, 1], 1, "system_busy",
    )  # fmt: skip
    await driver.quiet()
    found = await shown(driver, outcome)
    assert found.status is OperationStatus.COMPLETED
    results = decode_result(found.result or b"").pushed
    assert results is not None
    assert [result.id for result in results] == [result.id for result in outcome.results]
    assert await payloads(driver) == ["1", "2"]
    assert driver.engine.operations.depth == 0
    assert driver.engine.operations.completed == {OperationKind.PUSH: 1}


async def test_X_Y_Z_pushed_in_that_order_while_Y_is_queued_come_out_X_Y_Z(
    driver: EngineDriver, store: RecordingStore
) -> None:
    await driver.push("1")
    store.hold("claim_operations")
    await queue(driver, "2")

    third = await driver.push("3")
    store.let_go("claim_operations")
    await driver.quiet()

    assert third.operations is not None
    assert third.operations[0].reason == QueuedReason.MAINTAINING_ORDER
    assert await payloads(driver) == ["1", "2", "3"]


async def test_a_waiting_pop_gets_what_was_queued(driver: EngineDriver) -> None:
    await driver.engine.create_queue(ORDERS)
    waiting = await driver.polling()

    await queue(driver, "1")

    async with asyncio.timeout(10):
        assert [delivery.payload for delivery in (await waiting).deliveries] == [b"1"]


async def test_many_calls_are_queued_in_one_statement_and_done_in_one_transaction(
    driver: EngineDriver, store: RecordingStore
) -> None:
    store.hold("enqueue")
    first = asyncio.ensure_future(queue(driver, "0", partition="P0"))
    await store.held("enqueue")
    others = [asyncio.ensure_future(queue(driver, str(n), partition=f"P{n}")) for n in range(1, 50)]
    await asyncio.sleep(0)
    store.let_go("enqueue")
    outcomes = await asyncio.gather(first, *others)
    await driver.quiet()

    assert [len(call) for call in store.calls["enqueue"]] == [1, 49]
    assert len(store.calls["perform"]) <= 3
    assert [o.operations[0].queue_position for o in outcomes if o.operations] == sorted(
        o.operations[0].queue_position for o in outcomes if o.operations
    )
    assert sorted(await payloads(driver), key=int) == [str(n) for n in range(50)]


async def test_calls_that_do_not_wait_for_each_other_keep_their_order(
    driver: EngineDriver, store: RecordingStore
) -> None:
    store.hold("enqueue")
    first = asyncio.ensure_future(queue(driver, "1"))
    await store.held("enqueue")
    second = asyncio.ensure_future(driver.push("2"))
    await asyncio.sleep(0)
    store.let_go("enqueue")

    outcomes = await asyncio.gather(first, second)
    await driver.quiet()

    assert [outcome.results[0].status for outcome in outcomes] == [PushStatus.QUEUED, PushStatus.QUEUED]
    assert await payloads(driver) == ["1", "2"]


async def test_one_that_cannot_be_done_does_not_hold_up_the_others(driver: EngineDriver, store: RecordingStore) -> None:
    full = QueueKey("full")
    await driver.engine.create_queue(full, QueueSettings(max_depth=1))
    await driver.push("0", queue=full)
    store.hold("claim_operations")
    outcomes = [await queue(driver, "a"), await queue(driver, "b", queue=full), await queue(driver, "c", partition="P")]
    behind = await queue(driver, "b2", queue=full)
    store.let_go("claim_operations")
    await driver.quiet()

    statuses = [(await shown(driver, outcome)).status for outcome in (*outcomes, behind)]
    failed = await shown(driver, outcomes[1])
    assert statuses == [
        OperationStatus.COMPLETED,
        OperationStatus.BLOCKED,
        OperationStatus.COMPLETED,
        OperationStatus.PENDING,
    ]
    assert (failed.tries, failed.code) == (1, Code.QUEUE_FULL)
    assert (await shown(driver, behind)).tries == 0

    await driver.engine.update_queue(full, QueueChanges(max_depth=10))
    await driver.advance(2)
    assert await payloads(driver, full) == ["0", "b", "b2"]


async def test_what_finds_no_room_for_a_time_fails_for_all_to_see(driver: EngineDriver) -> None:
    full = QueueKey("full")
    await driver.engine.create_queue(full, QueueSettings(max_depth=1))
    await driver.push("0", queue=full)
    outcome = await queue(driver, "poison", queue=full)
    await driver.quiet()

    for _ in range(59):
        assert (await shown(driver, outcome)).status is OperationStatus.BLOCKED
        await driver.advance(1)
    await driver.advance(30)
    await driver.advance(1)

    found = await shown(driver, outcome)
    assert (found.status, found.code, found.dead_letter_queue) == (OperationStatus.FAILED, Code.QUEUE_FULL, "full.dead")
    assert found.tries > 3
    letters = await driver.engine.dead_letters.page(DeadLetterFilter(queue=QueueKey("full.dead")))
    assert [letter.payload for letter in letters] == [b"poison"]
    assert driver.engine.operations.failed == {OperationKind.PUSH: 1}
    assert driver.engine.operations.depth == 0


async def test_an_unexpected_error_is_a_failed_try(driver: EngineDriver, store: RecordingStore) -> None:
    store.fail_next("perform", RuntimeError("a bug"))

    outcome = await queue(driver, "1")
    await driver.quiet()

    found = await shown(driver, outcome)
    assert (found.status, found.tries, found.code) == (OperationStatus.BLOCKED, 1, Code.INTERNAL)
    await driver.advance(2)
    assert await payloads(driver) == ["1"]


async def test_when_many_fail_together_each_is_done_by_itself(driver: EngineDriver, store: RecordingStore) -> None:
    store.hold("claim_operations")
    outcomes = [await queue(driver, str(n)) for n in range(5)]
    store.fail_next("perform", SkepError(Code.STORE_BUSY, "a deadlock"))
    store.let_go("claim_operations")
    await driver.quiet()

    assert [(await shown(driver, outcome)).tries for outcome in outcomes] == [1] * 5
    assert await payloads(driver) == ["0", "1", "2", "3", "4"]


async def test_while_the_store_is_away_a_claim_is_kept_and_done_once(
    driver: EngineDriver, store: RecordingStore
) -> None:
    store.fail_next("perform", SkepError(Code.STORE_UNAVAILABLE, "gone"))

    outcome = await queue(driver, "1")
    await driver.quiet()
    assert (await shown(driver, outcome)).status is OperationStatus.PROCESSING
    await driver.advance(1)

    found = await shown(driver, outcome)
    assert (found.status, found.tries) == (OperationStatus.COMPLETED, 1)
    assert await payloads(driver) == ["1"]


async def test_a_claim_of_a_dead_server_is_taken_over_when_its_time_is_up(
    driver: EngineDriver, store: RecordingStore
) -> None:
    store.fail_next("claim_operations", SkepError(Code.STORE_BUSY, "not now"))
    outcome = await queue(driver, "1")
    await driver.quiet()
    from skep.model import Token
    from skep.model.operation import ClaimLimits

    dead = await store.inner.claim_operations("dead", Token(bytes(16)), ClaimLimits(), driver.engine.now())
    assert [one.id for one in dead.operations] == [outcome.operations[0].id if outcome.operations else None]

    for _ in range(29):
        await driver.advance(1)
    assert (await shown(driver, outcome)).worker == "dead"
    await driver.advance(2)

    found = await shown(driver, outcome)
    assert (found.status, found.tries) == (OperationStatus.COMPLETED, 2)
    assert await payloads(driver) == ["1"]


async def test_what_waits_behind_many_held_partitions_is_found_at_once(
    driver: EngineDriver, store: RecordingStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in ("rules", "sqlite.operations"):
        monkeypatch.setattr(f"skep.store.{module}.CLAIM_HEADS", 2)
        monkeypatch.setattr(f"skep.store.{module}.CLAIM_PASSED", 1)
    store.fail_next("perform", *[SkepError(Code.STORE_BUSY, "not now")] * 30)
    for n in range(30):
        await queue(driver, "held", partition=f"held {n:02}")
        await driver.quiet()
    assert not store.errors["perform"]

    free = await queue(driver, "free", partition="z")
    await driver.quiet()

    assert (await shown(driver, free)).status is OperationStatus.COMPLETED


async def test_a_clock_that_is_put_back_does_not_hold_up_the_sweep_of_operations(
    driver: EngineDriver, store: RecordingStore
) -> None:
    await queue(driver, "1")
    await driver.advance(1)
    swept = len(store.calls["sweep_operations"])
    assert swept

    driver.clock.put_back(86_400)
    await queue(driver, "2")
    await driver.advance(601)

    assert len(store.calls["sweep_operations"]) == swept + 1


async def test_acks_are_queued_and_settle(driver: EngineDriver) -> None:
    await driver.push("1", "2")
    deliveries = await driver.pop(batch=2)

    results = await driver.engine.operations.settle(
        [settlement(delivery) for delivery in deliveries], OperationKind.ACK_BATCH, BUSY
    )
    await driver.quiet()

    assert [result.status for result in results] == [SettleStatus.QUEUED] * 2
    (operation,) = {result.operation.id for result in results if result.operation is not None}
    found = await driver.engine.operations.find("default", Id(operation))
    settled = decode_result(found.result or b"").settled
    assert settled is not None
    assert [result.status for result in settled] == [SettleStatus.COMPLETED] * 2


async def test_a_nack_does_not_end_the_lease_before_acks_that_were_queued(
    driver: EngineDriver, store: RecordingStore
) -> None:
    await driver.push("1", "2", "3")
    deliveries: list[Delivery] = await driver.pop(batch=3)
    store.hold("claim_operations")
    await driver.engine.operations.settle([settlement(deliveries[0])], OperationKind.ACK_SINGLE, BUSY)

    [nacked] = await driver.engine.settle([settlement(deliveries[1], Outcome.NACK)])
    store.let_go("claim_operations")
    await driver.quiet()
    await driver.advance(2)

    assert nacked.status is SettleStatus.QUEUED
    assert await payloads(driver) == ["2"]


async def test_a_pending_operation_can_be_cancelled_and_another_not(
    driver: EngineDriver, store: RecordingStore
) -> None:
    done = await queue(driver, "1")
    await driver.quiet()
    store.hold("claim_operations")
    waits = await queue(driver, "2")
    assert done.operations is not None
    assert waits.operations is not None

    cancelled = await driver.engine.operations.cancel("default", waits.operations[0].id)
    with pytest.raises(SkepError) as late:
        await driver.engine.operations.cancel("default", done.operations[0].id)
    with pytest.raises(SkepError) as nothing:
        await driver.engine.operations.cancel("default", Id(bytes(16)))
    store.let_go("claim_operations")

    assert cancelled.status is OperationStatus.CANCELLED
    assert late.value.code is Code.OPERATION_NOT_PENDING
    assert nothing.value.code is Code.OPERATION_NOT_FOUND


async def test_when_the_spike_is_over_a_push_waits_for_the_few_before_it(
    driver: EngineDriver, store: RecordingStore
) -> None:
    store.hold("claim_operations")
    await queue(driver, "1")
    driver.clock.advance(2)

    second = asyncio.ensure_future(driver.push("2"))
    await until(lambda: bool(driver.engine.operations._waiting))
    store.let_go("claim_operations")
    async with asyncio.timeout(10):
        outcome = await second

    assert outcome.results[0].status is PushStatus.STORED
    assert await payloads(driver) == ["1", "2"]


async def test_what_is_stuck_is_told(driver: EngineDriver, store: RecordingStore) -> None:
    store.hold("claim_operations")
    await queue(driver, "1")

    await until(lambda: driver.engine.operations._look_timer is not None)
    driver.clock.advance(61)
    await until(lambda: driver.engine.operations.stuck == 1)

    assert driver.engine.operations.oldest_at is not None
    store.let_go("claim_operations")
    await driver.quiet()
    await driver.advance(1)
    assert driver.engine.operations.stuck == 0


async def test_completed_operations_age_out(driver: EngineDriver) -> None:
    outcome = await queue(driver, "1")
    await driver.quiet()
    await driver.advance(1)
    assert (await shown(driver, outcome)).status is OperationStatus.COMPLETED

    driver.clock.advance(3700)
    await queue(driver, "2")
    await driver.quiet()
    await driver.advance(1)

    with pytest.raises(SkepError) as gone:
        await shown(driver, outcome)
    assert gone.value.code is Code.OPERATION_NOT_FOUND


async def test_a_stop_finishes_what_is_being_performed(
    driver: EngineDriver, store: RecordingStore, engine: Engine
) -> None:
    store.hold("perform")
    outcome = await queue(driver, "1")
    await store.held("perform")

    stopping = asyncio.ensure_future(engine.stop())
    await asyncio.sleep(0)
    store.let_go("perform")
    await stopping

    assert outcome.operations is not None
    found = await store.inner.operation("default", outcome.operations[0].id)
    assert found is not None
    assert found.status is OperationStatus.COMPLETED
