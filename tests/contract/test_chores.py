"""Chores: what expires by age, what retention deletes and must not delete, and what is swept."""

from __future__ import annotations

from typing import Any

import pytest

from skep.errors import Code
from skep.model import ClearScope, DeadReason, Ordering, PushStatus
from tests.contract.driver import Driver, payloads, seqs

BOTH = pytest.mark.parametrize("ordering", [Ordering.PER_KEY, Ordering.UNORDERED])


# expiry


async def test_past_max_age_a_message_expires_to_the_dead_letters(driver: Driver) -> None:
    await driver.create(max_age_seconds=10)
    await driver.push("old")
    driver.clock.advance(6)
    await driver.push("young")
    driver.clock.advance(6)

    assert payloads(await driver.pop()) == ["young"]

    (letter,) = await driver.dead()
    assert (letter.payload, letter.reason, letter.attempts) == (b"old", DeadReason.EXPIRED, 0)
    stats = await driver.stats()
    assert (stats.expired, stats.dead, stats.in_flight) == (1, 0, 1)


async def test_past_max_wait_a_message_is_skipped_as_expired(driver: Driver) -> None:
    await driver.create(max_wait_seconds=10)
    await driver.push("old", "stale")
    driver.clock.advance(6)
    await driver.push("young")
    driver.clock.advance(6)

    assert payloads(await driver.pop()) == ["young"]

    assert await driver.dead() == []
    stats = await driver.stats()
    assert (stats.expired, stats.in_flight, stats.progress_seq) == (2, 1, 2)


@BOTH
@pytest.mark.parametrize("setting", ["max_age_seconds", "max_wait_seconds"])
async def test_expiry_needs_nobody_who_pops(driver: Driver, ordering: Ordering, setting: str) -> None:
    settings: dict[str, Any] = {setting: 10}
    await driver.create(ordering=ordering, **settings)
    await driver.push("a", "b")
    assert await driver.pop(batch=1, auto_ack=True)
    driver.clock.advance(11)

    await driver.expire()

    stats = await driver.stats()
    assert (stats.completed, stats.expired, stats.pending, stats.progress_seq) == (1, 1, 0, 2)
    assert len(await driver.dead()) == (1 if setting == "max_age_seconds" else 0)


@BOTH
async def test_a_live_lease_does_not_expire(driver: Driver, ordering: Ordering) -> None:
    await driver.create(ordering=ordering, max_age_seconds=10)
    await driver.push("a")
    delivery = await driver.pop_one(lease_seconds=100)
    driver.clock.advance(50)

    await driver.expire()

    assert [r.status.value for r in await driver.ack(delivery)] == ["completed"]
    assert await driver.dead() == []


@BOTH
async def test_I10_attempts_that_ran_out_with_their_lease_are_buried_without_a_pop(
    driver: Driver, ordering: Ordering
) -> None:
    await driver.create(ordering=ordering, max_attempts=1)
    await driver.push("a")
    late = await driver.pop_one(lease_seconds=10)
    driver.clock.advance(10)

    await driver.expire()

    (letter,) = await driver.dead()
    assert (letter.reason, letter.error) == (DeadReason.MAX_ATTEMPTS, "lease expired")
    (result,) = await driver.ack(late)
    assert result.code is Code.STALE_LEASE
    stats = await driver.stats()
    assert (stats.dead, stats.pending, stats.in_flight) == (1, 0, 0)


async def test_an_expiry_pass_is_bounded(driver: Driver) -> None:
    await driver.create(max_wait_seconds=10)
    await driver.push_messages(*(driver.message(str(n), partition=f"p{n}") for n in range(10)))
    await driver.pop(batch=1, auto_ack=True)
    driver.clock.advance(11)

    chore = await driver.expire(limit=4)
    assert chore.done <= 4
    assert chore.more
    for _ in range(5):
        chore = await driver.expire(limit=4)

    assert not chore.more
    assert (await driver.stats()).expired == 9


async def test_expire_tells_when_it_will_be_needed_next(driver: Driver) -> None:
    await driver.create(max_wait_seconds=10)
    await driver.push("a")
    at = driver.now
    await driver.pop(batch=1)
    await driver.push("b", partition="p")

    chore = await driver.expire()

    assert chore.next_at is not None
    assert at < chore.next_at <= driver.later(11)


