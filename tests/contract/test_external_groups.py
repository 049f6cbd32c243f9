"""External groups: readers of the raw log that tell how far they have come."""

from __future__ import annotations

import pytest

from skep.errors import Code, SkepError
from skep.model import FROM_BEGINNING, ClearScope, GroupStats, Ordering, Seq
from tests.contract.driver import Driver, payloads

BOTH = pytest.mark.parametrize("ordering", [Ordering.PER_KEY, Ordering.UNORDERED])


async def report(driver: Driver, seq: int, group: str = "spark") -> GroupStats:
    stats = await driver.store.report_progress(driver.key(), group, Seq(seq), driver.now)
    await driver.check_accounts()
    return stats


async def refusal(driver: Driver, seq: int, group: str = "spark") -> Code:
    with pytest.raises(SkepError) as refused:
        await report(driver, seq, group)
    return refused.value.code


async def test_a_group_begins_where_it_is_first_told_to_be_and_its_lag_shows(driver: Driver) -> None:
    await driver.push("a", "b", "c")
    driver.clock.advance(10)

    began = await report(driver, 1)
    moved = await report(driver, 2)

    assert (began.external, began.progress_seq, began.pushed, began.completed, began.pending) == (True, 1, 2, 0, 2)
    assert (moved.progress_seq, moved.completed, moved.pending, moved.lag_messages) == (2, 1, 1, 1)
    assert moved.lag_seconds == 10.0
    assert (await driver.queue_stats()).depth == 1
    assert await driver.stats(group="spark") == moved


async def test_I7_progress_never_goes_back_but_by_a_seek(driver: Driver) -> None:
    await driver.push("a", "b", "c")
    await report(driver, 0)
    await report(driver, 3)

    assert (await report(driver, 1)).progress_seq == 3
    sought = await driver.seek(FROM_BEGINNING, group="spark")
    assert (sought.progress_seq, sought.external) == (0, True)
    assert (await report(driver, 2)).completed == 2


async def test_a_seq_beyond_the_log_is_refused(driver: Driver) -> None:
    await driver.push("a")

    assert await refusal(driver, 2) is Code.INVALID_REQUEST
    assert (await driver.queue_stats()).groups == []
    with pytest.raises(SkepError) as missing:
        await driver.store.report_progress(driver.key("none"), "spark", Seq(0), driver.now)
    assert missing.value.code is Code.QUEUE_NOT_FOUND


@BOTH
async def test_nobody_pops_for_an_external_group(driver: Driver, ordering: Ordering) -> None:
    await driver.create(ordering=ordering)
    await driver.push("a")
    await report(driver, 0)

    with pytest.raises(SkepError) as refused:
        await driver.pop(group="spark")

    assert refused.value.code is Code.GROUP_EXTERNAL
    assert payloads(await driver.pop(group="other")) == ["a"]


@BOTH
async def test_a_group_that_pops_does_not_become_external(driver: Driver, ordering: Ordering) -> None:
    await driver.create(ordering=ordering)
    await driver.push("a")
    await driver.pop(group="g")

    assert await refusal(driver, 1, group="g") is Code.GROUP_NOT_EXTERNAL
    assert not (await driver.stats(group="g")).external


@BOTH
async def test_retention_waits_for_an_external_group(driver: Driver, ordering: Ordering) -> None:
    await driver.create(ordering=ordering, retention_seconds=10.0)
    await driver.push("a", "b", "c")
    await report(driver, 0)
    driver.clock.advance(20)

    assert (await driver.retain()).done == 0
    await report(driver, 2)
    assert (await driver.retain()).done == 2


@BOTH
async def test_I12_what_retention_took_without_asking_counts_as_expired_at_once(
    driver: Driver, ordering: Ordering
) -> None:
    await driver.create(ordering=ordering, retention_seconds=10.0, retention_ignores_groups=True)
    await driver.push("a", "b")
    await report(driver, 0)
    driver.clock.advance(20)
    await driver.retain()
    await driver.push("c")

    stats = await driver.stats(group="spark")
    assert (stats.completed, stats.expired, stats.pending) == (0, 2, 1)
    assert (await driver.queue_stats()).depth == 1

    stats = await report(driver, 3)
    assert (stats.completed, stats.expired, stats.pending) == (1, 2, 0)


