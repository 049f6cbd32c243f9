"""Operations: kept whole, claimed in order, performed once, and nothing that was accepted vanishes (I13)."""

from __future__ import annotations

import pytest

from skep.errors import Code, SkepError
from skep.model import (
    Delivery,
    Ordering,
    Outcome,
    PushStatus,
    SettleStatus,
)
from skep.model.operation import OperationKind, OperationStatus, decode_result
from tests.contract.driver import Driver, payloads
from tests.contract.queueing import Ops


async def test_I13_a_queued_push_takes_effect_once_with_its_own_ids(driver: Driver, ops: Ops) -> None:
    batch = driver.batch(driver.message("a"), driver.message("b"))
    (kept,) = await ops.enqueue_batch(batch)

    token, claimed = await ops.claim()
    performed = await ops.perform(token, claimed)
    again = await ops.perform(token, claimed)

    assert [one.position for one in claimed] == [kept.position]
    assert (list(performed.done), performed.lost, performed.refused) == ([kept.position], [], {})
    assert (again.done, again.lost) == ({}, [kept.position])
    result = decode_result(performed.done[kept.position])
    assert result.pushed is not None
    assert [(r.status, r.id, r.seq) for r in result.pushed] == [
        (PushStatus.STORED, batch.ids[0], 1),
        (PushStatus.STORED, batch.ids[1], 2),
    ]
    assert payloads(await driver.pop()) == ["a", "b"]
    shown = await ops.shown(kept)
    assert (shown.status, shown.tries, shown.result) == (OperationStatus.COMPLETED, 1, performed.done[kept.position])


async def test_I13_a_later_push_to_the_partition_is_held_until_the_queued_one_is_done(driver: Driver, ops: Ops) -> None:
    await driver.push("x")
    await ops.push("y")

    (held,) = await driver.push_batches(driver.batch(driver.message("z")))
    (elsewhere,) = await driver.push_batches(driver.batch(driver.message("other", partition="P2")))
    await ops.drain()
    (after,) = await driver.push_batches(driver.batch(driver.message("z")))

    assert (held.held, held.results) == (True, [])
    assert not elsewhere.held
    assert not after.held
    assert payloads(await driver.pop(partition="Default")) == ["x", "y", "z"]


async def test_a_partition_without_a_name_is_the_default_one(driver: Driver, ops: Ops) -> None:
    kept = await ops.push("first")

    (held,) = await driver.push_batches(driver.batch(driver.message("second")))

    assert kept.partition == "Default"
    assert held.held


async def test_names_with_colons_are_no_other_partition(driver: Driver, ops: Ops) -> None:
    await ops.push("first", queue="a:b", partition="c")

    (other,) = await driver.push_batches(driver.batch(driver.message("second", "a", partition="b:c")))
    (same,) = await driver.push_batches(driver.batch(driver.message("second", "a:b", partition="c")))

    assert (other.held, same.held) == (False, True)


async def test_held_batches_hold_what_follows_them_in_their_other_partitions(driver: Driver, ops: Ops) -> None:
    await ops.push("waits", partition="A")
    both = driver.batch(driver.message("1", partition="A"), driver.message("2", partition="B"))

    outcomes = await driver.push_batches(both, driver.batch(driver.message("3", partition="B")))

    assert [outcome.held for outcome in outcomes] == [True, True]


async def test_a_push_that_makes_its_queue_is_held_too(driver: Driver, ops: Ops) -> None:
    await ops.push("first", queue="new")

    (held,) = await driver.push_batches(driver.batch(driver.message("second", "new")))
    await ops.drain()

    assert held.held
    assert payloads(await driver.pop("new")) == ["first"]


@pytest.mark.parametrize("ordering", list(Ordering))
async def test_large_and_small_pushes_are_held_alike(driver: Driver, ops: Ops, ordering: Ordering) -> None:
    await driver.create(ordering=ordering)
    await ops.push("first", partition="P")

    many = driver.batch(*(driver.message(str(n), partition="P") for n in range(100)))
    small, named = (
        driver.batch(driver.message("x", partition="P")),
        driver.message("y", partition="P", transaction_id="t"),
    )
    outcomes = await driver.push_batches(many, small, driver.batch(named))

    assert [outcome.held for outcome in outcomes] == [True, True, True]


