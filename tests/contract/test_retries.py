"""Leases that run out, attempts that are counted exactly, and neighbours that must not suffer for each other."""

from __future__ import annotations

import pytest

from skep.model import NO_DEAD_LETTER_QUEUE, DeadReason, Ordering, Outcome, Retry, SettleStatus
from tests.contract.driver import Driver, attempts, payloads, seqs


async def test_I9_a_lease_that_ran_out_is_delivered_again(driver: Driver) -> None:
    await driver.push("a")
    await driver.pop(lease_seconds=10)

    driver.clock.advance(9.999999)
    assert await driver.pop() == []
    driver.clock.advance(0.000001)
    assert [(d.payload, d.attempt) for d in await driver.pop()] == [(b"a", 2)]


async def test_a_partition_can_be_leased_again_and_again(driver: Driver) -> None:
    await driver.create(max_attempts=0)
    await driver.push("a")
    seen = []
    for _ in range(6):
        seen += attempts(await driver.pop(lease_seconds=1))
        driver.clock.advance(1)

    assert seen == [1, 2, 3, 4, 5, 6]


async def test_I10_a_batch_that_ran_out_comes_again_one_at_a_time(driver: Driver) -> None:
    await driver.push("a", "b", "c")
    await driver.pop(lease_seconds=10)
    await driver.push("d")
    driver.clock.advance(10)

    (first,) = await driver.pop()
    assert (first.payload, first.attempt) == (b"a", 2)
    await driver.ack(first)
    (second,) = await driver.pop()
    assert (second.payload, second.attempt) == (b"b", 2)
    await driver.ack(second)
    await driver.ack(*await driver.pop())
    assert [(d.payload, d.attempt) for d in await driver.pop()] == [(b"d", 1)]


@pytest.mark.parametrize("max_attempts", [1, 2, 5])
async def test_I10_n_attempts_are_n_deliveries_then_dead(driver: Driver, max_attempts: int) -> None:
    await driver.create(max_attempts=max_attempts)
    await driver.push("a")
    seen: list[int] = []
    result = None
    while found := await driver.pop():
        seen += attempts(found)
        (result,) = await driver.nack(*found, error=f"failed {len(seen)}")

    assert seen == list(range(1, max_attempts + 1))
    assert result is not None
    assert (result.status, result.dead_letter_queue) == (SettleStatus.DEAD, "q.dead")
    (letter,) = await driver.dead()
    assert (letter.reason.value, letter.error, letter.attempts) == (
        "max_attempts",
        f"failed {max_attempts}",
        max_attempts,
    )


@pytest.mark.parametrize("max_attempts", [1, 2, 4])
async def test_I10_a_message_that_kills_its_consumer_ends_dead(driver: Driver, max_attempts: int) -> None:
    await driver.create(max_attempts=max_attempts)
    await driver.push("poison", "next")
    seen = []
    for _ in range(max_attempts):
        found = await driver.pop(lease_seconds=1)
        seen.append((found[0].payload, found[0].attempt))
        driver.clock.advance(1)

    (after,) = await driver.pop()

    assert seen == [(b"poison", n) for n in range(1, max_attempts + 1)]
    assert after.payload == b"next"
    (letter,) = await driver.dead()
    assert (letter.reason.value, letter.error, letter.attempts) == ("max_attempts", "lease expired", max_attempts)


async def test_I10_without_a_limit_a_message_is_tried_for_ever(driver: Driver) -> None:
    await driver.create(max_attempts=0)
    await driver.push("a")
    for n in range(1, 20):
        delivery = await driver.pop_one()
        assert delivery.attempt == n
        await driver.nack(delivery)

    assert await driver.dead() == []


async def test_I10_neighbours_of_a_poison_message_keep_their_attempts(driver: Driver) -> None:
    await driver.create(max_attempts=2)
    await driver.push("poison", "good", "fine")
    await driver.pop(lease_seconds=1)
    driver.clock.advance(1)
    await driver.pop(lease_seconds=1)
    driver.clock.advance(1)

    survivors = []
    while found := await driver.pop():
        survivors += [(d.payload.decode(), d.attempt) for d in found]
        await driver.ack(*found)

    assert survivors == [("good", 2), ("fine", 2)]
    assert [letter.payload for letter in await driver.dead()] == [b"poison"]


async def test_I10_with_one_attempt_a_lease_holds_one_message(driver: Driver) -> None:
    await driver.create(max_attempts=1)
    await driver.push("a", "b")
    await driver.push("c", partition="p")

    found = await driver.pop(lease_seconds=1)
    assert payloads(found) == ["a", "c"]
    driver.clock.advance(1)
    assert payloads(await driver.pop()) == ["b"]
    assert sorted(letter.payload for letter in await driver.dead()) == [b"a", b"c"]


