"""A group's progress moved by hand: seek, delete; and queues cleared."""

from __future__ import annotations

import pytest

from skep.errors import Code
from skep.model import FROM_BEGINNING, FROM_NOW, ClearScope, Ordering, PushStatus, Retry, Start, StartMode
from tests.contract.driver import Driver, attempts, payloads, seqs

BOTH = pytest.mark.parametrize("ordering", [Ordering.PER_KEY, Ordering.UNORDERED])


# seek


@BOTH
async def test_I7_a_seek_to_the_beginning_delivers_all_again(driver: Driver, ordering: Ordering) -> None:
    await driver.create(ordering=ordering)
    await driver.push("a", "b")
    await driver.ack(*await driver.pop(group="g"))

    stats = await driver.seek(FROM_BEGINNING, group="g")

    assert (stats.progress_seq, stats.pushed, stats.completed, stats.pending) == (0, 2, 0, 2)
    deliveries = await driver.pop(group="g")
    assert payloads(deliveries) == ["a", "b"]
    assert attempts(deliveries) == [1, 1]


@BOTH
async def test_I6_a_seek_ends_the_leases(driver: Driver, ordering: Ordering) -> None:
    await driver.create(ordering=ordering)
    await driver.push("a")
    delivery = await driver.pop_one(group="g")

    await driver.seek(FROM_NOW, group="g")

    (result,) = await driver.ack(delivery)
    assert result.code is Code.STALE_LEASE
    assert (await driver.renew(delivery)).code is Code.STALE_LEASE
    assert await driver.pop(group="g") == []
    stats = await driver.stats(group="g")
    assert (stats.pushed, stats.pending, stats.in_flight, stats.progress_seq) == (0, 0, 0, 1)


async def test_a_seek_goes_to_a_time_or_a_seq(driver: Driver) -> None:
    await driver.push("a")
    driver.clock.advance(10)
    at = driver.now
    await driver.push("b", "c")

    await driver.seek(Start(StartMode.TIME, at), group="g")
    assert payloads(await driver.pop(group="g")) == ["b", "c"]
    await driver.seek(Start(StartMode.SEQ, 3), group="g")
    assert payloads(await driver.pop(group="g")) == ["c"]
    await driver.seek(Start(StartMode.SEQ, 1_000_000), group="g")
    assert await driver.pop(group="g") == []
    await driver.push("d")
    assert payloads(await driver.pop(group="g")) == ["d"]


async def test_a_seek_makes_the_group_when_there_is_none(driver: Driver) -> None:
    await driver.push("old")

    await driver.seek(FROM_NOW, group="g")
    await driver.push("new")

    assert payloads(await driver.pop(group="g")) == ["new"]


async def test_I14_a_seek_moves_no_other_group(driver: Driver) -> None:
    await driver.push("a", "b")
    (a, _) = await driver.pop(group="g")
    await driver.ack(*await driver.pop(group="h"))
    before = await driver.stats(group="g")

    await driver.seek(FROM_BEGINNING, group="h")

    assert await driver.stats(group="g") == before
    assert [r.status.value for r in await driver.ack(a)] == ["completed"]


# delete


@BOTH
async def test_a_deleted_group_is_forgotten(driver: Driver, ordering: Ordering) -> None:
    await driver.create(ordering=ordering)
    await driver.push("a")
    delivery = await driver.pop_one(group="g")

    assert await driver.delete_group(group="g")
    assert not await driver.delete_group(group="g")
    assert (await driver.queue_stats()).groups == []
    (result,) = await driver.ack(delivery)
    assert result.code is Code.STALE_LEASE
    assert attempts(await driver.pop(group="g")) == [1]


# clear


async def leased_waiting_and_undiscovered(driver: Driver) -> None:
    await driver.push_messages(*(driver.message(p, partition=p) for p in "abc"))
    await driver.pop(batch=1)
    (b,) = await driver.pop(batch=1)
    await driver.nack(b, retry=Retry.BACKOFF)
    await driver.push("more", partition="a")
    await driver.push("scheduled", deliver_at=driver.later(10))


