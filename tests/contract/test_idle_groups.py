"""Groups that nobody uses any more: when that is so, what they no longer hold back, and that they lose no progress."""

from __future__ import annotations

from typing import Any

import pytest

from skep.errors import Code
from skep.model import FROM_BEGINNING, FROM_NOW, Ordering, Seq
from tests.contract.driver import Driver, payloads

BOTH = pytest.mark.parametrize("ordering", [Ordering.PER_KEY, Ordering.UNORDERED])
DAY = 86_400.0


async def make(driver: Driver, ordering: Ordering = Ordering.PER_KEY, **settings: Any) -> None:
    """A queue with a group in use and one that nobody uses, each with three messages before it."""
    given = {"group_idle_seconds": DAY} | settings
    await driver.create(ordering=ordering, **given)
    await driver.seek(FROM_BEGINNING, group="mistyped")
    driver.clock.advance(1)
    await driver.seek(FROM_BEGINNING, group="real")
    await driver.push("a", "b", "c")


async def pass_days(driver: Driver, days: float, *users: str) -> None:
    """Let time pass as it does while a server runs: some use their groups, and retention looks every hour."""
    for _ in range(round(days * 24)):
        driver.clock.advance(DAY / 24)
        for user in users:
            await driver.store.pop([driver.request(group=user, batch=1, auto_ack=True)], driver.now)
        await driver.store.retain(driver.key(), driver.now, 1000)
    await driver.check_accounts()


async def idle(driver: Driver) -> list[str]:
    return [group.group for group in (await driver.queue_stats()).groups if group.idle]


@BOTH
async def test_a_group_that_nobody_uses_stops_holding_back_retention_and_depth(
    driver: Driver, ordering: Ordering
) -> None:
    await make(driver, ordering, retention_seconds=10, max_depth=3)
    await pass_days(driver, 0.9, "real")
    assert await idle(driver) == []
    (refused,) = await driver.push("d")
    assert refused.code is Code.QUEUE_FULL

    await pass_days(driver, 0.2, "real")

    assert await idle(driver) == ["mistyped"]
    stats = await driver.queue_stats()
    assert (stats.depth, stats.first_seq) == (0, 4)
    mistyped = await driver.stats(group="mistyped")
    assert (mistyped.pushed, mistyped.expired, mistyped.lag_messages) == (3, 3, 0)
    (taken,) = await driver.push("d")
    assert taken.code is None


@BOTH
async def test_an_idle_group_keeps_its_place_and_is_in_use_again_with_its_next_pop(
    driver: Driver, ordering: Ordering
) -> None:
    await make(driver, ordering)
    assert payloads(await driver.pop(group="mistyped", batch=1, auto_ack=True)) == ["a"]
    await pass_days(driver, 1.2, "real")
    assert await idle(driver) == ["mistyped"]
    assert (await driver.queue_stats()).depth == 0

    assert payloads(await driver.pop(group="mistyped", batch=1, auto_ack=True)) == ["b"]

    assert await idle(driver) == []
    assert (await driver.queue_stats()).depth == 1
    assert (await driver.stats(group="mistyped")).active_at == driver.now


async def test_by_default_no_group_is_ever_idle(driver: Driver) -> None:
    await make(driver, group_idle_seconds=0, retention_seconds=10)
    await pass_days(driver, 2, "real")

    assert await idle(driver) == []
    assert (await driver.queue_stats()).depth == 3
    assert len((await driver.browse()).messages) == 3
    assert (await driver.stats(group="mistyped")).inactive_seconds > DAY


async def test_the_group_that_was_used_last_is_never_idle(driver: Driver) -> None:
    await make(driver)
    await pass_days(driver, 2)

    assert await idle(driver) == ["mistyped"]
    assert (await driver.queue_stats()).depth == 3
    await driver.delete_group(group="real")
    assert (await driver.queue_stats()).depth == 3, "when no group is in use, all count"
    await driver.retain()
    assert await idle(driver) == []


async def test_after_an_outage_groups_have_time_to_come_back(driver: Driver) -> None:
    await make(driver)
    await pass_days(driver, 0.1, "real", "mistyped")
    driver.clock.advance(5 * DAY)

    await driver.pop(group="real")
    await driver.retain()
    assert await idle(driver) == []
    await pass_days(driver, 0.1, "real", "mistyped")
    assert await idle(driver) == []
    await pass_days(driver, 1.1, "real")
    assert await idle(driver) == ["mistyped"]


@BOTH
async def test_a_group_with_a_live_lease_is_in_use(driver: Driver, ordering: Ordering) -> None:
    await make(driver, ordering)
    [held] = await driver.pop(group="mistyped", batch=1, lease_seconds=3 * DAY)
    await pass_days(driver, 1.2, "real")
    assert await idle(driver) == []

    await driver.ack(held)

    assert (await driver.stats(group="mistyped")).active_at == driver.now


async def test_external_groups_are_idle_when_nothing_is_reported(driver: Driver) -> None:
    await make(driver, retention_seconds=10)
    await driver.delete_group(group="mistyped")
    await driver.store.report_progress(driver.key(), "spark", Seq(1), driver.now)
    await pass_days(driver, 1.2, "real")
    assert await idle(driver) == ["spark"]
    assert (await driver.queue_stats()).depth == 0

    stats = await driver.store.report_progress(driver.key(), "spark", Seq(1), driver.now)

    assert (stats.idle, stats.active_at) == (False, driver.now)
    assert (stats.pushed, stats.expired, stats.lag_messages) == (2, 2, 0)


async def test_turning_the_setting_off_counts_idle_groups_again(driver: Driver) -> None:
    await make(driver)
    await pass_days(driver, 1.2, "real")
    assert await idle(driver) == ["mistyped"]

    await driver.update(group_idle_seconds=0)
    await driver.retain()

    assert await idle(driver) == []
    assert (await driver.queue_stats()).depth == 3


@BOTH
async def test_when_a_group_was_used_is_known_to_the_minute(driver: Driver, ordering: Ordering) -> None:
    await driver.create(ordering=ordering)
    start = driver.now
    await driver.seek(FROM_NOW, group="g")
    driver.clock.advance(59)
    await driver.pop(group="g")
    assert (await driver.stats(group="g")).active_at == start

    driver.clock.advance(1)
    await driver.pop(group="g")
    assert (await driver.stats(group="g")).active_at == driver.now

    await driver.push("a", "b")
    [a, b] = await driver.pop(group="g", lease_seconds=1000)
    driver.clock.advance(60)
    await driver.ack(a)
    assert (await driver.stats(group="g")).active_at == driver.now
    driver.clock.advance(60)
    await driver.nack(b)
    assert (await driver.stats(group="g")).active_at == driver.now
    driver.clock.advance(10)
    await driver.seek(FROM_NOW, group="g")
    stats = await driver.stats(group="g")
    assert (stats.active_at, stats.inactive_seconds) == (driver.now, 0)


async def test_who_asks_a_paused_queue_uses_the_group(driver: Driver) -> None:
    await driver.create(paused=True)
    await driver.seek(FROM_NOW, group="g")
    driver.clock.advance(100)

    assert await driver.pop(group="g") == []

    assert (await driver.stats(group="g")).active_at == driver.now