@pytest.mark.parametrize("places", [[("a", "P1"), ("a", "P2")], [("a", "P1"), ("b", "P1")]])
async def test_I15_a_push_to_several_partitions_is_never_queued(
    driver: Driver, ops: Ops, places: list[tuple[str, str]]
) -> None:
    await driver.create("a", ordering=Ordering.FIFO if len({q for q, _ in places}) == 1 else Ordering.PER_KEY)

    with pytest.raises(SkepError) as refused:
        await ops.enqueue(*(driver.message(str(n), q, partition=p) for n, (q, p) in enumerate(places)))

    assert refused.value.code is Code.OPERATIONS_AHEAD
    assert (await driver.store.waiting_operations(driver.now, 10)).total == 0


async def test_I15_a_queued_batch_that_does_not_fit_is_not_stored_in_part(driver: Driver, ops: Ops) -> None:
    await driver.create(max_depth=2)
    await driver.push("0", partition="A")
    kept = await ops.push("1", "2", partition="A")
    token, (one,) = await ops.claim()

    performed = await ops.perform(token, [one])
    await ops.back(token, one, None, error="full", code=Code.QUEUE_FULL)

    assert {code for code, _ in performed.refused.values()} == {Code.QUEUE_FULL}
    assert (await ops.shown(kept)).dead_letter_queue == "q.dead"
    assert payloads(await driver.pop()) == ["0"]
    assert payloads(await driver.pop("q.dead")) == ["1", "2"]


async def test_acks_become_one_operation_per_partition_all_or_none(driver: Driver, ops: Ops) -> None:
    for n, partition in enumerate(["P1", "P2", "P1"]):
        await driver.push(str(n), partition=partition)
    deliveries = await driver.pop()
    order = sorted(deliveries, key=lambda delivery: delivery.seq)

    kept = await ops.settle(*(driver.settlement(delivery) for delivery in order))

    assert [(o.partition, o.indexes) for o in kept] == [("P1", [0, 2]), ("P2", [1])]
    assert [o.position for o in kept] == sorted(o.position for o in kept)
    await ops.drain()
    assert (await driver.stats()).completed == 3


async def test_a_fifo_queue_keeps_the_order_over_its_partitions(driver: Driver, ops: Ops) -> None:
    await driver.create(ordering=Ordering.FIFO)
    kept = [await ops.push(f"{n}-a", f"{n}-b", partition=p) for n, p in enumerate(["A", "B", "A", "C"])]

    (held,) = await driver.push_batches(driver.batch(driver.message("4", partition="D")))
    await ops.drain()

    assert [(o.partition, o.indexes) for o in kept] == [("Default", [0, 1])] * 4
    assert held.held
    assert payloads(await driver.pop()) == [f"{n}-{x}" for n in range(4) for x in "ab"]


async def test_the_ordering_of_a_queue_stays_while_operations_wait(driver: Driver, ops: Ops) -> None:
    await driver.create()
    await ops.push("x")

    with pytest.raises(SkepError) as refused:
        await driver.update(ordering=Ordering.FIFO)
    assert refused.value.code is Code.INVALID_SETTING

    await driver.update(priority=3)


async def test_a_push_keeps_all_that_it_said(driver: Driver, ops: Ops) -> None:
    trace = driver.mint.mint()
    message = driver.message(
        "x",
        partition="P",
        transaction_id="t",
        trace_id=trace,
        headers=b'{"a":"b"}',
        content_type="text/plain",
        priority=3,
    )
    await ops.enqueue(message)
    await ops.enqueue(driver.message("later", partition="Q", deliver_at=driver.later(60)))
    await ops.drain()

    (delivery,) = await driver.pop(partition="P")
    assert (delivery.transaction_id, delivery.trace_id, delivery.headers, delivery.content_type) == (
        "t", trace, b'{"a":"b"}', "text/plain",
    )  # fmt: skip
    assert (await driver.queue_stats()).scheduled == 1


async def test_I3_a_queued_duplicate_is_answered_with_the_first_one(driver: Driver, ops: Ops) -> None:
    (first,) = await driver.push("x", transaction_id="t")
    kept = await ops.push("again", transaction_id="t")

    await ops.drain()

    result = decode_result((await ops.shown(kept)).result or b"")
    assert result.pushed is not None
    assert [(r.status, r.id, r.seq) for r in result.pushed] == [(PushStatus.DUPLICATE, first.id, first.seq)]


