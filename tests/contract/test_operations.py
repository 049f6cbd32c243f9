"""Operations: kept whole, claimed in order, performed once, and nothing that was accepted vanishes (I13)."""

from __future__ import annotations

import msgspec
import pytest

from skep.errors import Code, SkepError
from skep.model import (
    SEALED_TYPE,
    DeadLetterFilter,
    DeadReason,
    Delivery,
    Ordering,
    Outcome,
    PushBatch,
    PushStatus,
    SettleStatus,
)
from skep.model.operation import GivenBack, OperationKind, OperationStatus, decode_result, encode_push
from tests.contract.driver import Driver, payloads
from tests.contract.queueing import Ops, texts


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


async def test_a_claim_takes_a_partition_only_from_its_oldest_live_one_on(driver: Driver, ops: Ops) -> None:
    for text in "abc":
        await ops.push(text)
    first_token, first = await ops.claim(operations=1)

    _, nothing = await ops.claim()
    await ops.perform(first_token, first)
    _, rest = await ops.claim()

    assert texts(first) == ["a"]
    assert nothing == []
    assert texts(rest) == ["b", "c"]


async def test_a_claim_is_bounded_in_operations_messages_and_bytes(driver: Driver, ops: Ops) -> None:
    for n in range(4):
        await ops.push(f"{n}-a", f"{n}-b", partition=f"P{n}")

    assert texts((await ops.claim(operations=1))[1]) == ["0-a", "0-b"]
    assert texts((await ops.claim(messages=3))[1]) == ["1-a", "1-b"]
    assert texts((await ops.claim(bytes=1))[1]) == ["2-a", "2-b"]
    assert texts((await ops.claim())[1]) == ["3-a", "3-b"]


async def test_two_claims_never_share_an_operation(driver: Driver, ops: Ops) -> None:
    for n in range(10):
        await ops.push(str(n), partition=f"P{n}")

    taken = [texts((await ops.claim(operations=3))[1]) for _ in range(5)]

    assert sorted(text for claim in taken for text in claim) == [str(n) for n in range(10)]


@pytest.fixture
def short_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("rules", "sqlite.operations", "postgres.operations"):
        monkeypatch.setattr(f"skep.store.{module}.CLAIM_HEADS", 2)
        monkeypatch.setattr(f"skep.store.{module}.CLAIM_PASSED", 1)


@pytest.mark.usefixtures("short_looks")
@pytest.mark.parametrize("free", ["00", "255", "99"])
async def test_claims_go_on_where_the_last_one_ended_until_they_have_been_everywhere(
    driver: Driver, ops: Ops, free: str
) -> None:
    for n in range(10, 40):
        await ops.push("blocked", partition=str(n))
    while (await ops.claim())[1]:
        pass
    for _ in range(3):
        claims = 1
        while (await ops.claim_once())[1].more:
            claims += 1
        assert claims <= 4  # at eight partitions each
    await ops.push("free", partition=free)

    assert texts((await ops.claim())[1]) == ["free"]
    assert (await ops.claim())[1] == []


async def test_acks_come_before_pushes_and_batches_of_them_before_single_ones(driver: Driver, ops: Ops) -> None:
    await driver.push("a", partition="A")
    await driver.push("b", partition="B")
    a, b = await driver.pop()
    await ops.push("push", partition="C")
    await ops.settle(driver.settlement(a), kind=OperationKind.ACK_SINGLE)
    await ops.settle(driver.settlement(b), kind=OperationKind.ACK_BATCH)

    _, first = await ops.claim()
    _, second = await ops.claim()

    assert [one.kind for one in first] == [OperationKind.ACK_BATCH, OperationKind.ACK_SINGLE] or [
        one.kind for one in first
    ] == [
        OperationKind.ACK_SINGLE,
        OperationKind.ACK_BATCH,
    ]
    assert [one.kind for one in second] == [OperationKind.PUSH]


async def test_a_claim_that_ran_out_is_worthless(driver: Driver, ops: Ops) -> None:
    await ops.push("a")
    await ops.push("b")
    slow_token, slow = await ops.claim()
    driver.clock.advance(30)
    token, claimed = await ops.claim()

    late = await ops.perform(slow_token, slow)
    in_time = await ops.perform(token, claimed)

    # Both were claimed together; the second claim has only the first of them, since what was tried before comes alone.
    assert texts(claimed) == ["a"]
    assert (late.done, late.lost) == ({}, [one.position for one in slow])
    assert list(in_time.done) == [claimed[0].position]
    await ops.drain()
    assert payloads(await driver.pop()) == ["a", "b"]


async def test_a_claim_whose_time_is_up_counts_while_nobody_else_wanted_it(driver: Driver, ops: Ops) -> None:
    await ops.push("a")
    token, claimed = await ops.claim()
    driver.clock.advance(1000)

    performed = await ops.perform(token, claimed)

    assert list(performed.done) == [claimed[0].position]


async def test_reclaiming_counts_as_a_try_and_each_claim_lasts_longer(driver: Driver, ops: Ops) -> None:
    await driver.create()
    kept = await ops.push("poison")
    first = driver.now

    for tries in range(1, 5):
        _, (one,) = await ops.claim()
        assert (one.tries, one.exhausted) == (tries, False)
        driver.clock.advance(30 * 2 ** (tries - 1) - 1)
        assert (await ops.claim())[1] == []
        driver.clock.advance(1)
    token, (one,) = await ops.claim()
    assert (one.tries, one.exhausted, one.code, one.blocked_at) == (5, True, Code.INTERNAL, first)

    assert await ops.back(token, one, None, error="nobody came back", code=Code.INTERNAL) == [one.position]
    assert await ops.status(kept) is OperationStatus.FAILED


async def test_a_claim_lasts_no_longer_than_64_times_its_timeout(driver: Driver, ops: Ops) -> None:
    await ops.push("poison")

    for _ in range(10):
        assert len((await ops.claim())[1]) == 1
        driver.clock.advance(30 * 64)


async def test_one_that_failed_and_came_back_is_not_exhausted(driver: Driver, ops: Ops) -> None:
    await ops.push("fails")
    for _ in range(8):
        token, (one,) = await ops.claim()
        await ops.back(token, one, 0, error="it broke", code=Code.INTERNAL, blocked_at=driver.now)

    _, (one,) = await ops.claim()

    assert (one.tries, one.exhausted) == (9, False)


async def test_one_that_was_tried_before_is_claimed_alone(driver: Driver, ops: Ops) -> None:
    for n in range(3):
        await ops.push(str(n), partition=f"P{n}")
    token, claimed = await ops.claim(operations=2)
    await ops.back(token, claimed[0], 0, untried=True)
    await ops.back(token, claimed[1], 0, error="no")

    first, second, third = [(await ops.claim())[1] for _ in range(3)]

    assert [texts(first), texts(second), texts(third)] == [["0"], ["1"], ["2"]]


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
