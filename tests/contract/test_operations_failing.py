"""Operations that fail: they are refused, given back, blocked, or among the dead letters (I13)."""

from __future__ import annotations

import msgspec
import pytest

from skep.errors import Code, SkepError
from skep.model import (
    SEALED_TYPE,
    DeadLetterFilter,
    DeadReason,
    PushBatch,
)
from skep.model.operation import GivenBack, OperationStatus, encode_push
from tests.contract.driver import Driver, payloads
from tests.contract.queueing import Ops, texts


async def test_a_refused_operation_undoes_the_whole_claim(driver: Driver, ops: Ops) -> None:
    await driver.create("full", max_depth=1)
    await driver.push("x", queue="full")
    await ops.push("ok", queue="free")
    await ops.push("too much", queue="full")
    token, claimed = await ops.claim()

    performed = await ops.perform(token, claimed)
    alone = await ops.perform(token, claimed[:1])

    assert performed.done == {}
    assert {position: code for position, (code, _) in performed.refused.items()} == {
        claimed[1].position: Code.QUEUE_FULL
    }
    assert list(alone.done) == [claimed[0].position]
    assert payloads(await driver.pop("free")) == ["ok"]


async def test_I13_what_follows_a_refused_one_does_not_overtake_it(driver: Driver, ops: Ops) -> None:
    await driver.create(max_depth=2)
    await ops.push("1", "2", "3")
    await ops.push("4")
    token, claimed = await ops.claim()

    follower = await ops.perform(token, claimed[1:])
    await ops.back(token, claimed[0], 10, error="full", code=Code.QUEUE_FULL)
    still = await ops.perform(token, claimed[1:])
    _, nothing = await ops.claim()

    assert (follower.done, follower.lost) == ({}, [claimed[1].position])
    assert (still.done, still.lost) == ({}, [claimed[1].position])
    assert nothing == []


async def test_without_its_queue_a_push_is_refused_where_pushes_make_none(driver: Driver, ops: Ops) -> None:
    await ops.push("x", queue="missing")
    token, claimed = await ops.claim()

    performed = await ops.perform(token, claimed, create_queues=False)

    assert [code for code, _ in performed.refused.values()] == [Code.QUEUE_NOT_FOUND]


async def test_what_was_given_back_waits_and_keeps_its_error(driver: Driver, ops: Ops) -> None:
    kept = await ops.push("x")
    token, (one,) = await ops.claim()

    since = driver.now
    back = await ops.back(token, one, 5, error="the queue is full", code=Code.QUEUE_FULL, blocked_at=since)
    assert back == [one.position]
    assert await ops.back(token, one, 5, error="twice") == []

    shown = await ops.shown(kept)
    assert (shown.status, shown.tries, shown.error, shown.code, shown.blocked_at) == (
        OperationStatus.BLOCKED, 1, "the queue is full", Code.QUEUE_FULL, since,
    )  # fmt: skip
    assert (await ops.claim())[1] == []
    assert shown.ready_at == driver.later(5)
    driver.clock.advance(5)
    token, (again,) = await ops.claim()
    assert (again.tries, again.code, again.blocked_at) == (2, Code.QUEUE_FULL, since)


async def test_an_operation_tells_when_it_failed_last(driver: Driver, ops: Ops) -> None:
    kept, done = await ops.push("x"), await ops.push("y", partition="P")
    assert (await ops.shown(kept)).error_at is None
    token, (one, other) = await ops.claim()
    first = driver.now

    await ops.back(token, one, 5, error="the queue is full", code=Code.QUEUE_FULL, blocked_at=first)
    await ops.back(token, other, 5, error="busy", code=Code.STORE_BUSY, untried=True, blocked_at=first)
    assert (await ops.shown(kept)).error_at == first

    driver.clock.advance(6)
    token, (one,) = await ops.claim()  # one that was tried before comes alone
    second = driver.now
    assert (await ops.shown(kept)).error_at == first
    driver.clock.advance(1)
    await ops.back(token, one, 5)
    assert (await ops.shown(kept)).error_at == first  # given back without a failure
    token, (other,) = await ops.claim()
    assert (await ops.perform(token, [other])).done
    assert (await ops.shown(done)).error_at is None
    driver.clock.advance(6)
    token, (one,) = await ops.claim()
    await ops.back(token, one, None, error="it is too large", code=Code.PAYLOAD_TOO_LARGE)

    shown = await ops.shown(kept)
    assert shown.status is OperationStatus.FAILED
    assert shown.error_at == shown.processed_at == driver.now > second


async def test_an_operation_whose_server_is_lost_failed_when_the_next_one_took_it(driver: Driver, ops: Ops) -> None:
    kept = await ops.push("x")
    await ops.claim()
    driver.clock.advance(1_000)

    await ops.claim()

    assert (await ops.shown(kept)).error_at == driver.now


async def test_I13_what_the_store_could_not_take_is_blocked_and_loses_no_try(driver: Driver, ops: Ops) -> None:
    kept, behind, other = await ops.push("a"), await ops.push("b"), await ops.push("c", partition="P")
    since = driver.now
    for _ in range(10):
        token, claimed = await ops.claim()
        for one in claimed:
            if one.partition != "P":
                await ops.back(token, one, 1, error="busy", code=Code.STORE_BUSY, untried=True, blocked_at=since)
        shown = await ops.shown(kept)
        assert (shown.status, shown.tries, shown.code) == (OperationStatus.BLOCKED, 0, Code.STORE_BUSY)
        driver.clock.advance(1)

    waiting = await driver.store.waiting_operations(driver.now, 10)
    assert (waiting.total, waiting.blocked) == (3, 2)
    token, claimed = await ops.claim()
    assert texts(claimed) == ["a", "b"]  # together, as if they had never been tried
    await ops.perform(token, claimed)
    assert [await ops.status(one) for one in (kept, behind)] == [OperationStatus.COMPLETED] * 2
    assert await ops.status(other) is OperationStatus.PROCESSING
    assert (await ops.shown(kept)).blocked_at is None


