"""Settle: ack, nack and reject; in part, and mixed."""

from __future__ import annotations

import pytest

from skep.errors import Code
from skep.model import Delivery, Ordering, Outcome, Retry, SettleStatus, Token
from tests.contract.driver import Driver, attempts, payloads, seqs

OK = SettleStatus.COMPLETED


async def three_leased(driver: Driver) -> list[Delivery]:
    await driver.push("a", "b", "c")
    return await driver.pop()


async def test_an_ack_completes(driver: Driver) -> None:
    results = await driver.ack(*await three_leased(driver))

    assert [r.status for r in results] == [OK] * 3
    stats = await driver.stats()
    assert (stats.completed, stats.pending, stats.in_flight, stats.progress_seq) == (3, 0, 0, 3)


async def test_partial_ack_keeps_the_lease(driver: Driver) -> None:
    a, b, c = await three_leased(driver)

    await driver.ack(b)

    assert await driver.pop() == []
    stats = await driver.stats()
    assert (stats.completed, stats.in_flight, stats.progress_seq) == (1, 2, 0)
    assert [r.status for r in await driver.ack(a, c)] == [OK] * 2
    assert (await driver.stats()).progress_seq == 3


async def test_I8_progress_stops_at_the_first_that_is_not_settled(driver: Driver) -> None:
    a, b, c = await three_leased(driver)

    await driver.ack(a, c)
    assert (await driver.stats()).progress_seq == 1
    await driver.ack(b)
    assert (await driver.stats()).progress_seq == 3


async def test_I8_a_gap_that_other_partitions_have_settled_counts_as_progress(driver: Driver) -> None:
    await driver.push_messages(*(driver.message(p, partition=p) for p in "aba"))

    await driver.ack(*await driver.pop(batch=1, partition="a"), *await driver.pop(partition="b"))

    assert (await driver.stats()).progress_seq == 2


async def test_what_is_settled_stays_settled_when_the_lease_runs_out(driver: Driver) -> None:
    a, b, c = await three_leased(driver)
    await driver.ack(a, c)
    driver.clock.advance(301)

    (again,) = await driver.pop()

    assert (again.seq, again.attempt) == (b.seq, 2)
    assert (await driver.stats()).completed == 2


# nack


async def test_a_nack_brings_the_message_again_at_once_when_asked(driver: Driver) -> None:
    await driver.push("a")

    (result,) = await driver.nack(await driver.pop_one(), retry=Retry.NOW)
    assert (result.status, result.retry_at) == (SettleStatus.RETRYING, driver.now)

    again = await driver.pop_one()
    assert (again.payload, again.attempt) == (b"a", 2)


async def test_a_nack_brings_the_message_again_at_a_time(driver: Driver) -> None:
    await driver.push("a")

    (result,) = await driver.nack(await driver.pop_one(), retry=Retry.AT, retry_at=driver.later(42))
    assert result.retry_at == driver.later(42)

    waiting = await driver.pop_result()
    assert (waiting.deliveries, waiting.next_ready_at) == ([], driver.later(42))
    driver.clock.advance(42)
    assert attempts(await driver.pop()) == [2]


async def test_the_backoff_doubles_up_to_its_cap(driver: Driver) -> None:
    await driver.create(max_attempts=0, initial_backoff_ms=100, max_backoff_ms=500)
    await driver.push("a")
    waits = []
    for _ in range(5):
        (result,) = await driver.nack(await driver.pop_one(), retry=Retry.BACKOFF)
        assert result.retry_at is not None
        waits.append((result.retry_at - driver.now) / 1000)
        driver.clock.advance(0.5)

    assert waits == [100, 200, 400, 500, 500]


@pytest.mark.parametrize(("jitter", "expected_ms"), [(0.0, 1000), (0.5, 900)])
async def test_jitter_shortens_the_backoff_by_up_to_a_fifth(driver: Driver, jitter: float, expected_ms: int) -> None:
    await driver.push("a")

    (result,) = await driver.nack(await driver.pop_one(), retry=Retry.BACKOFF, jitter=jitter)

    assert result.retry_at == driver.later(expected_ms / 1000)


async def test_I4_a_nack_of_the_middle_keeps_the_order(driver: Driver) -> None:
    a, b, c = await three_leased(driver)
    await driver.push("d")

    results = await driver.settle(
        driver.settlement(a), driver.settlement(b, Outcome.NACK, retry=Retry.AT, retry_at=driver.later(5))
    )
    assert [r.status for r in results] == [OK, SettleStatus.RETRYING]
    assert await driver.pop() == []
    driver.clock.advance(5)

    order = []
    while found := await driver.pop():
        order += [(d.payload.decode(), d.attempt) for d in found]
        await driver.ack(*found)
    assert order == [("b", 2), ("c", 2), ("d", 1)]
    (stale,) = await driver.ack(c)
    assert stale.code is Code.STALE_LEASE


