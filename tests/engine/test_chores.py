"""Timers at the earliest deadline: chores run when something is due, and only then."""

from __future__ import annotations

from random import Random
from typing import cast

import pytest

from skep.clock import Instant, ManualClock, seconds
from skep.config import EngineSettings, Limits
from skep.engine import Engine
from skep.errors import Code, SkepError
from skep.ids import IdMint
from skep.model import DeadLetterFilter, Outcome, PopRequest, PushBatch, QueueChanges, QueueKey, QueueSettings, Seq
from tests.engine.driver import ORDERS, EngineDriver, answer, message, settlement, until
from tests.engine.recording import RecordingStore


def passes(driver: EngineDriver, chore: str, key: QueueKey = ORDERS) -> int:
    return driver.store.calls[chore].count(key)  # type: ignore[arg-type] # the first argument of a chore is its queue


async def calm(driver: EngineDriver, key: QueueKey = ORDERS) -> None:
    """The queue is known, and each of its chores has looked once."""
    await until(lambda: all(passes(driver, chore, key) for chore in ("promote", "expire", "retain")))
    await driver.quiet()


async def test_a_scheduled_message_enters_the_log_when_it_is_due_and_not_before(driver: EngineDriver) -> None:
    await driver.engine.create_queue(ORDERS)
    await calm(driver)
    before = passes(driver, "promote")
    for delay in (50, 20, 90):
        await driver.push(str(delay), deliver_at=Instant(driver.clock.now() + seconds(delay)))
    await driver.advance(19)
    assert passes(driver, "promote") == before
    driver.clock.advance(1)
    await until(lambda: passes(driver, "promote") == before + 1 and driver.engine.is_quiet)

    assert (await driver.engine.browse.queue_stats(ORDERS)).last_seq == 1
    driver.clock.advance(30)
    await until(lambda: passes(driver, "promote") == before + 2 and driver.engine.is_quiet)
    assert (await driver.engine.browse.queue_stats(ORDERS)).last_seq == 2


async def come_by_schedule(driver: EngineDriver, settings: QueueSettings) -> None:
    """A queue with a message that has just entered the log, long after its push."""
    await driver.engine.create_queue(ORDERS, settings)
    await calm(driver)
    await driver.pop()
    await driver.push("1", deliver_at=Instant(driver.clock.now() + seconds(1000)))
    for _ in range(2):
        await driver.advance(500)
    assert (await driver.engine.browse.queue_stats(ORDERS)).last_seq == 1


async def test_a_message_that_came_by_schedule_expires_like_any_other(driver: EngineDriver) -> None:
    await come_by_schedule(driver, QueueSettings(max_age_seconds=60))
    await driver.advance(60)

    assert (await driver.engine.browse.queue_stats(ORDERS)).dead_letters == 1


async def test_a_message_that_came_by_schedule_leaves_the_log_like_any_other(driver: EngineDriver) -> None:
    await come_by_schedule(driver, QueueSettings(retention_seconds=60, retention_ignores_groups=True))
    await driver.advance(60)

    assert (await driver.engine.browse.queue_stats(ORDERS)).first_seq == 2


@pytest.mark.parametrize("kept", [{"completed_retention_seconds": 1}, {"retention_seconds": 5}], ids=str)
async def test_a_message_leaves_the_log_soon_after_it_is_settled_though_nothing_else_comes(
    driver: EngineDriver, kept: dict[str, float]
) -> None:
    await driver.engine.create_queue(ORDERS, QueueSettings(**kept))  # type: ignore[arg-type] # two of its fields
    await calm(driver)
    await driver.push("1")
    found = await driver.pop()
    await driver.advance(100)
    await driver.ack(found)
    for _ in range(2):
        await driver.advance(1)

    assert (await driver.engine.browse.queue_stats(ORDERS)).first_seq == 2


async def test_messages_past_their_age_expire_to_the_dead_letter_queue(driver: EngineDriver) -> None:
    await driver.engine.create_queue(ORDERS, QueueSettings(max_age_seconds=60))
    await calm(driver)
    await driver.pop()
    await driver.push("1")
    driver.clock.advance(61)
    poll = None
    await driver.quiet()
    poll = await driver.engine.pop(PopRequest(QueueKey("orders.dead")), wait_seconds=10)

    assert [delivery.payload for delivery in poll.deliveries] == [b"1"]


async def test_I10_a_message_whose_last_lease_runs_out_is_buried_though_nobody_pops(driver: EngineDriver) -> None:
    await driver.engine.create_queue(ORDERS, QueueSettings(max_attempts=1, lease_seconds=30))
    await calm(driver)
    await driver.push("1")
    await driver.pop()
    await driver.advance(30)

    assert (await driver.engine.browse.queue_stats(ORDERS)).dead_letters == 1


