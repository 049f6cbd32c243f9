"""Why attempts failed: kept for those that did, and for no others, with the error and who held the lease."""

from __future__ import annotations

import pytest

from skep.model import QUEUE_MODE_GROUP, Ordering, Outcome, Retry, Seq
from skep.model.history import FailedAttempt, Journey
from skep.store.rules import FAILURE_BYTES, FAILURES_KEPT
from tests.contract.driver import Driver

ORDERINGS = [Ordering.PER_KEY, Ordering.UNORDERED]
WORKER = 'name="mailer", host="web-3"'


async def failures(driver: Driver, seq: int = 1, queue: str = "q") -> list[FailedAttempt]:
    [found] = await driver.store.failures([(driver.key(queue), Seq(seq))])
    return found


async def outcomes(driver: Driver, seq: int, partition: str = "Default") -> list[str]:
    [found] = await driver.store.deliveries([Journey(driver.key(), partition, Seq(seq), driver.now)])
    return [lease.outcome for lease in found]


@pytest.mark.parametrize("ordering", ORDERINGS)
async def test_every_attempt_that_failed_tells_its_error(driver: Driver, ordering: Ordering) -> None:
    await driver.create(ordering=ordering, max_attempts=3, initial_backoff_ms=0)
    await driver.push("a")
    begun = []
    for number in (1, 2, 3):
        delivery = await driver.pop_one(consumer=WORKER)
        begun.append(driver.now)
        driver.clock.advance(1)
        await driver.nack(delivery, error=f"error {number}", retry=Retry.NOW)

    found = await failures(driver)

    assert [(one.attempt, one.outcome, one.error) for one in found] == [
        (1, "retried", "error 1"), (2, "retried", "error 2"), (3, "dead", "error 3"),
    ]  # fmt: skip
    assert [(one.leased_at, one.failed_at - one.leased_at) for one in found] == [(at, 1_000_000) for at in begun]
    assert {(one.group, one.consumer) for one in found} == {(QUEUE_MODE_GROUP, WORKER)}


@pytest.mark.parametrize("ordering", ORDERINGS)
async def test_a_message_that_is_acked_leaves_no_word(driver: Driver, ordering: Ordering) -> None:
    await driver.create(ordering=ordering)
    await driver.push("a", "b")
    await driver.ack(*await driver.pop(batch=2))

    assert [await failures(driver, seq) for seq in (1, 2)] == [[], []]


@pytest.mark.parametrize("ordering", ORDERINGS)
async def test_a_lease_that_ran_out_says_so_for_all_it_held(driver: Driver, ordering: Ordering) -> None:
    await driver.create(ordering=ordering, lease_seconds=10, max_attempts=2)
    await driver.push("a", "b")
    await driver.pop(batch=2, consumer=WORKER)
    driver.clock.advance(11)

    again = await driver.pop_one(consumer="another")

    found = [one for seq in (1, 2) for one in await failures(driver, seq)]
    assert [(one.seq, one.attempt, one.outcome, one.error, one.consumer) for one in found] == [
        (1, 1, "retried", "lease ran out", WORKER), (2, 1, "retried", "lease ran out", WORKER),
    ]  # fmt: skip
    assert again.attempt == 2


@pytest.mark.parametrize("ordering", ORDERINGS)
async def test_the_last_attempt_that_ran_out_is_told_as_the_death_it_is(driver: Driver, ordering: Ordering) -> None:
    await driver.create(ordering=ordering, lease_seconds=10, max_attempts=1)
    await driver.push("a")
    await driver.pop_one(consumer=WORKER)
    driver.clock.advance(11)

    await driver.expire()

    [only] = await failures(driver)
    assert (only.outcome, only.error, only.consumer) == ("dead", "lease ran out", WORKER)


@pytest.mark.parametrize("ordering", ORDERINGS)
async def test_a_rejected_message_tells_why(driver: Driver, ordering: Ordering) -> None:
    await driver.create(ordering=ordering)
    await driver.push("a")
    await driver.reject(await driver.pop_one(), error="no such customer")

    [only] = await failures(driver)
    assert (only.attempt, only.outcome, only.error, only.consumer) == (1, "dead", "no such customer", None)