@BOTH
async def test_clearing_what_is_pending_keeps_leases_and_schedules(driver: Driver, ordering: Ordering) -> None:
    await driver.create(ordering=ordering)
    await leased_waiting_and_undiscovered(driver)

    cleared = await driver.clear(ClearScope.PENDING)

    assert (cleared.pending, cleared.scheduled) == (3, 0)
    stats = await driver.stats()
    assert (stats.in_flight, stats.pending, stats.expired) == (1, 0, 3)
    driver.clock.advance(10)
    assert await driver.pop() == []
    await driver.promote()
    assert payloads(await driver.pop()) == ["scheduled"]


async def test_a_leased_message_may_be_settled_or_retried_after_clearing(driver: Driver) -> None:
    await driver.push("a", partition="1")
    await driver.push("b", partition="2")
    a, b = await driver.pop()
    await driver.clear(ClearScope.PENDING)

    assert [r.status.value for r in await driver.ack(a)] == ["completed"]
    assert [r.status.value for r in await driver.nack(b)] == ["retrying"]
    assert [(d.seq, d.attempt) for d in await driver.pop()] == [(b.seq, 2)]


async def test_what_was_cleared_behind_a_lease_does_not_come_back(driver: Driver) -> None:
    await driver.push("leased", "cleared", "cleared, too")
    leased = await driver.pop_one()
    await driver.clear(ClearScope.PENDING)
    await driver.push("new")
    await driver.nack(leased)

    again = await driver.pop_one()
    await driver.ack(again)

    assert payloads([again, *await driver.pop()]) == ["leased", "new"]


@BOTH
async def test_clearing_all_ends_leases_and_drops_the_schedule(driver: Driver, ordering: Ordering) -> None:
    await driver.create(ordering=ordering)
    await leased_waiting_and_undiscovered(driver)

    cleared = await driver.clear(ClearScope.ALL)

    assert (cleared.pending, cleared.scheduled) == (4, 1)
    stats = await driver.stats()
    assert (stats.pushed, stats.expired, stats.pending, stats.in_flight) == (4, 4, 0, 0)
    assert (await driver.queue_stats()).depth == 0
    driver.clock.advance(1000)
    await driver.promote()
    assert await driver.pop() == []
    await driver.push("after")
    assert payloads(await driver.pop()) == ["after"]


async def test_I6_clearing_all_makes_tokens_stale(driver: Driver) -> None:
    await driver.push("a")
    delivery = await driver.pop_one()

    await driver.clear(ClearScope.ALL)

    (result,) = await driver.ack(delivery)
    assert result.code is Code.STALE_LEASE


async def test_clearing_the_schedule_drops_only_that(driver: Driver) -> None:
    await driver.push("a")
    (scheduled,) = await driver.push("b", deliver_at=driver.later(10), transaction_id="t")

    cleared = await driver.clear(ClearScope.SCHEDULED)

    assert (cleared.pending, cleared.scheduled) == (0, 1)
    assert payloads(await driver.pop()) == ["a"]
    (again,) = await driver.push("b", transaction_id="t")
    assert (again.status, again.id) == (PushStatus.DUPLICATE, scheduled.id)


async def test_a_new_group_starts_after_what_was_cleared(driver: Driver) -> None:
    await driver.push("a", "b")
    cleared = await driver.clear(ClearScope.PENDING)
    await driver.push("c")

    assert cleared.pending == 2
    deliveries = await driver.pop(group="new")
    assert (payloads(deliveries), seqs(deliveries)) == (["c"], [3])
    assert (await driver.queue_stats()).first_seq == 3


async def test_clearing_a_run_out_lease_takes_its_messages(driver: Driver) -> None:
    await driver.push("a", "b")
    late = await driver.pop(lease_seconds=10)
    driver.clock.advance(10)

    await driver.clear(ClearScope.PENDING)

    stats = await driver.stats()
    assert (stats.expired, stats.in_flight, stats.pending) == (2, 0, 0)
    assert [r.code for r in await driver.ack(*late)] == [Code.STALE_LEASE] * 2


async def test_a_cleared_queue_has_room_again(driver: Driver) -> None:
    await driver.create(max_depth=2)
    await driver.push("a", "b")
    await driver.clear(ClearScope.PENDING)

    results = await driver.push("c", "d")

    assert [r.status for r in results] == [PushStatus.STORED] * 2
    assert [r.seq for r in results] == [3, 4]