async def test_settings_that_change_set_the_timers_anew(driver: EngineDriver) -> None:
    await driver.push("1")
    await driver.pop(group="slow")
    await calm(driver)
    await driver.engine.update_queue(ORDERS, QueueChanges(retention_seconds=60, retention_ignores_groups=True))
    await driver.advance(61)

    assert (await driver.engine.browse.queue_stats(ORDERS)).first_seq == 2


async def test_queues_nobody_touched_since_the_start_have_their_timers(
    store: RecordingStore, clock: ManualClock
) -> None:
    ids = IdMint(clock)
    for tenant in ("default", "other"):
        late = message("1", QueueKey("orders", tenant), deliver_at=Instant(clock.now() + seconds(100)))
        await store.inner.push([PushBatch([late], ids.mint_many(1))], clock.now())
    engine = Engine(store.as_store, clock, ids, Random(1))
    await engine.start()
    keys = [QueueKey("orders", tenant) for tenant in ("default", "other")]
    driver = EngineDriver(engine, clock, store)
    for key in keys:
        await calm(driver, key)
    clock.advance(100)
    await until(lambda: all(passes(driver, "promote", key) == 2 for key in keys) and engine.is_quiet)

    for key in keys:
        assert (await engine.browse.queue_stats(key)).last_seq == 1
    await engine.stop()


async def test_a_chore_that_fails_is_tried_again_later_and_the_others_go_on(driver: EngineDriver) -> None:
    await driver.engine.create_queue(ORDERS)
    await calm(driver)
    driver.store.fail_next("promote", SkepError(Code.STORE_BUSY, "busy"), RuntimeError("a bug"))
    before = passes(driver, "promote")
    await driver.push("1", deliver_at=Instant(driver.clock.now() + seconds(5)))
    driver.clock.advance(5)
    await until(lambda: passes(driver, "promote") == before + 1)
    assert await driver.pop() == []
    for backoff_seconds in (1, 2):
        await driver.quiet()
        await driver.advance(backoff_seconds)

    assert passes(driver, "promote") == before + 3
    assert [delivery.payload for delivery in await driver.pop()] == [b"1"]


async def test_a_time_that_becomes_known_while_a_chore_runs_is_kept(driver: EngineDriver) -> None:
    await driver.engine.create_queue(ORDERS)
    await calm(driver)
    now = driver.clock.now()
    await driver.push("1", deliver_at=Instant(now + seconds(5)))
    driver.store.hold_answers("promote")
    driver.clock.advance(5)
    await driver.store.held("promote")
    await driver.push("2", deliver_at=Instant(now + seconds(9)))
    driver.store.let_go("promote")
    await driver.quiet()
    await driver.advance(4)

    assert [delivery.payload for delivery in await driver.pop(batch=2)] == [b"1", b"2"]


async def test_samples_sweeps_and_maintenance_come_again_and_again(driver: EngineDriver) -> None:
    await driver.quiet()
    counts = {chore: len(driver.store.calls[chore]) for chore in ("sample", "sweep", "maintain")}
    for _ in range(12):
        await driver.advance(5)

    grown = {chore: len(driver.store.calls[chore]) - count for chore, count in counts.items()}
    assert grown == {"sample": 6, "sweep": 1, "maintain": 12}


async def test_idle_queues_are_dropped_from_memory(driver: EngineDriver) -> None:
    await driver.push("1")
    poll = await driver.polling(QueueKey("orders"), group="other", partition="none", wait_seconds=300)
    await driver.push("1", queue=QueueKey("idle"))
    assert driver.engine.logical_queues == 2
    for _ in range(8):
        await driver.advance(10)

    assert driver.engine.logical_queues == 1, "one where a poll waits stays"
    poll.cancel()


class TestBounded:
    @pytest.fixture
    def settings(self) -> EngineSettings:
        return EngineSettings(limits=Limits(chore_rows=10, logical_queues=3, chores_in_flight=2))

    async def test_a_pass_is_bounded_and_runs_again_while_there_is_more(self, driver: EngineDriver) -> None:
        await driver.engine.create_queue(ORDERS)
        await calm(driver)
        before = passes(driver, "promote")
        due = Instant(driver.clock.now() + seconds(5))
        await driver.push(*(str(number) for number in range(35)), deliver_at=due)
        driver.clock.advance(5)
        await until(lambda: passes(driver, "promote") >= before + 4 and driver.engine.is_quiet)

        assert (await driver.engine.browse.queue_stats(ORDERS)).last_seq == 35

    async def test_only_so_many_chores_run_at_once(self, driver: EngineDriver) -> None:
        await driver.quiet()
        driver.store.hold("promote")
        keys = [QueueKey(f"q{number}") for number in range(5)]
        for key in keys:
            await driver.engine.create_queue(key)
        await until(lambda: len(driver.store.calls["promote"]) == 2)
        for _ in range(10):
            await driver.engine.browse.queue_stats(keys[0])
        at_once = len(driver.store.calls["promote"])
        driver.store.let_go("promote")
        await driver.quiet()

        assert at_once == 2
        assert looked_at(driver, "promote") == keys

    async def test_the_number_of_queues_held_ready_is_bounded(self, driver: EngineDriver) -> None:
        for number in range(10):
            await driver.push("1", queue=QueueKey(f"q{number}"))

        assert driver.engine.logical_queues <= 3


