"""Unordered queues: many at a time, each message on its own, higher priority first."""

from __future__ import annotations

from typing import Any

import pytest
import pytest_asyncio

from skep.clock import ManualClock
from skep.errors import Code
from skep.model import Delivery, Ordering, Outcome, Retry, SettleStatus
from tests.contract.driver import Driver, attempts, payloads, seqs


@pytest_asyncio.fixture(loop_scope="session")
async def unordered(driver: Driver) -> Driver:
    await driver.create(ordering=Ordering.UNORDERED)
    return driver


async def pop_all(driver: Driver, **fields: Any) -> list[Delivery]:
    """Everything that can be had, in as many pops as it takes."""
    found: list[Delivery] = []
    while more := await driver.pop(**fields):
        found += more
    return found


async def test_what_is_due_for_longer_comes_first(unordered: Driver) -> None:
    await unordered.push("a", "b")
    a, b = await unordered.pop()
    await unordered.nack(a, retry=Retry.AT, retry_at=unordered.later(5))
    await unordered.nack(b, retry=Retry.AT, retry_at=unordered.later(3))
    unordered.clock.advance(10)

    assert payloads([await unordered.pop_one(), await unordered.pop_one()]) == ["b", "a"]


async def test_I5_several_may_work_on_one_partition(unordered: Driver) -> None:
    await unordered.push("a", "b", "c", "d")

    first = await unordered.pop(batch=2)
    second = await unordered.pop(batch=2)

    assert sorted(seqs(first) + seqs(second)) == [1, 2, 3, 4]
    assert await unordered.pop() == []
    assert {r.status for r in await unordered.ack(*first, *second)} == {SettleStatus.COMPLETED}
    stats = await unordered.stats()
    assert (stats.completed, stats.in_flight, stats.progress_seq) == (4, 0, 4)


async def test_I5_a_message_in_flight_is_given_to_nobody_else(unordered: Driver) -> None:
    await unordered.push(*map(str, range(250)))
    taken: list[int] = []
    for _ in range(9):
        taken += seqs(await unordered.pop(batch=30))

    assert sorted(taken) == list(range(1, 251))


async def test_higher_priority_comes_first(unordered: Driver) -> None:
    await unordered.push_messages(
        unordered.message("low", priority=-1),
        unordered.message("normal"),
        unordered.message("high", priority=9),
        unordered.message("higher", priority=10),
    )

    assert payloads(await unordered.pop(batch=3)) == ["higher", "high", "normal"]
    assert payloads(await unordered.pop()) == ["low"]


async def test_priority_wins_over_age(unordered: Driver) -> None:
    await unordered.push("old")
    unordered.clock.advance(60)
    await unordered.push("urgent", priority=1)

    assert payloads(await unordered.pop(batch=2)) == ["urgent", "old"]


async def test_within_a_priority_the_oldest_comes_first(unordered: Driver) -> None:
    for payload in "abc":
        await unordered.push(payload)
        unordered.clock.advance(1)

    assert payloads(await unordered.pop(batch=2)) == ["a", "b"]


async def test_a_nack_concerns_its_own_message_only(unordered: Driver) -> None:
    await unordered.push("a", "b", "c")
    a, b, c = sorted(await unordered.pop(), key=lambda d: d.seq)

    (result,) = await unordered.nack(b, retry=Retry.BACKOFF)
    assert (result.status, result.retry_at) == (SettleStatus.RETRYING, unordered.later(1))
    assert [r.status for r in await unordered.ack(a, c)] == [SettleStatus.COMPLETED] * 2
    assert await unordered.pop() == []

    unordered.clock.advance(1)
    assert [(d.seq, d.attempt) for d in await unordered.pop()] == [(b.seq, 2)]


async def test_I6_a_nacked_message_has_left_its_lease(unordered: Driver) -> None:
    await unordered.push("a", "b")
    a, _ = sorted(await unordered.pop(), key=lambda d: d.seq)
    await unordered.nack(a)

    (result,) = await unordered.ack(a)

    assert result.status is SettleStatus.REFUSED
    assert result.code in (Code.NOT_IN_LEASE, Code.STALE_LEASE)
    assert (await unordered.stats()).completed == 0


async def test_I6_a_stale_token_changes_nothing(unordered: Driver) -> None:
    await unordered.push("a", "b")
    stale = await unordered.pop(lease_seconds=1)
    unordered.clock.advance(1)
    fresh = await pop_all(unordered)

    assert [r.code for r in await unordered.ack(*stale)] == [Code.STALE_LEASE] * 2
    assert (await unordered.renew(stale[0])).code is Code.STALE_LEASE
    assert [r.status for r in await unordered.ack(*fresh)] == [SettleStatus.COMPLETED] * 2


