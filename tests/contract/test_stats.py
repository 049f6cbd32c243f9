"""Figures: the account of every group after every step, partitions, leases, depth, lag, rates."""

from __future__ import annotations

import pytest

from skep.model import FROM_BEGINNING, GroupStats, MessageState, Ordering, Outcome, Retry
from tests.contract.driver import Driver


def account(stats: GroupStats) -> dict[str, int]:
    names = ("pushed", "pending", "in_flight", "completed", "dead", "expired")
    return {name: value for name in names if (value := getattr(stats, name))}


@pytest.mark.parametrize("ordering", list(Ordering))
async def test_I12_the_account_adds_up_after_every_step(driver: Driver, ordering: Ordering) -> None:
    await driver.create(ordering=ordering, max_attempts=3)
    await driver.push(*"abcdef")
    assert (await driver.queue_stats()).groups == []

    deliveries = await driver.pop(batch=4)
    assert account(await driver.stats()) == {"pushed": 6, "pending": 2, "in_flight": 4}
    await driver.ack(deliveries[0])
    assert account(await driver.stats()) == {"pushed": 6, "pending": 2, "in_flight": 3, "completed": 1}
    await driver.reject(deliveries[1])
    assert account(await driver.stats()) == {"pushed": 6, "pending": 2, "in_flight": 2, "completed": 1, "dead": 1}
    await driver.nack(*deliveries[2:])
    assert account(await driver.stats()) == {"pushed": 6, "pending": 4, "completed": 1, "dead": 1}
    await driver.push("g")
    assert account(await driver.stats()) == {"pushed": 7, "pending": 5, "completed": 1, "dead": 1}


async def test_a_queue_knows_its_log_and_its_depth(driver: Driver) -> None:
    await driver.push("a", "b", "c")
    await driver.push("later", deliver_at=driver.later(10))
    assert (await driver.queue_stats()).depth == 4

    a, b = await driver.pop(batch=2)
    await driver.ack(a)
    await driver.reject(b)

    stats = await driver.queue_stats()
    assert (stats.first_seq, stats.last_seq, stats.depth) == (1, 3, 2)
    assert (stats.scheduled, stats.in_flight) == (1, 0)


async def test_in_flight_of_a_queue_is_the_sum_over_its_groups(driver: Driver) -> None:
    await driver.push("a", "b")
    await driver.pop(group="g")
    await driver.pop(group="h", batch=1)

    stats = await driver.queue_stats()

    assert stats.in_flight == 3
    assert [g.group for g in stats.groups] == ["g", "h"]


async def test_lag_is_the_age_of_the_oldest_that_is_not_settled(driver: Driver) -> None:
    first = driver.now
    await driver.push("a")
    driver.clock.advance(10)
    await driver.push("b")
    driver.clock.advance(5)
    deliveries = await driver.pop()

    stats = await driver.stats()
    assert (stats.oldest_at, stats.lag_seconds, stats.lag_messages) == (first, 15.0, 2)
    assert (await driver.queue_stats()).oldest_age_seconds == 15.0

    await driver.ack(deliveries[0])
    assert (await driver.stats()).lag_seconds == 5.0
    await driver.ack(deliveries[1])
    stats = await driver.stats()
    assert (stats.oldest_at, stats.lag_seconds, stats.lag_messages) == (None, 0.0, 0)


async def test_lag_counts_what_was_never_looked_at(driver: Driver) -> None:
    await driver.push("a")
    await driver.ack(*await driver.pop())
    at = driver.now
    await driver.push("b")
    driver.clock.advance(7)

    stats = await driver.stats()

    assert (stats.oldest_at, stats.lag_seconds, stats.pending) == (at, 7.0, 1)


async def test_rates_are_over_the_last_minute(driver: Driver) -> None:
    await driver.push("x")
    await driver.ack(*await driver.pop())
    await driver.store.sample(driver.now)
    driver.clock.advance(60)
    await driver.push(*map(str, range(120)))
    await driver.ack(*await driver.pop(batch=60))
    await driver.store.sample(driver.now)

    rates = (await driver.stats()).rates

    assert (round(rates.pushed, 1), round(rates.completed, 1)) == (2.0, 1.0)


