"""Repeats: whoever did not get the answer to a settlement or transaction says it again, and gets the first answer.

Nothing happens twice, and only the same gets it: the same token, message and verdict, or the whole transaction (I6, I15).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
import pytest_asyncio

from skep.errors import Code, SkepError
from skep.model import (
    Delivery,
    Ordering,
    Outcome,
    PushStatus,
    Retry,
    Settlement,
    SettleResult,
    SettleStatus,
    Start,
    StartMode,
)
from skep.model.operation import decode_result
from skep.model.transaction import Transaction, fingerprint_of
from skep.store.outcomes import REMEMBER_SECONDS
from skep.store.protocol import Store
from skep.store.sqlite import SqliteStore
from tests.contract.driver import Driver, payloads
from tests.contract.queueing import Ops
from tests.support.owned_store import OwnedStore

OK = SettleStatus.COMPLETED
ORDERINGS = [Ordering.PER_KEY, Ordering.UNORDERED]


@pytest_asyncio.fixture(loop_scope="session", params=ORDERINGS)
async def leased(request: pytest.FixtureRequest, driver: Driver) -> list[Delivery]:
    """Three messages under one lease, or in an unordered queue under one token."""
    await driver.create(ordering=request.param)
    await driver.push("a", "b", "c")
    return sorted(await driver.pop(), key=lambda delivery: delivery.seq)


def again(results: list[SettleResult]) -> list[SettleResult]:
    """The same answers, marked as those of a repeat."""
    return [msgspec.structs.replace(result, repeated=True, frees=False) for result in results]


SAID: dict[str, dict[str, Any]] = {
    "ack": {"outcome": Outcome.ACK},
    "nack": {"outcome": Outcome.NACK, "jitter": 0.5},
    "nack now": {"outcome": Outcome.NACK, "retry": Retry.NOW},
    "nack then": {"outcome": Outcome.NACK, "retry": Retry.AT, "retry_at": 2**52},
    "reject": {"outcome": Outcome.REJECT, "error": "bad"},
    "release": {"outcome": Outcome.RELEASE},
}


@pytest.mark.parametrize("said", SAID.values(), ids=SAID)
async def test_I6_a_repeat_gets_the_first_answer_and_changes_nothing(
    driver: Driver, leased: list[Delivery], said: dict[str, Any]
) -> None:
    words = [driver.settlement(delivery, **said) for delivery in leased]
    first = await driver.settle(*words)
    assert {result.code for result in first} == {None}
    before, dead = await driver.stats(), await driver.dead()

    # The engine draws another jitter each time.
    repeated = await driver.settle(*(msgspec.structs.replace(one, jitter=0.25) for one in words))

    assert repeated == again(first)
    assert (await driver.stats(), await driver.dead()) == (before, dead)


async def test_I6_a_repeat_gets_the_first_answer_while_somebody_else_works_on_the_message(
    driver: Driver, leased: list[Delivery]
) -> None:
    first = await driver.nack(*leased)
    others = await driver.pop()

    assert await driver.nack(*leased) == again(first)
    assert [r.status for r in await driver.ack(*others)] == [OK] * len(others)
    assert await driver.nack(*leased) == again(first)


@pytest.mark.parametrize("said", SAID.values(), ids=SAID)
async def test_I6_another_verdict_is_refused(driver: Driver, leased: list[Delivery], said: dict[str, Any]) -> None:
    await driver.settle(*(driver.settlement(delivery, **said) for delivery in leased))
    before = await driver.stats()

    for other in SAID.values():
        if other is not said:
            results = await driver.settle(*(driver.settlement(delivery, **other) for delivery in leased))
            assert {result.code for result in results} == {Code.STALE_LEASE}
    assert await driver.stats() == before


async def test_I6_another_token_message_partition_or_group_is_refused(driver: Driver, leased: list[Delivery]) -> None:
    a, b, _ = leased
    await driver.ack(a)
    await driver.pop(group="other")
    strange = [
        driver.settlement(a, token=driver.token()),
        msgspec.structs.replace(driver.settlement(a), seq=b.seq + 100),
        msgspec.structs.replace(driver.settlement(a), group="other"),
        msgspec.structs.replace(driver.settlement(a), group="none"),
    ]

    assert {result.status for result in await driver.settle(*strange)} == {SettleStatus.REFUSED}


async def test_I6_in_an_ordered_queue_another_partition_is_refused(driver: Driver) -> None:
    await driver.push("a", partition="1")
    (a,) = await driver.pop()
    await driver.ack(a)

    (result,) = await driver.settle(msgspec.structs.replace(driver.settlement(a), partition="2"))

    assert result.code is Code.STALE_LEASE


async def test_what_was_settled_under_a_lease_that_lives_is_told_again(driver: Driver, leased: list[Delivery]) -> None:
    a, b, c = leased
    (first,) = await driver.ack(b)

    assert await driver.ack(b) == again([first])
    results = await driver.ack(a, b, c)

    assert [(r.status, r.repeated) for r in results] == [(OK, False), (OK, True), (OK, False)]
    assert (await driver.stats()).completed == 3


async def test_I6_what_lies_between_settled_messages_and_ran_out_is_stale(
    driver: Driver, leased: list[Delivery]
) -> None:
    """The history says from where to where a settlement went: what it did not name between is not settled by it."""
    a, b, c = leased
    first = await driver.ack(a, c)
    await driver.store.end_leases(driver.key(), b.group, b.partition, driver.now)
    (other,) = await driver.pop()
    assert other.seq == b.seq

    (late,) = await driver.ack(b)
    assert (late.status, late.code) == (SettleStatus.REFUSED, Code.STALE_LEASE)
    assert [r.status for r in await driver.ack(other)] == [OK]
    assert await driver.ack(a, c) == again(first)


async def test_settlements_over_several_partitions_are_told_apart(driver: Driver) -> None:
    await driver.push_messages(*(driver.message(p, partition=p) for p in "abab"))
    deliveries = sorted(await driver.pop(), key=lambda delivery: delivery.seq)
    words = [
        driver.settlement(delivery, Outcome.REJECT if delivery.seq == 2 else Outcome.ACK) for delivery in deliveries
    ]
    first = await driver.settle(*words)

    assert await driver.settle(*words) == again(first)
    assert await driver.settle(*reversed(words)) == again(first[::-1])
    assert [await driver.settle(one) for one in words] == [again([result]) for result in first]


async def test_part_of_what_was_settled_together_may_be_repeated(driver: Driver, leased: list[Delivery]) -> None:
    """Calls of several callers go to the store together, and each comes again by itself."""
    first = await driver.ack(*leased)

    for delivery, result in zip(leased, first, strict=True):
        assert await driver.ack(delivery) == again([result])


async def test_a_message_that_is_named_twice_in_one_call_is_a_repeat(driver: Driver, leased: list[Delivery]) -> None:
    """A caller whose patience was over came again while its first call still waited, and both went to the store together."""
    a, b, c = leased

    acked, twice = await driver.ack(b, b)
    assert (acked.repeated, twice) == (False, again([acked])[0])
    nacked = await driver.nack(a, c, a)

    assert nacked[2] == again(nacked)[0]
    assert (await driver.stats()).retried == 2


async def test_what_was_settled_at_once_was_told_to_nobody(driver: Driver) -> None:
    await driver.push("a")
    delivery = await driver.pop_one(auto_ack=True)

    assert [r.code for r in await driver.ack(delivery)] == [Code.STALE_LEASE]


async def test_after_a_while_it_is_forgotten(driver: Driver, leased: list[Delivery]) -> None:
    first = await driver.ack(*leased)
    driver.clock.advance(REMEMBER_SECONDS - 1)
    assert await driver.ack(*leased) == again(first)
    driver.clock.advance(1)

    assert {r.code for r in await driver.ack(*leased)} == {Code.STALE_LEASE}


async def test_only_the_newest_leases_are_looked_through(
    driver: Driver, leased: list[Delivery], monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many ended: what is refused must not cost more and more."""
    for store in ("sqlite", "postgres"):
        monkeypatch.setattr(f"skep.store.{store}.outcomes.REMEMBERED_LEASES", 3)
    if type(driver.store).__name__ == "ReferenceStore":
        return  # which looks through all
    (first,) = await driver.ack(leased[0])
    await driver.ack(leased[1])
    await driver.ack(leased[2])
    assert await driver.ack(leased[0]) == again([first])
    await driver.push("d")
    await driver.ack(*await driver.pop())

    assert [r.code for r in await driver.ack(leased[0])] == [Code.STALE_LEASE]
    assert [r.repeated for r in await driver.ack(leased[1])] == [True]