async def test_I15_a_push_with_a_receipt_is_stored_once_though_queued_twice(driver: Driver, ops: Ops) -> None:
    one = driver.batch(driver.message("a"), receipt=driver.receipt("k", '{"n":1}'))
    two = driver.batch(driver.message("b"), receipt=driver.receipt("k", '{"n":2}'))
    await ops.enqueue_batch(one)

    (held,) = await driver.push_batches(two)
    (again,) = await ops.enqueue_batch(two)
    await ops.drain()
    await ops.push("c")
    (recorded,) = await driver.push_batches(two)

    assert held.held
    assert decode_result((await ops.shown(again)).result or b"").recorded == b'{"n":1}'
    assert recorded.recorded == b'{"n":1}'  # also while another waits: it is stored, and overtakes nothing
    assert payloads(await driver.pop()) == ["a"]


async def test_a_push_with_a_receipt_and_several_partitions_is_not_queued(driver: Driver, ops: Ops) -> None:
    batch = driver.batch(
        driver.message("a", partition="A"), driver.message("b", partition="B"), receipt=driver.receipt("k")
    )

    with pytest.raises(SkepError) as refused:
        await ops.enqueue_batch(batch)
    assert refused.value.code is Code.OPERATIONS_AHEAD


async def test_a_queued_ack_settles(driver: Driver, ops: Ops) -> None:
    await driver.push("a", "b")
    a, b = await driver.pop()
    (kept,) = await ops.settle(driver.settlement(a), driver.settlement(b, Outcome.REJECT, error="bad"))

    await ops.drain()

    result = decode_result((await ops.shown(kept)).result or b"")
    assert result.settled is not None
    assert [r.status for r in result.settled] == [SettleStatus.COMPLETED, SettleStatus.DEAD]
    assert payloads(await driver.pop("q.dead")) == ["b"]


async def test_a_queued_ack_with_a_stale_token_is_completed_and_says_so(driver: Driver, ops: Ops) -> None:
    await driver.push("a")
    (a,) = await driver.pop(lease_seconds=10)
    (kept,) = await ops.settle(driver.settlement(a), kind=OperationKind.ACK_SINGLE)
    driver.clock.advance(11)
    (again,) = await driver.pop()

    await ops.drain()

    shown = await ops.shown(kept)
    result = decode_result(shown.result or b"")
    assert shown.status is OperationStatus.COMPLETED
    assert result.settled is not None
    assert [(r.status, r.code) for r in result.settled] == [(SettleStatus.REFUSED, Code.STALE_LEASE)]
    assert [r.status for r in await driver.ack(again)] == [SettleStatus.COMPLETED]


async def test_acks_keep_their_own_partition_and_drain_together(driver: Driver, ops: Ops) -> None:
    for n in range(20):
        await driver.push(str(n), partition=f"P{n}")
    deliveries: list[Delivery] = await driver.pop()
    for delivery in deliveries:
        await ops.settle(driver.settlement(delivery), kind=OperationKind.ACK_SINGLE)

    assert await ops.drain() == 1
    assert (await driver.stats()).completed == 20


async def test_queued_acks_hold_no_pushes(driver: Driver, ops: Ops) -> None:
    await driver.push("a")
    (a,) = await driver.pop()
    await ops.settle(driver.settlement(a))

    (outcome,) = await driver.push_batches(driver.batch(driver.message("b")))

    assert not outcome.held


async def test_a_deleted_queue_takes_its_operations_with_it(driver: Driver, ops: Ops) -> None:
    await driver.create()
    waits, runs = await ops.push("waits"), await ops.push("runs", partition="P")
    token, claimed = await ops.claim(operations=1)
    other = await ops.push("other", queue="other")

    await driver.delete()
    await driver.create()
    performed = await ops.perform(token, claimed)

    assert performed.done == {}
    for kept in (waits, runs):
        shown = await ops.shown(kept)
        assert (shown.status, shown.code) == (OperationStatus.FAILED, Code.QUEUE_NOT_FOUND)
    assert await ops.status(other) is OperationStatus.PENDING
    (anew,) = await driver.push_batches(driver.batch(driver.message("anew")))
    assert not anew.held
    assert payloads(await driver.pop()) == ["anew"]