# partitions


async def test_partitions_with_work_are_listed_by_name_in_pages(driver: Driver) -> None:
    await driver.push_messages(*(driver.message(p, partition=p) for p in "dbac"))
    await driver.push("again", partition="b")
    await driver.ack(*await driver.pop(partition="c"))

    first = await driver.store.partition_stats(driver.key(), "__QUEUE_MODE__", driver.now, limit=2)
    rest = await driver.store.partition_stats(driver.key(), "__QUEUE_MODE__", driver.now, after="b", limit=2)

    assert [(p.partition, p.pending, p.in_flight) for p in first] == [("a", 1, 0), ("b", 2, 0)]
    assert [p.partition for p in rest] == ["d"]


async def test_a_partition_tells_its_lease_and_its_retry(driver: Driver) -> None:
    await driver.push("a1", "a2", "a3", partition="a")
    await driver.push("b", partition="b")
    at = driver.now
    deliveries = await driver.pop(batch=2, lease_seconds=10)
    (b,) = await driver.pop(partition="b")
    await driver.nack(b, retry=Retry.AT, retry_at=driver.later(30))

    one, two = await driver.store.partition_stats(driver.key(), "__QUEUE_MODE__", driver.now)

    assert len(deliveries) == 2
    assert (one.partition, one.pending, one.in_flight, one.attempts) == ("a", 1, 2, 1)
    assert (one.lease_deadline, one.ready_at, one.oldest_at) == (driver.later(10), driver.later(10), at)
    assert (two.partition, two.pending, two.in_flight, two.attempts) == ("b", 1, 0, 1)
    assert (two.lease_deadline, two.ready_at) == (None, driver.later(30))


async def test_groups_count_their_partitions(driver: Driver) -> None:
    await driver.push_messages(*(driver.message(p, partition=p) for p in "abc"))
    await driver.pop(batch=1)

    stats = await driver.stats()

    assert (stats.partitions_leased, stats.partitions_pending) == (1, 2)


# leases


async def test_live_leases_are_listed_by_deadline(driver: Driver) -> None:
    await driver.push_messages(*(driver.message(p, partition=p) for p in "abc"))
    at = driver.now
    await driver.pop(partition="a", lease_seconds=30)
    await driver.pop(partition="b", lease_seconds=10)
    await driver.pop(partition="c", lease_seconds=20)

    leases = await driver.store.leases(driver.tenant, driver.now)
    assert [lease.partition for lease in leases] == ["b", "c", "a"]
    first = leases[0]
    assert (first.queue, first.group, first.messages, first.first_seq) == (driver.key(), "__QUEUE_MODE__", 1, 2)
    assert (first.leased_at, first.deadline, first.attempts) == (at, driver.later(10), 1)

    soon = await driver.store.leases(driver.tenant, driver.now, expiring_before=driver.later(25))
    assert [lease.partition for lease in soon] == ["b", "c"]
    assert len(await driver.store.leases(driver.tenant, driver.now, limit=1)) == 1


async def test_leases_that_ended_or_ran_out_are_not_live(driver: Driver) -> None:
    await driver.push_messages(*(driver.message(p, partition=p) for p in "ab"))
    await driver.push("other", queue="r")
    await driver.ack(*await driver.pop(partition="a"))
    await driver.pop(partition="b", lease_seconds=5)
    await driver.pop("r", lease_seconds=50)
    driver.clock.advance(5)

    assert [i.queue.name for i in await driver.store.leases(driver.tenant, driver.now)] == ["r"]
    assert await driver.store.leases(driver.tenant, driver.now, key=driver.key("q")) == []