async def test_a_seek_changes_nothing_about_what_was_answered(driver: Driver, leased: list[Delivery]) -> None:
    first = await driver.ack(*leased)
    await driver.seek(Start(StartMode.ALL))

    assert await driver.ack(*leased) == again(first)
    assert (await driver.stats()).completed == 0


async def test_a_group_that_was_deleted_takes_it_along(driver: Driver, leased: list[Delivery]) -> None:
    await driver.ack(*leased)
    await driver.delete_group()
    assert {r.code for r in await driver.ack(*leased)} == {Code.STALE_LEASE}
    await driver.seek(Start(StartMode.ALL))

    assert {r.code for r in await driver.ack(*leased)} == {Code.STALE_LEASE}


async def test_a_repeated_renewal_moves_the_deadline_again(driver: Driver) -> None:
    """There is nothing to remember: a lease that was renewed can be renewed again."""
    await driver.push("a")
    delivery = await driver.pop_one(lease_seconds=10)
    await driver.renew(delivery, 20)
    driver.clock.advance(5)

    assert (await driver.renew(delivery, 20)).deadline == driver.later(20)


async def test_a_server_that_starts_anew_still_knows(
    make_store: Callable[[], Store], driver: Driver, leased: list[Delivery]
) -> None:
    """It may have died after the commit and before the answer; the repeat may come to another one."""
    first = await driver.ack(*leased)
    if isinstance(driver.store, SqliteStore) and driver.store._path == ":memory:":
        return  # which has nothing to start anew from
    if isinstance(driver.store, SqliteStore | OwnedStore):
        await driver.store.close()
        await driver.store.open()
        assert await driver.ack(*leased) == again(first)
        return
    other = driver.store if type(driver.store).__name__ == "ReferenceStore" else make_store()
    if other is not driver.store:
        await other.open()
    assert await other.settle([driver.settlement(d) for d in leased], driver.now) == again(first)
    if other is not driver.store:
        await other.close()