async def test_an_error_of_a_nack_outlives_a_later_run_out_lease(driver: Driver) -> None:
    await driver.create(max_attempts=2)
    await driver.push("a")
    await driver.nack(await driver.pop_one(), error="first failure")
    await driver.pop(lease_seconds=1)
    driver.clock.advance(1)

    assert await driver.pop() == []

    (letter,) = await driver.dead()
    assert letter.error == "first failure"


async def test_a_nack_at_the_limit_in_the_middle_of_a_lease_keeps_the_lease(driver: Driver) -> None:
    await driver.create(max_attempts=1)
    await driver.push("a", partition="1")
    await driver.push("b", partition="2")
    a, b = await driver.pop()

    results = await driver.nack(a)
    assert [r.status for r in results] == [SettleStatus.DEAD]
    assert [r.status for r in await driver.ack(b)] == [SettleStatus.COMPLETED]


async def test_with_no_dead_letter_queue_the_message_is_discarded_and_counted(driver: Driver) -> None:
    await driver.create(max_attempts=1, dead_letter_queue=NO_DEAD_LETTER_QUEUE)
    await driver.push("a", "b")

    (nacked,) = await driver.nack(await driver.pop_one())
    (rejected,) = await driver.reject(await driver.pop_one())

    for result in (nacked, rejected):
        assert (result.status, result.dead_letter_queue) == (SettleStatus.DISCARDED, None)
    assert (await driver.stats()).dead == 2
    assert [q.key.name for q in await driver.store.list_queues(driver.tenant)] == ["q"]


async def test_retries_are_counted(driver: Driver) -> None:
    await driver.push("a")
    await driver.nack(await driver.pop_one())
    await driver.pop(lease_seconds=1)
    driver.clock.advance(1)
    await driver.pop()

    assert (await driver.stats()).retried == 2


async def test_a_retry_is_older_than_what_came_later(driver: Driver) -> None:
    await driver.push("old", partition="1")
    driver.clock.advance(1)
    delivery = await driver.pop_one()
    await driver.push("new", partition="2")
    driver.clock.advance(1)
    await driver.nack(delivery)
    driver.clock.advance(1)

    deliveries = await driver.pop()

    assert sorted(seqs(deliveries)) == [1, 2]


# what the lease history says


async def test_a_settled_lease_leaves_a_row(driver: Driver) -> None:
    await driver.create(max_attempts=3)
    await driver.push("a", "b")
    start = driver.now
    deliveries = await driver.pop()
    driver.clock.advance(2)
    await driver.ack(*deliveries)

    ((_, lease),) = await driver.store.lease_history(driver.key())

    assert (lease.first_seq, lease.last_seq, lease.messages, lease.completed) == (1, 2, 2, 2)
    assert (lease.leased_at, lease.settled_at) == (start, driver.now)
    assert (lease.outcome, lease.attempt, lease.group) == ("completed", 1, "__QUEUE_MODE__")


async def test_the_lease_history_tells_outcomes_apart_and_pages(driver: Driver) -> None:
    await driver.create(max_attempts=3)
    await driver.push("a")
    await driver.nack(await driver.pop_one())
    await driver.pop(lease_seconds=1)
    driver.clock.advance(1)
    await driver.reject(await driver.pop_one())

    history = await driver.store.lease_history(driver.key())
    assert [(lease.outcome, lease.attempt) for _, lease in history] == [("retried", 1), ("expired", 2), ("dead", 3)]

    (page,) = await driver.store.lease_history(driver.key(), after=history[0][0], limit=1)
    assert page == history[1]


async def test_the_lease_history_is_read_from_a_time_on(driver: Driver) -> None:
    await driver.create()
    times = []
    for _ in range(5):
        await driver.push("a")
        await driver.ack(await driver.pop_one())
        times.append(driver.now)
        driver.clock.advance(100)

    found = await driver.store.lease_history(driver.key(), since=times[2])
    assert [lease.settled_at for _, lease in found] == times[2:]
    [(_, last)] = await driver.store.lease_history(driver.key(), after=found[0][0], since=times[0], limit=1)
    assert last.settled_at == times[3]
    assert await driver.store.lease_history(driver.key(), since=driver.now) == []


