"""Release: a delivery that reached nobody is taken back, and does not count as an attempt."""

from __future__ import annotations

import pytest

from skep.errors import Code
from skep.model import QUEUE_MODE_GROUP, Delivery, Ordering, Outcome, Renewal, Retry, Seq, SettleStatus
from tests.contract.driver import Driver, attempts, payloads, seqs

ORDERINGS = [Ordering.PER_KEY, Ordering.FIFO, Ordering.UNORDERED]


async def release(driver: Driver, *deliveries: Delivery) -> None:
    results = await driver.settle(*(driver.settlement(d, Outcome.RELEASE) for d in deliveries))
    assert [(r.status, r.retry_at) for r in results] == [(SettleStatus.RETRYING, driver.now)] * len(deliveries)


@pytest.mark.parametrize("ordering", ORDERINGS)
async def test_I10_a_released_delivery_is_no_attempt(driver: Driver, ordering: Ordering) -> None:
    await driver.create(ordering=ordering)
    await driver.push("a", "b", "c")
    await release(driver, *await driver.pop())

    again = await driver.pop()

    assert (payloads(again), attempts(again)) == (["a", "b", "c"], [1, 1, 1])
    assert (await driver.stats()).retried == 0


@pytest.mark.parametrize("ordering", ORDERINGS)
async def test_I10_the_last_attempt_can_be_released_and_is_had_again(driver: Driver, ordering: Ordering) -> None:
    await driver.create(ordering=ordering, max_attempts=2)
    await driver.push("a")
    await driver.nack(await driver.pop_one(), retry=Retry.NOW, error="first")
    await release(driver, await driver.pop_one())

    again = await driver.pop_one()
    await driver.nack(again, error="second")

    assert again.attempt == 2
    (letter,) = await driver.dead()
    assert (letter.attempts, letter.error) == (2, "second")


@pytest.mark.parametrize("ordering", ORDERINGS)
async def test_I10_with_one_attempt_a_release_is_no_dead_letter(driver: Driver, ordering: Ordering) -> None:
    await driver.create(ordering=ordering, max_attempts=1)
    await driver.push("a")
    await release(driver, await driver.pop_one())
    await driver.expire()

    assert await driver.dead() == []
    assert attempts(await driver.pop()) == [1]


async def test_I4_what_comes_later_stays_behind_what_was_released(driver: Driver) -> None:
    await driver.push("a", "b")
    held = await driver.pop()
    await driver.push("c")
    await release(driver, *held)

    assert payloads(await driver.pop()) == ["a", "b", "c"]


async def test_I4_messages_of_others_between_are_not_in_the_way(driver: Driver) -> None:
    await driver.push_messages(*(driver.message(text, partition=text[0]) for text in ("p1", "r1", "p2", "r2")))
    held = await driver.pop(partition="p")
    await driver.ack(*await driver.pop(partition="r"))
    await release(driver, *held)

    assert [(d.payload, d.attempt) for d in await driver.pop()] == [(b"p1", 1), (b"p2", 1)]
    assert (await driver.stats()).completed == 2


@pytest.mark.parametrize("gone", [[1], [2], [1, 2]])
async def test_I12_what_was_purged_under_a_released_lease_expires(driver: Driver, gone: list[int]) -> None:
    await driver.push("a", "b")
    await driver.reject(*await driver.pop())
    held = await driver.pop("q.dead")
    await driver.purge(seqs=[Seq(seq) for seq in gone])
    await release(driver, *held)

    stats = await driver.stats("q.dead")
    assert (stats.expired, stats.pending) == (len(gone), 2 - len(gone))
    assert attempts(await driver.pop("q.dead")) == [1] * (2 - len(gone))


async def test_a_release_of_part_of_an_ordered_lease_counts_since_somebody_had_it(driver: Driver) -> None:
    await driver.push("a", "b", "c")
    a, b, c = await driver.pop()
    await driver.ack(b)
    await release(driver, a, c)

    (again,) = await driver.pop()
    assert (again.seq, again.attempt) == (a.seq, 2)
    await driver.ack(again)
    assert seqs(await driver.pop()) == [c.seq]
    assert (await driver.stats()).completed == 2