@pytest.mark.parametrize("ordering", ORDERINGS)
async def test_groups_fail_each_on_its_own(driver: Driver, ordering: Ordering) -> None:
    await driver.create(ordering=ordering)
    await driver.push("a")
    for group in ("mail", "bill"):
        await driver.nack(await driver.pop_one(group=group), error=f"{group} failed")

    assert {(one.group, one.attempt, one.error) for one in await failures(driver)} == {
        ("mail", 1, "mail failed"), ("bill", 1, "bill failed"),
    }  # fmt: skip


async def test_a_settlement_that_is_refused_or_repeated_adds_nothing(driver: Driver) -> None:
    await driver.create(initial_backoff_ms=0)
    await driver.push("a")
    first = await driver.pop_one()
    await driver.nack(first, error="first", retry=Retry.NOW)
    await driver.nack(first, error="first", retry=Retry.NOW)
    driver.clock.advance(1)
    await driver.pop_one()
    await driver.reject(first, error="late")

    assert [one.error for one in await failures(driver)] == ["first"]


@pytest.mark.parametrize("ordering", ORDERINGS)
async def test_a_transaction_that_is_undone_leaves_no_word(driver: Driver, ordering: Ordering) -> None:
    await driver.create(ordering=ordering)
    await driver.push("a", "b")
    first, second = await driver.pop(batch=2)
    stale = driver.settlement(second)
    await driver.ack(second)
    driver.clock.advance(600)
    outcome = await driver.transact([driver.settlement(first, Outcome.NACK, error="no"), stale], [])

    assert not outcome.committed
    assert await failures(driver) == []


async def test_of_a_message_that_is_tried_on_and_on_the_latest_attempts_are_kept(driver: Driver) -> None:
    await driver.create(max_attempts=0, initial_backoff_ms=0, lease_seconds=1)
    await driver.push("a")
    for number in range(FAILURES_KEPT + 5):
        delivery = await driver.pop_one()
        if number % 2:
            await driver.nack(delivery, error=f"error {number}", retry=Retry.NOW)
        driver.clock.advance(2)
    await driver.pop_one()

    found = await failures(driver)

    assert [one.attempt for one in found] == list(range(6, FAILURES_KEPT + 6))


async def test_an_error_is_cut_in_whole_characters(driver: Driver) -> None:
    await driver.push("a")
    await driver.nack(await driver.pop_one(), error="x" + "€" * FAILURE_BYTES)

    [only] = await failures(driver)
    assert only.error == "x" + "€" * ((FAILURE_BYTES - 1) // 3)


async def test_failures_age_out_and_go_with_their_queue(driver: Driver) -> None:
    if type(driver.store).__name__ == "ReferenceStore":
        pytest.skip("the model forgets nothing")
    await driver.push("a")
    await driver.nack(await driver.pop_one(), error="old")
    driver.clock.advance(8 * 86_400)
    while (await driver.store.sweep(driver.now, 1000)).more:
        pass

    assert await failures(driver) == []
    await driver.nack(await driver.pop_one(), error="new")
    await driver.delete()
    while (await driver.store.sweep(driver.now, 1000)).more:
        pass
    await driver.push("b")
    assert await failures(driver) == []
    assert await driver.store.failures([(driver.key("nosuch"), Seq(1))]) == [[]]


@pytest.mark.parametrize("ordering", ORDERINGS)
async def test_messages_of_one_call_are_told_what_became_of_each(driver: Driver, ordering: Ordering) -> None:
    """A lease's row in the history has one outcome, though its messages may have fared differently."""
    await driver.create(ordering=ordering, initial_backoff_ms=0)
    await driver.push("a", "b", "c")
    first, second, _ = await driver.pop(batch=3)
    await driver.settle(driver.settlement(first), driver.settlement(second, Outcome.NACK, error="no", retry=Retry.NOW))

    told = [await outcomes(driver, seq) for seq in (1, 2, 3)]

    assert told[:2] == [["completed"], ["retried"]]
    assert told[2] == (["returned"] if ordering is Ordering.PER_KEY else [])


async def test_a_partition_tells_why_its_first_message_failed_last(driver: Driver) -> None:
    await driver.push("a", "b", partition="p")
    await driver.nack((await driver.pop(batch=2))[0], error="no such customer")

    [partition] = await driver.store.partition_stats(driver.key(), QUEUE_MODE_GROUP, driver.now)
    assert partition.last_error == "no such customer"