async def test_I9_a_lease_that_ran_out_comes_again_without_what_was_settled(unordered: Driver) -> None:
    await unordered.push("a", "b", "c")
    leased = sorted(await unordered.pop(lease_seconds=10), key=lambda d: d.seq)
    await unordered.ack(leased[1])
    unordered.clock.advance(10)

    again = await pop_all(unordered)

    assert sorted((d.seq, d.attempt) for d in again) == [(1, 2), (3, 2)]


async def test_what_comes_again_comes_alone(unordered: Driver) -> None:
    await unordered.push("a", "b", "c")
    a, b, c = await unordered.pop(lease_seconds=10)
    await unordered.nack(b, retry=Retry.NOW)
    await unordered.push("d", "e")

    sizes = []
    unordered.clock.advance(10)
    while found := await unordered.pop():
        sizes.append(sorted((d.seq, d.attempt) for d in found))

    assert sorted(sizes) == [[(a.seq, 2)], [(b.seq, 2)], [(c.seq, 2)], [(4, 1), (5, 1)]]


async def test_I10_what_kills_its_consumer_uses_up_its_own_attempts_only(driver: Driver) -> None:
    await driver.create(ordering=Ordering.UNORDERED, max_attempts=3)
    await driver.push("good", "bad", "fine")
    for _ in range(10):
        while found := await driver.pop(lease_seconds=1):
            if b"bad" not in [d.payload for d in found]:
                await driver.ack(*found)
        driver.clock.advance(1)

    assert [(letter.payload, letter.attempts) for letter in await driver.dead()] == [(b"bad", 3)]
    assert (await driver.stats()).completed == 2


async def test_I10_a_first_delivery_that_is_the_last_comes_alone(driver: Driver) -> None:
    await driver.create(ordering=Ordering.UNORDERED, max_attempts=1)
    await driver.push("good", "bad")

    assert [len(await driver.pop()) for _ in range(3)] == [1, 1, 0]


async def test_a_lease_that_ran_out_may_be_taken_in_parts(unordered: Driver) -> None:
    await unordered.push("a", "b", "c")
    stale = await unordered.pop(lease_seconds=10)
    unordered.clock.advance(10)

    first = await unordered.pop(batch=1)
    second = await pop_all(unordered)

    assert sorted(seqs(first) + seqs(second)) == [1, 2, 3]
    assert attempts(first) + attempts(second) == [2, 2, 2]
    assert {r.code for r in await unordered.ack(*stale)} == {Code.STALE_LEASE}
    assert {r.status for r in await unordered.ack(*first, *second)} == {SettleStatus.COMPLETED}


async def test_a_renewal_keeps_the_lease(unordered: Driver) -> None:
    await unordered.push("a", "b")
    first, _ = await unordered.pop(lease_seconds=10)
    unordered.clock.advance(5)

    assert (await unordered.renew(first, 10)).deadline == unordered.later(10)

    unordered.clock.advance(9)
    assert await unordered.pop() == []


async def test_I10_attempts_are_exact_and_bounded(driver: Driver) -> None:
    await driver.create(ordering=Ordering.UNORDERED, max_attempts=3)
    await driver.push("a", "b")
    seen, results = [], []
    for outcome in (Outcome.NACK, None, Outcome.NACK):
        found = sorted(await pop_all(driver, lease_seconds=1), key=lambda d: d.seq)
        seen.append(attempts(found))
        results = await driver.nack(*found, error="broken") if outcome else []
        driver.clock.advance(1)

    assert seen == [[1, 1], [2, 2], [3, 3]]
    assert [r.status for r in results] == [SettleStatus.DEAD] * 2
    assert await driver.pop() == []
    assert [(dead.attempts, dead.error, dead.reason.value) for dead in await driver.dead()] == [
        (3, "broken", "max_attempts")
    ] * 2


async def test_I10_what_kills_its_consumer_ends_dead(driver: Driver) -> None:
    await driver.create(ordering=Ordering.UNORDERED, max_attempts=2)
    await driver.push("a", "b")
    for _ in range(2):
        assert len(await pop_all(driver, lease_seconds=1)) == 2
        driver.clock.advance(1)

    assert await driver.pop() == []

    assert sorted(letter.source_seq for letter in await driver.dead()) == [1, 2]
    assert {letter.error for letter in await driver.dead()} == {"lease expired"}
    assert (await driver.stats()).dead == 2