async def test_of_two_that_come_at_once_one_is_the_repeat(driver: Driver, leased: list[Delivery]) -> None:
    words = [driver.settlement(delivery) for delivery in leased]

    both = await asyncio.gather(*(driver.store.settle(words, driver.now) for _ in range(2)))

    assert sorted([r.repeated for r in results] for results in both) == [[False] * 3, [True] * 3]
    assert {r.status for results in both for r in results} == {OK}
    assert (await driver.stats()).completed == 3


# operations


async def test_a_queued_ack_that_was_done_meanwhile_is_told_the_first_answer(driver: Driver, ops: Ops) -> None:
    await driver.push("a")
    delivery = await driver.pop_one()
    await ops.settle(driver.settlement(delivery))
    (first,) = await driver.ack(delivery)

    performed = await ops.perform(*await ops.claim())

    (result,) = performed.done.values()
    assert decode_result(result).settled == again([first])
    assert (await driver.stats()).completed == 1


# transactions


def transaction(driver: Driver, *settlements: Settlement, pushed: str = "out", **fields: Any) -> Transaction:
    """A transaction as a caller sends it: each time with fresh ids."""
    messages = [driver.message(pushed, "next", **fields)]
    fingerprint = fingerprint_of(settlements, messages, [], [])
    return Transaction(list(settlements), driver.batch(*messages), [], [], fingerprint)


async def test_I15_a_repeated_transaction_gets_the_first_outcome_and_pushes_nothing(
    driver: Driver, leased: list[Delivery]
) -> None:
    a, b, c = leased
    words = [driver.settlement(a), driver.settlement(b, Outcome.REJECT), driver.settlement(c)]
    (first,) = await driver.store.transact([transaction(driver, *words)], driver.now)
    assert (first.committed, first.repeated) == (True, False)
    before = await driver.stats()

    (repeat,) = await driver.store.transact([transaction(driver, *words)], driver.now)

    assert (repeat.committed, repeat.repeated) == (True, True)
    assert repeat.settled == first.settled
    assert [(r.status, r.id, r.seq) for r in repeat.pushed.results] == [
        (r.status, r.id, r.seq) for r in first.pushed.results
    ]
    assert payloads(await driver.pop("next")) == ["out"]
    assert await driver.stats() == before


async def test_I15_I6_another_transaction_with_the_same_acks_is_refused(driver: Driver, leased: list[Delivery]) -> None:
    words = [driver.settlement(delivery) for delivery in leased]
    await driver.store.transact([transaction(driver, *words)], driver.now)

    others = [
        transaction(driver, *words, pushed="something else"),
        transaction(driver, *words, partition="elsewhere"),
        transaction(driver, *words[:2]),
        transaction(driver, *words[::-1]),
    ]
    outcomes = [(await driver.store.transact([one], driver.now))[0] for one in others]

    assert [outcome.committed for outcome in outcomes] == [False] * 4
    assert {result.code for outcome in outcomes for result in outcome.settled} <= {Code.STALE_LEASE, Code.BATCH_REFUSED}
    assert payloads(await driver.pop("next")) == ["out"]