def looked_at(driver: EngineDriver, chore: str) -> list[QueueKey]:
    """The queues that a chore has looked at, by name."""
    return sorted(cast("list[QueueKey]", driver.store.calls[chore]))


class TestSharedStore:
    @pytest.fixture
    def settings(self) -> EngineSettings:
        return EngineSettings(shared=True)

    async def test_each_queue_is_looked_at_once_a_minute_but_not_all_of_them_at_one_moment(
        self, driver: EngineDriver
    ) -> None:
        """What a server that died had planned is found by the others."""
        keys = [QueueKey(f"q{number}") for number in range(40)]
        for key in keys:
            await driver.engine.create_queue(key)
        await calm(driver, keys[-1])
        for _ in range(61):  # the first look at all of them, which gives each its turn
            await driver.advance(1)
        driver.store.calls.clear()
        together = []
        for _ in range(60):
            before = len(driver.store.calls["promote"])
            await driver.advance(1)
            together.append(len(driver.store.calls["promote"]) - before)

        for chore in ("promote", "expire", "retain"):
            assert looked_at(driver, chore) == sorted(keys)
        assert max(together) < len(keys) / 4

    async def test_all_queues_are_looked_at_at_once_when_changes_were_missed(self, driver: EngineDriver) -> None:
        keys = [QueueKey(f"q{number}") for number in range(10)]
        for key in keys:
            await driver.engine.create_queue(key)
        await calm(driver, keys[-1])
        driver.store.calls.clear()
        driver.store.fail_next("list_queues", SkepError(Code.STORE_BUSY, "busy"))
        driver.engine.caches.missed()
        await driver.quiet()
        await driver.advance(1)

        assert looked_at(driver, "promote") == sorted(keys), "also after a look that failed"


async def test_a_report_of_the_archive_lets_retention_go_on_though_nothing_else_comes(driver: EngineDriver) -> None:
    settings = QueueSettings(retention_seconds=10, retention_requires_archive=True)
    await driver.engine.create_queue(ORDERS, settings)
    await calm(driver)
    await driver.push("1")
    await driver.ack(await driver.pop())
    await driver.advance(100)
    assert (await driver.engine.browse.queue_stats(ORDERS)).first_seq == 1

    await driver.engine.log.report_progress(ORDERS, "lake", Seq(1), archived=True)
    await driver.advance(1)

    assert (await driver.engine.browse.queue_stats(ORDERS)).first_seq == 2


async def test_a_push_to_a_queue_made_by_it_learns_its_settings(driver: EngineDriver) -> None:
    await driver.push("1", deliver_at=Instant(driver.clock.now() + seconds(30)))
    await calm(driver)
    poll = await driver.polling()
    driver.clock.advance(30)

    assert await answer(poll) == ["1"]


DEAD = QueueKey("orders.dead")


async def test_dead_letters_leave_at_their_age_though_nobody_touches_their_queue(driver: EngineDriver) -> None:
    await driver.engine.create_queue(DEAD, QueueSettings(max_age_seconds=604_800))
    await driver.engine.create_queue(ORDERS, QueueSettings(max_age_seconds=60))
    await calm(driver)
    await calm(driver, DEAD)
    await driver.push("1")
    await driver.advance(60)
    assert (await driver.engine.browse.queue_stats(DEAD)).depth == 1

    await driver.advance(604_799)
    assert (await driver.engine.browse.queue_stats(DEAD)).dead_letters == 1
    await driver.advance(1)

    stats = await driver.engine.browse.queue_stats(DEAD)
    assert (stats.depth, stats.dead_letters, stats.first_seq) == (0, 0, 2)


async def test_I12_a_letter_purged_under_a_lease_is_gone_when_that_runs_out(driver: EngineDriver) -> None:
    await driver.engine.create_queue(ORDERS)
    await calm(driver)
    await driver.push("1")
    [delivery] = await driver.pop()
    await driver.engine.settle([settlement(delivery, Outcome.REJECT)])
    await calm(driver, DEAD)
    await driver.pop(queue=DEAD, lease_seconds=30)
    await driver.engine.dead_letters.purge(DeadLetterFilter(queue=DEAD))
    assert (await driver.engine.browse.queue_stats(DEAD)).depth == 1

    await driver.advance(30)

    assert (await driver.engine.browse.queue_stats(DEAD)).depth == 0