async def test_what_was_acked_after_the_nacked_one_in_the_same_call_stays_settled(driver: Driver) -> None:
    a, b, c = await three_leased(driver)

    await driver.settle(driver.settlement(a, Outcome.NACK, retry=Retry.NOW), driver.settlement(b), driver.settlement(c))

    again = await driver.pop()
    assert [(d.seq, d.attempt) for d in again] == [(a.seq, 2)]
    await driver.ack(*again)
    assert (await driver.stats()).completed == 3


async def test_a_nack_ends_the_lease(driver: Driver) -> None:
    a, b, _ = await three_leased(driver)
    await driver.nack(a)

    (result,) = await driver.ack(b)

    assert (result.status, result.code) == (SettleStatus.REFUSED, Code.STALE_LEASE)


async def test_the_latest_retry_time_of_a_call_counts_for_the_partition(driver: Driver) -> None:
    a, b, _ = await three_leased(driver)

    results = await driver.settle(
        driver.settlement(a, Outcome.NACK, retry=Retry.AT, retry_at=driver.later(30)),
        driver.settlement(b, Outcome.NACK, retry=Retry.AT, retry_at=driver.later(10)),
    )

    assert [result.retry_at for result in results] == [driver.later(30)] * 2
    driver.clock.advance(29)
    assert await driver.pop() == []
    driver.clock.advance(1)
    assert seqs(await driver.pop()) == [a.seq]


async def test_a_waiting_partition_does_not_hold_up_others(driver: Driver) -> None:
    await driver.push("a", partition="1")
    await driver.nack(await driver.pop_one(), retry=Retry.BACKOFF)

    await driver.push("b", partition="2")

    assert payloads(await driver.pop()) == ["b"]


async def test_a_new_message_waits_behind_the_one_that_failed(driver: Driver) -> None:
    await driver.push("a")
    await driver.nack(await driver.pop_one(), retry=Retry.BACKOFF)

    await driver.push("b")

    assert await driver.pop() == []


# reject


async def test_a_reject_goes_straight_to_the_dead_letters(driver: Driver) -> None:
    a, b, c = await three_leased(driver)

    (result,) = await driver.reject(b, error="no good")

    assert (result.status, result.dead_letter_queue) == (SettleStatus.DEAD, "q.dead")
    (letter,) = await driver.dead()
    assert (letter.source_seq, letter.reason.value, letter.error) == (b.seq, "rejected", "no good")
    assert [r.status for r in await driver.ack(a, c)] == [OK] * 2
    stats = await driver.stats()
    assert (stats.completed, stats.dead, stats.progress_seq) == (2, 1, 3)


async def test_mixed_outcomes_in_one_call_each_get_their_result(driver: Driver) -> None:
    await driver.push_messages(*(driver.message(p, partition=p) for p in "abcd"))
    a, b, c, d = await driver.pop()

    results = await driver.settle(
        driver.settlement(a, Outcome.NACK, retry=Retry.NOW),
        driver.settlement(b, Outcome.REJECT, error="bad"),
        driver.settlement(c, token=Token(b"0" * 16)),
        driver.settlement(d),
    )

    assert [r.status.value for r in results] == ["retrying", "dead", "refused", "completed"]
    assert results[2].code is Code.STALE_LEASE
    stats = await driver.stats()
    assert (stats.completed, stats.dead, stats.in_flight, stats.pending) == (1, 1, 1, 1)


async def test_of_a_message_named_twice_the_first_outcome_counts(driver: Driver) -> None:
    a, _, _ = await three_leased(driver)

    nacked, acked = await driver.settle(driver.settlement(a, Outcome.NACK, retry=Retry.NOW), driver.settlement(a))

    assert (nacked.status, acked.code) == (SettleStatus.RETRYING, Code.NOT_IN_LEASE)
    assert (await driver.stats()).completed == 0


async def test_one_call_settles_over_many_queues_and_groups(driver: Driver) -> None:
    await driver.push("a", queue="q")
    await driver.push("b", queue="r")
    deliveries = [
        await driver.pop_one("q", group="g"),
        await driver.pop_one("q", group="h"),
        await driver.pop_one("r"),
    ]

    assert [r.status for r in await driver.ack(*deliveries)] == [OK] * 3


@pytest.mark.parametrize("ordering", [Ordering.PER_KEY, Ordering.UNORDERED])
async def test_of_two_words_on_one_message_the_first_counts(driver: Driver, ordering: Ordering) -> None:
    await driver.create(ordering=ordering)
    await driver.push("x", "y")
    x, _ = await driver.pop()

    results = await driver.settle(
        driver.settlement(x, Outcome.NACK, retry=Retry.NOW), driver.settlement(x, Outcome.ACK)
    )

    assert [result.code for result in results] == [None, Code.NOT_IN_LEASE]
    assert results[0].status is SettleStatus.RETRYING