# retention


async def test_retention_waits_for_the_slowest_group(driver: Driver) -> None:
    await driver.create(retention_seconds=10)
    await driver.push("a", "b", "c")
    await driver.ack(*await driver.pop(group="fast"))
    await driver.ack(*await driver.pop(group="slow", batch=1))
    driver.clock.advance(11)

    assert (await driver.retain()).done == 1

    assert (await driver.queue_stats()).first_seq == 2
    assert [m.seq for m in (await driver.browse()).messages] == [2, 3]
    assert payloads(await driver.pop(group="slow")) == ["b", "c"]


async def test_retention_deletes_nothing_that_nobody_has_read(driver: Driver) -> None:
    await driver.create(retention_seconds=10)
    await driver.push("a")
    driver.clock.advance(1000)

    assert (await driver.retain()).done == 0
    assert payloads(await driver.pop()) == ["a"]


async def test_retention_keeps_what_is_young(driver: Driver) -> None:
    await driver.create(retention_seconds=10)
    await driver.push("old")
    driver.clock.advance(6)
    await driver.push("young")
    await driver.ack(*await driver.pop())
    driver.clock.advance(6)

    assert (await driver.retain()).done == 1
    assert [m.payload for m in (await driver.browse()).messages] == [b"young"]


async def test_retention_may_ignore_groups_and_counts_what_it_took(driver: Driver) -> None:
    await driver.create(retention_seconds=10, retention_ignores_groups=True)
    await driver.push("a", "b")
    leased = await driver.pop(batch=1)
    driver.clock.advance(11)
    await driver.push("c", partition="p")

    assert (await driver.retain()).done == 2

    stats = await driver.stats()
    assert stats.pushed == 3
    assert payloads(await driver.pop()) == ["c"]
    await driver.ack(*leased)
    driver.clock.advance(1000)
    await driver.pop()
    stats = await driver.stats()
    assert stats.completed + stats.expired == 2


async def test_retention_without_groups_needs_to_ignore_them(driver: Driver) -> None:
    await driver.create(retention_seconds=10, retention_ignores_groups=True)
    await driver.push("a")
    driver.clock.advance(11)

    assert (await driver.retain()).done == 1
    assert await driver.pop() == []
    (result,) = await driver.push("b")
    assert result.seq == 2


async def test_completed_messages_go_after_their_own_time(driver: Driver) -> None:
    await driver.create(completed_retention_seconds=10)
    await driver.push("a", "b")
    await driver.ack(*await driver.pop(batch=1))
    assert (await driver.retain()).done == 0

    driver.clock.advance(9)
    assert (await driver.retain()).done == 0
    driver.clock.advance(2)
    assert (await driver.retain()).done == 1
    assert [m.payload for m in (await driver.browse()).messages] == [b"b"]


async def test_retention_that_ignores_groups_goes_by_retention_seconds_alone(driver: Driver) -> None:
    await driver.create(retention_seconds=100, completed_retention_seconds=10, retention_ignores_groups=True)
    await driver.push("a", "b")
    await driver.ack(*await driver.pop(batch=1))
    for _ in range(3):
        assert (await driver.retain()).done == 0
        driver.clock.advance(30)
    assert (await driver.retain()).done == 0
    assert (await driver.queue_stats()).first_seq == 1

    driver.clock.advance(11)

    assert (await driver.retain()).done == 2


async def test_a_retention_pass_is_bounded_and_recorded(driver: Driver) -> None:
    await driver.create(retention_seconds=10)
    await driver.push(*"abcde")
    await driver.ack(*await driver.pop())
    driver.clock.advance(11)

    chore = await driver.retain(limit=3)
    assert (chore.done, chore.more) == (3, True)
    driver.clock.advance(1)
    chore = await driver.retain(limit=3)
    assert (chore.done, chore.more) == (2, False)

    latest, first = (await driver.store.retention_history(driver.key()))[:2]
    assert (first.deleted, first.first_seq, first.settled_seq) == (3, 4, 5)
    assert (latest.deleted, latest.first_seq, latest.at) == (2, 6, driver.now)
    assert len(await driver.store.retention_history(driver.key(), limit=1)) == 1