@pytest.mark.parametrize("ordering", [Ordering.PER_KEY, Ordering.UNORDERED])
async def test_a_call_that_gives_back_and_gives_up_is_a_retry_in_the_lease_history(
    driver: Driver, ordering: Ordering
) -> None:
    await driver.create(ordering=ordering)
    await driver.push("a", "b", "c")
    a, b, c = await driver.pop()

    await driver.settle(
        driver.settlement(a),
        driver.settlement(b, Outcome.REJECT),
        driver.settlement(c, Outcome.NACK, retry=Retry.NOW),
    )

    ((_, lease),) = await driver.store.lease_history(driver.key())
    assert (lease.outcome, lease.messages, lease.completed) == ("retried", 3, 1)


async def test_every_call_that_settles_leaves_a_row(driver: Driver) -> None:
    await driver.push(*"abcd")
    a, b, c, _ = await driver.pop()
    await driver.ack(b)
    await driver.reject(a)
    await driver.nack(c)

    history = [lease for _, lease in await driver.store.lease_history(driver.key())]

    assert [(lease.first_seq, lease.last_seq, lease.messages, lease.completed) for lease in history] == [
        (2, 2, 1, 1),
        (1, 1, 1, 0),
        (3, 4, 2, 0),
    ]
    assert [lease.outcome for lease in history] == ["completed", "dead", "retried"]


async def test_only_the_head_of_a_run_out_lease_is_given_up_when_attempts_were_lowered(driver: Driver) -> None:
    await driver.create(max_attempts=3)
    await driver.push("head", "neighbour")
    head, _ = await driver.pop()
    await driver.nack(head)
    await driver.pop(lease_seconds=5)
    await driver.update(max_attempts=1)
    driver.clock.advance(5)

    await driver.expire()

    assert [letter.payload for letter in await driver.dead()] == [b"head"]
    assert (await driver.stats()).retried == 1


@pytest.mark.parametrize("ended_by", ["a chore", "a pop"])
@pytest.mark.parametrize("ordering", [Ordering.PER_KEY, Ordering.UNORDERED])
async def test_what_dies_when_its_last_lease_runs_out_is_dead_in_the_lease_history(
    driver: Driver, ordering: Ordering, ended_by: str
) -> None:
    await driver.create(ordering=ordering, max_attempts=2)
    await driver.push("a")
    for _ in range(2):
        await driver.pop(lease_seconds=5)
        driver.clock.advance(5)

    await (driver.expire() if ended_by == "a chore" else driver.pop())

    assert [letter.reason for letter in await driver.dead()] == [DeadReason.MAX_ATTEMPTS]
    history = [lease for _, lease in await driver.store.lease_history(driver.key())]
    assert [(lease.outcome, lease.attempt, lease.messages) for lease in history] == [("expired", 1, 1), ("dead", 2, 1)]
    assert (await driver.stats()).retried == 1


@pytest.mark.parametrize("ended_by", ["a chore", "a pop"])
@pytest.mark.parametrize(
    ("ordering", "told"),
    [
        (Ordering.PER_KEY, [("dead", 1, 1, 1), ("expired", 2, 3, 2)]),
        (Ordering.UNORDERED, [("dead", 1, 3, 3)]),
    ],
)
async def test_the_lease_history_tells_the_dead_of_a_lease_that_ran_out_from_its_others(
    driver: Driver, ordering: Ordering, told: list[tuple[str, int, int, int]], ended_by: str
) -> None:
    await driver.create(ordering=ordering, max_attempts=2)
    await driver.push("head", "neighbour", "last")
    await driver.pop(lease_seconds=5)
    await driver.update(max_attempts=1)
    driver.clock.advance(5)

    await (driver.expire() if ended_by == "a chore" else driver.pop())

    history = [lease for _, lease in await driver.store.lease_history(driver.key())]
    assert [(lease.outcome, lease.first_seq, lease.last_seq, lease.messages) for lease in history] == told
    assert {(lease.completed, lease.attempt) for lease in history} == {(0, 1)}
    stats = await driver.stats()
    assert (stats.dead, stats.retried) == (told[0][3], 3 - told[0][3])


async def test_a_nacked_head_keeps_its_own_error(driver: Driver) -> None:
    await driver.create(max_attempts=2)
    await driver.push("head", "neighbour")
    head, neighbour = await driver.pop()
    await driver.settle(
        driver.settlement(head, Outcome.NACK, retry=Retry.NOW, error="of the head"),
        driver.settlement(neighbour, Outcome.NACK, retry=Retry.NOW, error="of the neighbour"),
    )
    await driver.pop(lease_seconds=5)
    driver.clock.advance(5)

    await driver.expire()

    assert [letter.error for letter in await driver.dead()] == ["of the head"]