@BOTH
async def test_expiry_takes_nothing_from_an_external_group(driver: Driver, ordering: Ordering) -> None:
    await driver.create(ordering=ordering, max_age_seconds=10.0)
    await driver.push("a", "b")
    await report(driver, 0)
    driver.clock.advance(20)

    await driver.expire()

    stats = await driver.stats(group="spark")
    assert (stats.pending, stats.expired, stats.partitions_pending) == (2, 0, 0)
    assert await driver.dead() == []


async def test_clearing_moves_an_external_group_to_the_end(driver: Driver) -> None:
    await driver.push("a", "b")
    await report(driver, 1)

    await driver.clear(ClearScope.PENDING)

    stats = await driver.stats(group="spark")
    assert (stats.progress_seq, stats.expired, stats.pending) == (2, 1, 0)
    assert (await report(driver, 2)).completed == 0


async def test_what_is_replayed_for_another_group_is_read_too(driver: Driver) -> None:
    await driver.push("a")
    await report(driver, 1)
    await driver.reject(await driver.pop_one(group="g"))
    await driver.replay()

    lagging = await driver.stats(group="spark")
    done = await report(driver, 2)

    assert (lagging.pending, lagging.oldest_at) == (1, driver.now)
    assert (done.completed, done.pending, done.oldest_at) == (1, 0, None)


async def test_a_deleted_external_group_may_come_back_as_one_that_pops(driver: Driver) -> None:
    await driver.push("a")
    await report(driver, 1)

    assert await driver.delete_group(group="spark")
    assert payloads(await driver.pop(group="spark")) == ["a"]


async def test_progress_in_many_logs_is_told_at_once_and_a_queue_that_is_not_there_is_left_out(driver: Driver) -> None:
    for queue in ("a", "b", "c"):
        await driver.push("1", "2", "3", queue=queue)
    await driver.store.report_progress(driver.key("a"), "spark", Seq(1), driver.now)
    tenant = driver.key().tenant

    first = await driver.store.report_progress_of_logs(
        tenant, "spark", {"c": Seq(0), "none": Seq(1), "a": Seq(3), "b": Seq(2)}, driver.now
    )
    again = await driver.store.report_progress_of_logs(tenant, "spark", {"a": Seq(2), "b": Seq(3)}, driver.now)

    assert (first, again) == ({"a": 3, "b": 2, "c": 0}, {"a": 3, "b": 3})
    await driver.check_accounts()
    stats = {queue: await driver.stats(queue, group="spark") for queue in ("a", "b", "c")}
    assert {queue: (one.progress_seq, one.completed, one.pending) for queue, one in stats.items()} == {
        "a": (3, 2, 0), "b": (3, 1, 0), "c": (0, 0, 3),
    }  # fmt: skip
    assert all(one.external for one in stats.values())


async def test_progress_in_many_logs_that_cannot_be_names_its_queue(driver: Driver) -> None:
    for queue in ("a", "b"):
        await driver.push("1", queue=queue)
        await driver.store.report_progress(driver.key(queue), "spark", Seq(0), driver.now)
    await driver.pop("b", group="g")

    async def refused(group: str, **seqs: int) -> tuple[Code, str]:
        told = {queue: Seq(seq) for queue, seq in seqs.items()}
        with pytest.raises(SkepError) as error:
            await driver.store.report_progress_of_logs(driver.key().tenant, group, told, driver.now)
        return error.value.code, error.value.message

    code, message = await refused("spark", a=1, b=2)
    assert (code, "'b'" in message) == (Code.INVALID_REQUEST, True)
    code, message = await refused("g", b=1)
    assert (code, "'b'" in message) == (Code.GROUP_NOT_EXTERNAL, True)