async def test_mixed_outcomes_in_one_call(unordered: Driver) -> None:
    await unordered.push(*"abcd")
    a, b, c, d = sorted(await unordered.pop(), key=lambda d: d.seq)

    results = await unordered.settle(
        unordered.settlement(a, Outcome.NACK, retry=Retry.NOW),
        unordered.settlement(b, Outcome.REJECT, error="bad"),
        unordered.settlement(c),
        unordered.settlement(c),
        unordered.settlement(d),
    )

    assert [r.status.value for r in results] == ["retrying", "dead", "completed", "completed", "completed"]
    assert [r.repeated for r in results] == [False, False, False, True, False]
    assert (await unordered.stats()).completed == 2
    assert seqs(await unordered.pop()) == [1]


async def test_of_a_message_named_twice_the_first_outcome_counts(unordered: Driver) -> None:
    await unordered.push("a", "b")
    a, _ = sorted(await unordered.pop(), key=lambda d: d.seq)

    nacked, acked = await unordered.settle(
        unordered.settlement(a, Outcome.NACK, retry=Retry.NOW), unordered.settlement(a)
    )

    assert (nacked.status, acked.code) == (SettleStatus.RETRYING, Code.NOT_IN_LEASE)
    assert (await unordered.stats()).completed == 0


async def test_one_partition_or_a_few_can_be_asked_for(unordered: Driver) -> None:
    await unordered.push_messages(*(unordered.message(p + n, partition=p) for p in "abc" for n in "12"))

    assert sorted(payloads(await unordered.pop(partition="b"))) == ["b1", "b2"]
    rest = await unordered.pop(max_partitions=1)
    assert sorted(payloads(rest)) == ["a1", "a2"]


async def test_delayed_processing_holds_each_message_back(driver: Driver) -> None:
    await driver.create(ordering=Ordering.UNORDERED, delayed_processing_seconds=10)
    await driver.push("a")
    driver.clock.advance(4)
    await driver.push("b")
    assert await driver.pop() == []

    driver.clock.advance(6)
    assert payloads(await driver.pop()) == ["a"]
    driver.clock.advance(4)
    assert payloads(await driver.pop()) == ["b"]


async def test_a_window_does_not_apply(driver: Driver) -> None:
    await driver.create(ordering=Ordering.UNORDERED, window_buffer_seconds=10)
    await driver.push("a")

    assert payloads(await driver.pop()) == ["a"]


async def test_auto_ack_settles_at_once(unordered: Driver) -> None:
    await unordered.push("a", "b", "c")

    assert len(await unordered.pop(batch=2, auto_ack=True)) == 2

    stats = await unordered.stats()
    assert (stats.completed, stats.pending, stats.in_flight) == (2, 1, 0)


async def test_old_messages_are_expired_and_not_delivered(driver: Driver) -> None:
    await driver.create(ordering=Ordering.UNORDERED, max_wait_seconds=10)
    await driver.push("old")
    driver.clock.advance(6)
    await driver.push("young")
    driver.clock.advance(6)

    assert payloads(await driver.pop()) == ["young"]
    assert (await driver.stats()).expired == 1


async def test_I14_groups_do_not_affect_each_other(unordered: Driver) -> None:
    await unordered.push("a", "b")
    await unordered.reject(*await unordered.pop(group="g"))

    assert attempts(await unordered.pop(group="h")) == [1, 1]


async def test_every_call_that_settles_leaves_a_row(unordered: Driver) -> None:
    await unordered.push("a", "b", "c")
    a, b, c = sorted(await unordered.pop(), key=lambda d: d.seq)
    await unordered.ack(b)
    await unordered.ack(a, c)

    history = [lease for _, lease in await unordered.store.lease_history(unordered.key())]

    assert [(lease.first_seq, lease.last_seq, lease.messages) for lease in history] == [(2, 2, 1), (1, 3, 2)]
    assert {lease.outcome for lease in history} == {"completed"}


async def test_the_age_of_a_group_is_that_of_its_oldest_message_though_they_were_found_together(driver: Driver) -> None:
    await driver.create(ordering=Ordering.UNORDERED)
    await driver.push("old")
    driver.clock.advance(5)
    await driver.push("new")

    [first] = await driver.pop(batch=1)
    await driver.ack(first)

    assert (await driver.stats()).oldest_at == driver.now


async def test_a_pop_gives_as_many_as_fit_and_leaves_the_rest_unleased(unordered: Driver) -> None:
    await unordered.push(*(f"number {n}" for n in range(5)))

    first = await unordered.pop_result(max_bytes=20)
    stats = await unordered.stats()
    rest = await unordered.pop()

    assert payloads(first.deliveries) == ["number 0", "number 1"]
    assert first.more
    assert (stats.in_flight, stats.pending) == (2, 3)
    assert payloads(rest) == ["number 2", "number 3", "number 4"]
    assert attempts(rest) == [1, 1, 1]


async def test_a_pop_gives_one_message_though_it_is_larger_than_what_fits(unordered: Driver) -> None:
    await unordered.push("x" * 100, "y")

    assert payloads(await unordered.pop(max_bytes=20)) == ["x" * 100]
    assert payloads(await unordered.pop(max_bytes=20)) == ["y"]