async def test_a_blocked_operation_can_be_cancelled(driver: Driver, ops: Ops) -> None:
    kept, behind = await ops.push("a"), await ops.push("b")
    token, (one, other) = await ops.claim()
    await ops.back(token, one, 60, error="busy", code=Code.STORE_BUSY, untried=True, blocked_at=driver.now)
    await ops.back(token, other, 0, untried=True)

    assert await driver.store.cancel_operation(driver.tenant, kept.id, driver.now)

    await ops.drain()
    assert [await ops.status(one) for one in (kept, behind)] == [
        OperationStatus.CANCELLED,
        OperationStatus.COMPLETED,
    ]


async def test_what_was_not_tried_loses_no_try(driver: Driver, ops: Ops) -> None:
    kept = await ops.push("x")
    token, (one,) = await ops.claim()

    await ops.back(token, one, 0, untried=True)

    shown = await ops.shown(kept)
    assert (shown.status, shown.tries, shown.error) == (OperationStatus.PENDING, 0, None)


async def test_what_fails_for_good_is_among_the_dead_letters(driver: Driver, ops: Ops) -> None:
    await driver.create()
    batch = driver.batch(driver.message("a", partition="P", transaction_id="t"), driver.message("b", partition="P"))
    (kept,) = await ops.enqueue_batch(batch)
    follower = await ops.push("c", partition="P")
    token, claimed = await ops.claim()

    await ops.back(token, claimed[0], None, error="it broke", code=Code.INTERNAL)
    await ops.back(token, claimed[1], 0, untried=True)

    shown = await ops.shown(kept)
    assert (shown.status, shown.error, shown.code, shown.dead_letter_queue) == (
        OperationStatus.FAILED, "it broke", Code.INTERNAL, "q.dead",
    )  # fmt: skip
    letters = await driver.store.dead_letters(DeadLetterFilter(queue=driver.key("q.dead")), None, 10)
    assert [(x.id, x.reason, x.error, x.partition, x.transaction_id, x.attempts) for x in letters] == [
        (batch.ids[0], DeadReason.OPERATION_FAILED, "it broke", "P", "t", 1),
        (batch.ids[1], DeadReason.OPERATION_FAILED, "it broke", "P", None, 1),
    ]
    await ops.drain()
    assert await ops.status(follower) is OperationStatus.COMPLETED
    assert payloads(await driver.pop()) == ["c"]


async def test_what_fails_for_good_is_not_buried_in_plain_when_its_queue_is_encrypted(driver: Driver, ops: Ops) -> None:
    """It was queued before that. Nothing is let go, and the same messages are buried once they are encrypted."""
    await driver.create()
    batch = driver.batch(driver.message("a", partition="P", transaction_id="t"))
    (kept,) = await ops.enqueue_batch(batch)
    await ops.push("b", partition="Q")
    await driver.update(encryption_enabled=True)
    token, claimed = await ops.claim()
    sealed = driver.message(b"sealed", partition="P", transaction_id="t", content_type=SEALED_TYPE)
    payload = encode_push(PushBatch([sealed], batch.ids), [0])
    back = [GivenBack(one.position, None, "it broke", Code.INTERNAL) for one in claimed]
    back[0] = msgspec.structs.replace(back[0], payload=payload)

    with pytest.raises(SkepError) as refused:
        await driver.store.give_back(token, back, driver.now)
    assert refused.value.code is Code.NOT_ENCRYPTED
    assert [await ops.status(kept), (await ops.shown(kept)).code] == [OperationStatus.PROCESSING, None]
    assert await driver.store.get_queue(driver.key("q.dead")) is None or await driver.dead() == []
    assert await driver.store.give_back(token, back[:1], driver.now) == [claimed[0].position]

    [letter] = await driver.dead()
    assert (letter.id, letter.payload, letter.content_type) == (batch.ids[0], b"sealed", SEALED_TYPE)
    assert (letter.reason, letter.source_queue, letter.partition) == (DeadReason.OPERATION_FAILED, "q", "P")
    assert (await ops.shown(kept)).dead_letter_queue == "q.dead"


async def test_what_no_dead_letter_queue_takes_stays_with_the_failed_operation(driver: Driver, ops: Ops) -> None:
    await driver.create(dead_letter_queue="none")
    kept = await ops.push("a")
    token, (one,) = await ops.claim()

    await ops.back(token, one, None, error="it broke", code=Code.INTERNAL)

    shown = await ops.shown(kept)
    assert (shown.status, shown.dead_letter_queue, shown.size_bytes > 0) == (OperationStatus.FAILED, None, True)


async def test_dead_letters_of_operations_can_be_replayed(driver: Driver, ops: Ops) -> None:
    await driver.create()
    await ops.push("a")
    token, (one,) = await ops.claim()
    await ops.back(token, one, None, error="it broke")

    await driver.replay("q.dead")

    assert payloads(await driver.pop()) == ["a"]