@pytest.mark.parametrize("ordering", ORDERINGS)
async def test_a_second_word_on_a_released_message_is_refused(driver: Driver, ordering: Ordering) -> None:
    await driver.create(ordering=ordering)
    await driver.push("a")
    held = await driver.pop_one()

    results = await driver.settle(driver.settlement(held, Outcome.RELEASE), driver.settlement(held))

    assert [result.code for result in results] == [None, Code.NOT_IN_LEASE]
    assert attempts(await driver.pop()) == [1]
    assert (await driver.stats()).retried == 0


async def test_a_release_in_an_unordered_queue_concerns_its_own_message_only(driver: Driver) -> None:
    await driver.create(ordering=Ordering.UNORDERED)
    await driver.push("a", "b", "c")
    a, b, c = await driver.pop()
    await release(driver, b)

    assert [(d.seq, d.attempt) for d in await driver.pop()] == [(b.seq, 1)]
    assert [r.status for r in await driver.ack(a, c)] == [SettleStatus.COMPLETED] * 2


@pytest.mark.parametrize("ordering", ORDERINGS)
async def test_the_lease_history_says_released(driver: Driver, ordering: Ordering) -> None:
    await driver.create(ordering=ordering)
    await driver.push("a", "b")
    await release(driver, *await driver.pop())

    ((_, lease),) = await driver.store.lease_history(driver.key())
    assert (lease.outcome, lease.messages, lease.completed, lease.attempt) == ("released", 2, 0, 1)


@pytest.mark.parametrize("ordering", [Ordering.PER_KEY, Ordering.UNORDERED])
async def test_I6_a_lease_that_an_operator_ended_is_delivered_again_and_its_token_is_stale(
    driver: Driver, ordering: Ordering
) -> None:
    await driver.create("q", ordering=ordering, max_attempts=5)
    await driver.push("a", partition="p")
    await driver.push("b", partition="other")
    held = {delivery.partition: delivery for delivery in await driver.pop(batch=2)}
    driver.clock.advance(1)

    ended = await driver.store.end_leases(driver.key(), QUEUE_MODE_GROUP, "p", driver.now)

    again = await driver.pop_one()
    assert ended == 1
    assert (again.partition, again.attempt) == ("p", 2)
    assert [result.status for result in await driver.ack(held["p"])] == [SettleStatus.REFUSED]
    assert [result.status for result in await driver.ack(held["other"], again)] == [SettleStatus.COMPLETED] * 2
    assert await driver.store.end_leases(driver.key(), "nobody", "p", driver.now) == 0


@pytest.mark.parametrize("ordering", ORDERINGS)
async def test_I6_a_released_lease_is_fenced_at_once_and_delivered_again(driver: Driver, ordering: Ordering) -> None:
    await driver.create(ordering=ordering, max_attempts=5)
    await driver.push("a", "b", partition="p")
    held = await driver.pop(batch=2)
    place = (driver.key(), held[0].group, held[0].partition)
    driver.clock.advance(1)

    assert await driver.store.release_lease(*place, held[0].token, driver.now) == 1

    # Nobody has popped since: a lease that merely ran out could still be acked and renewed.
    assert [result.code for result in await driver.ack(*held)] == [Code.STALE_LEASE] * 2
    (renewed,) = await driver.store.renew([renewal(held[0])], driver.now)
    assert renewed.code is Code.STALE_LEASE
    assert await driver.store.release_lease(*place, held[0].token, driver.now) == 0
    again = await driver.pop_one()
    assert (again.payload, again.attempt) == (b"a", 2)
    await driver.check_accounts()
    assert [result.status for result in await driver.ack(again)] == [SettleStatus.COMPLETED]


@pytest.mark.parametrize("ordering", ORDERINGS)
async def test_I10_the_last_attempt_that_is_released_dies_and_a_foreign_token_releases_nothing(
    driver: Driver, ordering: Ordering
) -> None:
    await driver.create(ordering=ordering, max_attempts=1)
    await driver.push("a", partition="p")
    held = await driver.pop_one()
    place = (driver.key(), held.group, held.partition)

    assert await driver.store.release_lease(*place, driver.token(), driver.now) == 0
    assert await driver.store.release_lease(driver.key(), "nobody", held.partition, held.token, driver.now) == 0
    assert await driver.store.release_lease(*place, held.token, driver.now) == 1

    assert await driver.pop() == []
    (letter,) = await driver.dead()
    assert (letter.attempts, letter.error) == (1, "lease expired")
    await driver.check_accounts()


def renewal(delivery: Delivery) -> Renewal:
    return Renewal(
        queue=delivery.queue, partition=delivery.partition, token=delivery.token, group=delivery.group, lease_seconds=9
    )