async def test_a_set_that_does_not_fit_at_all_is_left_to_the_next_pop(unordered: Driver) -> None:
    await unordered.push("12345678", priority=1)
    await unordered.push("12345678")

    first, second = await unordered.pop(max_bytes=12), await unordered.pop(max_bytes=12)

    assert [(d.priority, d.attempt) for d in (*first, *second)] == [(1, 1), (0, 1)]


async def test_messages_that_expire_take_no_room(driver: Driver) -> None:
    await driver.create(ordering=Ordering.UNORDERED, max_wait_seconds=10)
    await driver.push("12345678", "12345678")
    driver.clock.advance(8)
    await driver.push("abcdefgh")
    driver.clock.advance(3)

    assert payloads(await driver.pop(max_bytes=8)) == ["abcdefgh"]
    assert (await driver.stats()).expired == 2


async def test_a_set_whose_messages_are_all_delayed_does_not_hide_another_that_is_ready(driver: Driver) -> None:
    """Its oldest message, by which it was ready, has expired."""
    await driver.create(
        ordering=Ordering.UNORDERED, max_attempts=1, delayed_processing_seconds=3, max_wait_seconds=25.5
    )
    await driver.push("old", partition="a")
    driver.clock.advance(20)
    await driver.push("ready", partition="b")
    driver.clock.advance(7)
    await driver.push("delayed", partition="a")
    assert [delivery.payload for delivery in await driver.pop(batch=3)] == [b"ready"]


async def test_a_lease_of_no_time_is_claimed_once_by_its_pop(unordered: Driver) -> None:
    await unordered.push("a", "b")

    assert seqs(await unordered.pop(lease_seconds=0)) == [1, 2]


@pytest.mark.parametrize("ahead", [0.000_001, 0.5, 4.0])
async def test_a_message_from_a_clock_that_is_a_little_ahead_is_delivered_at_once(driver: Driver, ahead: float) -> None:
    await driver.create(ordering=Ordering.UNORDERED, max_wait_seconds=60)
    right = driver.now
    driver.clock.advance(ahead)
    await driver.push("early")

    driver.clock = ManualClock(right)
    assert payloads(await driver.pop()) == ["early"]


async def test_one_message_of_a_lease_is_kept_for_longer_than_the_others(driver: Driver) -> None:
    await driver.create(ordering=Ordering.UNORDERED, max_attempts=0)
    await driver.push("1", "2", "3")
    first, second, third = await driver.pop(lease_seconds=10)
    assert (await driver.renew(second, 60, seq=second.seq)).deadline == driver.now + 60_000_000
    driver.clock.advance(11)
    again = [one.seq for _ in range(3) for one in await driver.pop(lease_seconds=100)]
    assert sorted(again) == [first.seq, third.seq]
    assert [result.status for result in await driver.ack(second)] == [SettleStatus.COMPLETED]
    assert (await driver.renew(second, 60, seq=second.seq)).code is Code.STALE_LEASE
    assert (await driver.renew(first, 60, seq=first.seq)).code is Code.STALE_LEASE


async def test_a_message_that_is_kept_for_longer_ends_with_its_lease_when_all_is_acked(driver: Driver) -> None:
    await driver.create(ordering=Ordering.UNORDERED, max_attempts=0)
    await driver.push("1", "2", "3")
    first, second, _ = await driver.pop(lease_seconds=10)
    await driver.renew(second, 60, seq=second.seq)
    assert [result.messages for result in await driver.ack_leases(first)] == [3]


async def test_a_message_kept_for_shorter_comes_again_while_the_others_are_held(driver: Driver) -> None:
    await driver.create(ordering=Ordering.UNORDERED, max_attempts=0)
    await driver.push("1", "2", "3")
    _, _, third = await driver.pop(lease_seconds=60)
    await driver.renew(third, 1, seq=third.seq)
    driver.clock.advance(2)
    assert [(one.seq, one.attempt) for one in await driver.pop()] == [(third.seq, 2)]
    assert await driver.pop() == []


async def test_only_a_message_of_the_lease_renews_it_in_an_ordered_queue(driver: Driver) -> None:
    await driver.create()
    await driver.push("1", "2")
    first, second = await driver.pop(lease_seconds=10)
    assert (await driver.renew(first, 60, seq=second.seq)).deadline == driver.now + 60_000_000
    assert (await driver.renew(first, 90, seq=second.seq + 1)).code is Code.STALE_LEASE
    await driver.ack(first)
    assert (await driver.renew(first, 90, seq=first.seq)).code is Code.STALE_LEASE
    driver.clock.advance(59)
    assert await driver.pop() == []