async def test_I15_a_transaction_does_not_count_acks_that_were_made_without_it(
    driver: Driver, leased: list[Delivery]
) -> None:
    """Else its push would not be fenced by anything."""
    words = [driver.settlement(delivery) for delivery in leased]
    await driver.settle(*words)

    (outcome,) = await driver.store.transact([transaction(driver, *words)], driver.now)

    assert not outcome.committed
    assert await driver.store.get_queue(driver.key("next")) is None


async def test_an_ack_that_was_made_in_a_transaction_may_be_repeated_alone(
    driver: Driver, leased: list[Delivery]
) -> None:
    words = [driver.settlement(delivery) for delivery in leased]
    (first,) = await driver.store.transact([transaction(driver, *words)], driver.now)

    assert await driver.settle(*words) == again(first.settled)


async def test_I15_a_repeat_gets_the_first_outcome_although_the_queue_is_full_by_now(driver: Driver) -> None:
    await driver.create("next", max_depth=1)
    await driver.push("in")
    one = driver.settlement(await driver.pop_one())
    (first,) = await driver.store.transact([transaction(driver, one)], driver.now)

    (repeat,) = await driver.store.transact([transaction(driver, one)], driver.now)

    assert (repeat.committed, repeat.pushed.results[0].id) == (True, first.pushed.results[0].id)


async def test_I15_effects_and_receipts_of_a_repeated_transaction_happen_once(driver: Driver) -> None:
    await driver.push("in")
    one = driver.settlement(await driver.pop_one())
    first = await driver.transact([one], [], effects=[driver.effect(0, 5)], receipts=[driver.receipt("k")])
    driver.clock.advance(1)  # a receipt of the repeat would expire later

    repeat = await driver.transact([one], [], effects=[driver.effect(0, 5)], receipts=[driver.receipt("k")])

    assert (first.committed, repeat.committed, repeat.repeated) == (True, True, True)
    assert await driver.counters("1") == [(1, 5)]
    other = await driver.transact([one], [], effects=[driver.effect(0, 6)], receipts=[driver.receipt("k")])
    assert (other.committed, other.conflict) == (False, Code.RECEIPT_EXISTS)


async def test_several_repeats_among_other_transactions_of_one_call(driver: Driver) -> None:
    await driver.push_messages(*(driver.message(p, partition=p) for p in "ab"))
    a, b = (driver.settlement(delivery) for delivery in await driver.pop())
    (first,) = await driver.store.transact([transaction(driver, a)], driver.now)

    outcomes = await driver.store.transact(
        [transaction(driver, a), transaction(driver, b), transaction(driver, b)], driver.now
    )

    assert [(o.committed, o.repeated) for o in outcomes] == [(True, True), (True, False), (True, True)]
    assert outcomes[0].pushed.results[0].id == first.pushed.results[0].id
    assert outcomes[2].pushed.results[0].id == outcomes[1].pushed.results[0].id
    assert payloads(await driver.pop("next")) == ["out", "out"]


async def test_duplicates_that_a_transaction_pushed_are_told_again_as_such(driver: Driver) -> None:
    await driver.push("out", queue="next", transaction_id="t")
    await driver.push("in")
    one = driver.settlement(await driver.pop_one())
    (first,) = await driver.store.transact([transaction(driver, one, transaction_id="t")], driver.now)

    (repeat,) = await driver.store.transact([transaction(driver, one, transaction_id="t")], driver.now)

    assert [(r.status, r.id) for r in repeat.pushed.results] == [(PushStatus.DUPLICATE, first.pushed.results[0].id)]


async def test_a_repeat_does_not_wait_for_operations_that_came_since(driver: Driver, ops: Ops) -> None:
    await driver.push("in")
    one = driver.settlement(await driver.pop_one())
    await driver.store.transact([transaction(driver, one)], driver.now)
    await ops.push("waits", queue="next")

    (repeat,) = await driver.store.transact([transaction(driver, one)], driver.now)

    assert repeat.repeated
    with pytest.raises(SkepError) as ahead:
        await driver.store.transact([transaction(driver, one, pushed="another")], driver.now)
    assert ahead.value.code is Code.OPERATIONS_AHEAD
