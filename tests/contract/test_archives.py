"""Retention that requires an archive: nothing leaves the log by itself that is in no lake."""

from __future__ import annotations

from typing import Any

import pytest

from skep.errors import Code, SkepError
from skep.model import FROM_BEGINNING, FROM_NOW, ArchiveStats, ClearScope, GroupStats, Ordering, Seq, Start, StartMode
from skep.store.sqlite import SqliteStore
from tests.contract.driver import Driver
from tests.support.owned_store import OwnedStore

BOTH = pytest.mark.parametrize("ordering", [Ordering.PER_KEY, Ordering.UNORDERED])
HOUR = 3_600.0

RULES: dict[str, dict[str, Any]] = {
    "by time": {"retention_seconds": 10},
    "when settled": {"completed_retention_seconds": 10},
    "ignoring groups": {"retention_seconds": 10, "retention_ignores_groups": True},
    "ignoring groups that are idle": {"retention_seconds": 10, "group_idle_seconds": 120},
    "letters past their age": {"max_age_seconds": 10, "dead_letter_queue": "none"},
}


async def archive(driver: Driver, seq: int, group: str = "archive", *, archived: bool = True) -> GroupStats:
    stats = await driver.store.report_progress(driver.key(), group, Seq(seq), driver.now, archived)
    await driver.check_accounts()
    return stats


async def make(driver: Driver, **settings: Any) -> None:
    """A queue with messages that a group has settled, and that are older than its retention."""
    holds = "max_age_seconds" in settings
    if holds:
        await driver.create("source", dead_letter_queue="q")
        await driver.update(retention_requires_archive=True, **settings)
    else:
        await driver.create(retention_requires_archive=True, **settings)
    await driver.push("a", "b", "c")
    await driver.pop(auto_ack=True)
    driver.clock.advance(20)
    await driver.retain()
    driver.clock.advance(20)


async def removed(driver: Driver) -> int:
    """How many messages retention deletes, now and later: what is settled only now is due later."""
    now = (await driver.retain()).done
    driver.clock.advance(HOUR)
    return now + (await driver.retain()).done


async def left(driver: Driver) -> list[str]:
    return [message.payload.decode() for message in (await driver.browse()).messages]


@pytest.mark.parametrize("rule", RULES)
async def test_no_rule_deletes_what_no_archive_has_reported(driver: Driver, rule: str) -> None:
    await make(driver, **RULES[rule])

    assert await removed(driver) == 0, "no archive has ever run"
    await archive(driver, 2)
    assert await removed(driver) == 2
    assert await removed(driver) == 0
    await archive(driver, 3)
    assert await removed(driver) == 1
    assert (await driver.queue_stats()).first_seq == 4


async def test_a_group_that_reports_its_progress_is_no_archive(driver: Driver) -> None:
    await make(driver, retention_seconds=10)

    stats = await archive(driver, 3, archived=False)

    assert stats.archived_seq is None
    assert (await driver.retain()).done == 0
    assert (await archive(driver, 2)).archived_seq == 2, "also for seqs that it had passed before"
    assert (await driver.retain()).done == 2


async def test_retention_waits_for_groups_too(driver: Driver) -> None:
    await make(driver, retention_seconds=10)
    await driver.seek(FROM_BEGINNING, group="slow")
    await archive(driver, 3)

    assert (await driver.retain()).done == 0
    await driver.pop(group="slow", batch=1, auto_ack=True)
    assert (await driver.retain()).done == 1


async def test_a_report_never_goes_back_and_a_seek_is_no_report(driver: Driver) -> None:
    await make(driver, retention_seconds=10, retention_ignores_groups=True)
    await archive(driver, 1)
    assert (await archive(driver, 0)).archived_seq == 1

    moved = await driver.seek(FROM_NOW, group="archive")

    assert (moved.progress_seq, moved.archived_seq) == (3, 1)
    assert (await driver.retain()).done == 1
    assert (await archive(driver, 2)).archived_seq == 2
    assert (await driver.retain()).done == 1


async def test_an_archive_that_is_moved_back_has_to_report_again(driver: Driver) -> None:
    await make(driver, retention_seconds=10, retention_ignores_groups=True)
    await archive(driver, 3)

    moved = await driver.seek(Start(StartMode.SEQ, 2), group="archive")

    assert (moved.progress_seq, moved.archived_seq) == (1, 1)
    assert (await driver.retain()).done == 1


async def test_a_deleted_archive_has_reported_nothing(driver: Driver) -> None:
    await make(driver, retention_seconds=10)
    await archive(driver, 3)

    await driver.delete_group(group="archive")

    assert (await driver.retain()).done == 0
    assert (await driver.queue_stats()).archive == ArchiveStats(None, 3, 40.0)