async def test_no_seq_is_ever_given_twice_after_retention(driver: Driver) -> None:
    await driver.create(retention_seconds=10)
    await driver.push("a", "b")
    await driver.ack(*await driver.pop())
    driver.clock.advance(11)
    await driver.retain()

    (result,) = await driver.push("c")

    assert result.seq == 3
    assert seqs(await driver.pop()) == [3]
    assert seqs(await driver.pop(group="new")) == [3]


async def test_a_queue_without_retention_keeps_everything(driver: Driver) -> None:
    await driver.push("a")
    await driver.ack(*await driver.pop())
    driver.clock.advance(10_000_000)

    assert (await driver.retain()).done == 0
    assert len((await driver.browse()).messages) == 1
    assert await driver.store.retention_history(driver.key()) == []


async def test_retention_removes_what_was_cleared_but_nothing_in_flight(driver: Driver) -> None:
    await driver.push("a", partition="1")
    await driver.push("b", partition="2")
    a = await driver.pop_one()
    await driver.clear(ClearScope.PENDING)

    await driver.retain()

    assert await driver.store.message(driver.key(), a.seq) is not None
    await driver.nack(a)
    (again,) = await driver.pop()
    assert (again.payload, again.attempt) == (b"a", 2)
    await driver.ack(again)
    await driver.retain()
    assert await driver.store.message(driver.key(), a.seq) is None


# sweep, maintain


async def test_swept_keys_no_longer_answer_and_live_ones_do(driver: Driver) -> None:
    await driver.create(dedup_window_seconds=10)
    await driver.push("a", transaction_id="old")
    driver.clock.advance(6)
    await driver.push("b", transaction_id="young")
    driver.clock.advance(6)

    await driver.store.sweep(driver.now, 1000)

    (old,) = await driver.push("a", transaction_id="old")
    (young,) = await driver.push("b", transaction_id="young")
    assert (old.status, young.status) == (PushStatus.STORED, PushStatus.DUPLICATE)


async def test_a_deleted_queue_is_swept_in_bounded_passes(driver: Driver) -> None:
    await driver.push(*map(str, range(50)), transaction_id=None)
    await driver.pop(batch=10)
    await driver.delete()
    await driver.push("new")

    passes = 0
    while (await driver.store.sweep(driver.now, 10)).more:
        passes += 1
        assert passes < 1000

    assert payloads(await driver.pop()) == ["new"]


async def test_maintain_changes_nothing(driver: Driver) -> None:
    await driver.push("a", "b")
    delivery = await driver.pop_one()
    before = await driver.queue_stats()

    await driver.store.maintain()

    assert await driver.queue_stats() == before
    assert [r.status.value for r in await driver.ack(delivery)] == ["completed"]


async def test_what_lies_behind_a_message_that_retention_took_is_as_old_as_itself(driver: Driver) -> None:
    await driver.create(retention_seconds=10, retention_ignores_groups=True, max_wait_seconds=15)
    await driver.push("old")
    driver.clock.advance(8)
    await driver.push("young")
    old, _ = await driver.pop()
    await driver.nack(old)
    driver.clock.advance(4)
    await driver.retain()

    driver.clock.advance(5)

    assert payloads(await driver.pop()) == ["young"]


async def swept(driver: Driver) -> bool:
    """Sweep until nothing is left; False when there is always more."""
    for _ in range(1000):
        if not (await driver.store.sweep(driver.now, 1000)).more:
            return True
    return False


async def test_completed_messages_may_be_kept_for_longer_than_the_history_of_passes(driver: Driver) -> None:
    day = 86_400.0
    await driver.create(completed_retention_seconds=60 * day)
    await driver.push("x")
    await driver.ack(await driver.pop_one())
    await driver.retain()
    for _ in range(3):
        driver.clock.advance(20 * day)
        assert await swept(driver)

    await driver.retain()

    assert (await driver.queue_stats()).first_seq == 2