async def test_leases_of_unordered_queues_are_listed_too(driver: Driver) -> None:
    await driver.create(ordering=Ordering.UNORDERED)
    await driver.push("a", "b")
    await driver.pop(lease_seconds=5)

    (lease,) = await driver.store.leases(driver.tenant, driver.now)

    assert (lease.messages, lease.first_seq, lease.deadline) == (2, 1, driver.later(5))


async def test_dead_letters_are_counted(driver: Driver) -> None:
    await driver.push("a", "b", "c")
    deliveries = await driver.pop()
    await driver.settle(*(driver.settlement(d, Outcome.REJECT) for d in deliveries[:2]))

    assert (await driver.queue_stats()).dead_letters == 2
    assert (await driver.queue_stats("q.dead")).dead_letters == 2


async def test_the_count_of_dead_letters_follows_all_that_becomes_of_them(driver: Driver) -> None:
    await driver.create("graves", retention_seconds=100, retention_ignores_groups=True)
    await driver.create(dead_letter_queue="graves")
    await driver.create("r", dead_letter_queue="graves")

    async def counts() -> tuple[int, int, int]:
        await driver.store.sweep(driver.now, 100_000)  # which changes none of them
        q, r, graves = [(await driver.queue_stats(name)).dead_letters for name in ("q", "r", "graves")]
        return q, r, graves

    await driver.push("a", "b", "c", "d")
    await driver.push("e", queue="r")
    for delivery in [*await driver.pop(), *await driver.pop(queue="r")]:
        await driver.reject(delivery)
    assert await counts() == (4, 1, 5)
    await driver.replay("graves", seqs=[1])
    assert await counts() == (3, 1, 4)
    await driver.purge("graves", source_queue="r")
    assert await counts() == (3, 0, 3)
    driver.clock.advance(1000)
    await driver.retain("graves")
    assert await counts() == (0, 0, 0)


async def test_I12_a_seek_starts_the_account_anew(driver: Driver) -> None:
    await driver.push("a", "b", "c")
    deliveries = await driver.pop()
    await driver.ack(deliveries[0])
    await driver.reject(deliveries[1])

    await driver.seek(FROM_BEGINNING)

    assert account(await driver.stats()) == {"pushed": 3, "pending": 3}


async def test_many_queues_are_looked_at_at_once_as_each_by_itself(driver: Driver) -> None:
    made = []
    for name in ("c", "a", "b", "gone"):
        made.append(await driver.create(name, ordering=Ordering.UNORDERED if name == "b" else Ordering.PER_KEY))
        await driver.push("1", "2", "3", queue=name)
    await driver.ack(*await driver.pop("a", batch=1))
    await driver.pop("b", batch=2, group="g")
    await driver.pop("a", batch=1, group="g")
    await driver.reject(*await driver.pop("c", batch=1))
    await driver.delete("gone")

    found = await driver.store.stats_of(made, driver.now)

    assert found[:3] == [await driver.queue_stats(queue.key.name) for queue in made[:3]]
    assert found[3] is None


@pytest.mark.parametrize("ordering", [Ordering.PER_KEY, Ordering.UNORDERED])
async def test_what_is_under_a_lease_that_ran_out_is_pending_and_in_nobodys_hands(
    driver: Driver, ordering: Ordering
) -> None:
    await driver.create(ordering=ordering, lease_seconds=10)
    await driver.push("a", "b", partition="p")
    await driver.pop(group="g")
    driver.clock.advance(10)

    group = await driver.stats(group="g")
    [partition] = await driver.store.partition_stats(driver.key(), "g", driver.now)

    assert (group.pending, group.in_flight, group.partitions_pending, group.partitions_leased) == (2, 0, 1, 0)
    assert (partition.pending, partition.in_flight, partition.lease_deadline) == (2, 0, None)
    assert (await driver.queue_stats()).in_flight == 0
    assert len((await driver.browse(group="g", state=MessageState.PENDING)).messages) == 2
    assert (await driver.browse(group="g", state=MessageState.IN_FLIGHT)).messages == []