async def test_of_two_archives_the_slower_one_counts_until_it_is_idle(driver: Driver) -> None:
    await make(driver, retention_seconds=10, retention_ignores_groups=True, group_idle_seconds=HOUR)
    await archive(driver, 1, "left-behind")
    await archive(driver, 3)
    assert (await driver.retain()).done == 1
    for _ in range(3):
        driver.clock.advance(HOUR)
        await archive(driver, 3)
        await driver.retain()

    assert [one.group for one in (await driver.queue_stats()).groups if one.idle] == ["__QUEUE_MODE__", "left-behind"]
    assert await left(driver) == []


async def test_archives_count_when_all_are_idle(driver: Driver) -> None:
    await make(driver, retention_seconds=10, group_idle_seconds=HOUR)
    await archive(driver, 1)
    for _ in range(3):
        driver.clock.advance(HOUR)
        await driver.pop()
        await driver.retain()

    assert [one.group for one in (await driver.queue_stats()).groups if one.idle] == ["archive"]
    assert await left(driver) == ["b", "c"]


@BOTH
async def test_clearing_a_queue_is_no_retention(driver: Driver, ordering: Ordering) -> None:
    await driver.create(ordering=ordering, retention_requires_archive=True)
    await driver.push("a", "b")
    await archive(driver, 1)

    await driver.clear(ClearScope.ALL)

    assert (await driver.retain()).done == 2
    await driver.push("c")
    assert (await driver.queue_stats()).archive == ArchiveStats(Seq(1), 1, 0.0)


async def test_the_ordering_changes_only_when_all_is_archived(driver: Driver) -> None:
    await make(driver)
    with pytest.raises(SkepError) as refused:
        await driver.update(ordering=Ordering.FIFO)
    assert refused.value.code is Code.INVALID_SETTING
    await archive(driver, 3)

    await driver.update(ordering=Ordering.FIFO)

    assert (await driver.retain()).done == 3


async def test_the_setting_counts_from_its_change_on(driver: Driver) -> None:
    await driver.create(retention_seconds=10)
    await driver.push("a", "b")
    await driver.pop(auto_ack=True)
    driver.clock.advance(20)
    await driver.update(retention_requires_archive=True)

    assert (await driver.retain()).done == 0
    await driver.update(retention_requires_archive=False)
    assert (await driver.queue_stats()).archive is None
    assert (await driver.retain()).done == 2


async def test_what_waits_for_the_archive_is_shown_with_its_age(driver: Driver) -> None:
    await driver.create(retention_requires_archive=True)
    assert (await driver.queue_stats()).archive == ArchiveStats(None, 0, 0.0)
    await driver.push("a")
    driver.clock.advance(5)
    await driver.push("b", "c")
    await driver.pop(batch=1, auto_ack=True)
    driver.clock.advance(5)
    assert (await driver.queue_stats()).archive == ArchiveStats(None, 3, 10.0)

    await archive(driver, 1)
    assert (await driver.queue_stats()).archive == ArchiveStats(Seq(1), 2, 5.0)
    await driver.delete_message(3)
    assert (await driver.queue_stats()).archive == ArchiveStats(Seq(1), 1, 5.0), "gaps are no messages"
    await archive(driver, 3)
    assert (await driver.queue_stats()).archive == ArchiveStats(Seq(3), 0, 0.0)


async def test_a_pass_that_waits_for_the_archive_is_not_due_at_once(driver: Driver) -> None:
    await make(driver, retention_seconds=10)

    chore = await driver.retain()

    assert not chore.more
    assert chore.next_at is None or chore.next_at > driver.now


async def test_what_an_archive_reported_is_still_known_when_the_store_is_opened_again(driver: Driver) -> None:
    await make(driver, retention_seconds=10)
    await archive(driver, 3, archived=False)
    await archive(driver, 2)
    if isinstance(driver.store, SqliteStore | OwnedStore) and getattr(driver.store, "_path", "") != ":memory:":
        await driver.store.close()
        await driver.store.open()

    assert (await driver.retain()).done == 2


async def test_an_archive_reports_many_logs_at_once_new_ones_and_known_ones(driver: Driver) -> None:
    for queue in ("a", "b"):
        await driver.push("1", "2", queue=queue)
    await driver.store.report_progress(driver.key("a"), "archive", Seq(1), driver.now)

    told = {"a": Seq(2), "b": Seq(1)}
    await driver.store.report_progress_of_logs(driver.key().tenant, "archive", told, driver.now, True)

    stats = [await driver.stats(queue, group="archive") for queue in ("a", "b")]
    assert [one.archived_seq for one in stats] == [2, 1]
