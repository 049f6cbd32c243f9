"""Pops that wait: woken by whatever makes a message ready, in the order they came, and never for nothing."""

from __future__ import annotations

import asyncio

import pytest

from skep.clock import Instant, seconds
from skep.config import EngineSettings, Limits
from skep.engine import polls
from skep.engine.polls import ALONE_SECONDS, SPREAD
from skep.errors import Code, SkepError
from skep.ids import IdMint
from skep.model import (
    FROM_NOW,
    QUEUE_MODE_GROUP,
    ClearScope,
    DeadLetterFilter,
    Outcome,
    PopRequest,
    PopResult,
    PushBatch,
    QueueKey,
    QueueSettings,
    Retry,
    Start,
)
from skep.store.rules import ACTIVE_EVERY_MICROS
from tests.engine.driver import ORDERS, EngineDriver, answer, message, settlement, until


@pytest.fixture(autouse=True)
async def orders(driver: EngineDriver) -> None:
    await driver.engine.create_queue(ORDERS, QueueSettings(max_attempts=2, lease_seconds=30))


async def test_a_push_wakes_the_poll(driver: EngineDriver) -> None:
    poll = await driver.polling()
    await driver.push("1")

    assert await answer(poll) == ["1"]


async def test_a_push_in_the_middle_of_a_look_is_not_missed(driver: EngineDriver) -> None:
    driver.store.hold("pop")
    poll = asyncio.ensure_future(driver.engine.pop(PopRequest(ORDERS, group="g", start=FROM_NOW), wait_seconds=60))
    await driver.store.held("pop")
    await driver.push("1")
    driver.store.let_go("pop")
    await until(lambda: driver.engine.parked_polls == 1 or poll.done())
    await driver.push("2")

    assert len(await answer(poll)) == 1


async def test_a_push_over_several_queues_and_a_transaction_wake_too(driver: EngineDriver) -> None:
    first, second = await driver.polling(), await driver.polling()
    await driver.engine.push([message("1"), message("2", QueueKey("other"))])
    assert await answer(first) == ["1"]

    other = (await driver.pop(QueueKey("other")))[0]
    await driver.engine.transact([settlement(other)], [message("3", partition="p")])
    assert await answer(second) == ["3"]


async def test_a_push_over_several_queues_wakes_who_waits_for_one_of_its_partitions(driver: EngineDriver) -> None:
    polls = [await driver.polling(partition=partition) for partition in ("theirs", "mine", "also mine")]
    await driver.engine.push(
        [message("1", partition="mine"), message("2", QueueKey("other")), message("3", partition="also mine")]
    )

    assert [await answer(poll) for poll in polls[1:]] == [["1"], ["3"]]
    assert not polls[0].done()
    polls[0].cancel()


async def test_I9_a_lease_that_runs_out_wakes_the_poll(driver: EngineDriver) -> None:
    await driver.push("1")
    await driver.pop()
    poll = await driver.polling()
    driver.clock.advance(30)

    assert await answer(poll) == ["1"]


async def test_a_retry_that_comes_due_wakes_the_poll(driver: EngineDriver) -> None:
    await driver.push("1")
    (delivery,) = await driver.pop()
    poll = await driver.polling()
    await driver.nack(delivery, Retry.AT, retry_at=Instant(driver.clock.now() + seconds(3)))
    await until(lambda: driver.engine.parked_polls == 1)
    driver.clock.advance(3)

    assert await answer(poll) == ["1"]


async def test_a_settlement_that_frees_a_partition_wakes_the_poll(driver: EngineDriver) -> None:
    await driver.push("1", "2")
    deliveries = await driver.pop()
    poll = await driver.polling()
    await driver.ack(deliveries)

    assert await answer(poll) == ["2"]


async def test_a_scheduled_message_that_comes_due_wakes_the_poll(driver: EngineDriver) -> None:
    poll = await driver.polling()
    await driver.push("1", deliver_at=Instant(driver.clock.now() + seconds(4)))
    driver.clock.advance(4)

    assert await answer(poll) == ["1"]


async def test_a_dead_letter_wakes_who_waits_for_dead_letters(driver: EngineDriver) -> None:
    await driver.push("1", "2")
    (delivery,) = await driver.pop()
    await driver.engine.settle([settlement(delivery, Outcome.REJECT)])
    graves = QueueKey("orders.dead")
    await driver.ack(await driver.pop(graves))
    poll = await driver.polling(graves)
    (delivery,) = await driver.pop()
    await driver.engine.settle([settlement(delivery, Outcome.REJECT)])

    assert await answer(poll) == ["2"]


async def test_a_replay_a_seek_and_a_resume_wake_the_poll(driver: EngineDriver) -> None:
    await driver.push("1")
    await driver.engine.settle([settlement((await driver.pop())[0], Outcome.REJECT)])
    poll = await driver.polling()
    await driver.engine.dead_letters.replay(DeadLetterFilter(queue=QueueKey("orders.dead")))
    assert await answer(poll) == ["1"]

    poll = await driver.polling()
    await driver.engine.groups.seek(ORDERS, "__QUEUE_MODE__", Start())
    assert await answer(poll) == ["1"]

    await driver.engine.clear(ORDERS, ClearScope.ALL)
    await driver.engine.pause_queue(ORDERS)
    await driver.push("3")
    poll = await driver.polling()
    await driver.engine.resume_queue(ORDERS)
    assert await answer(poll) == ["3"]


async def test_when_its_time_is_over_a_poll_answers_with_nothing(driver: EngineDriver) -> None:
    poll = await driver.polling(wait_seconds=10)
    driver.clock.advance(10)

    assert await answer(poll) == []


async def test_signals_do_not_keep_a_poll_whose_time_is_over(driver: EngineDriver) -> None:
    poll = await driver.polling(wait_seconds=10)
    before = len(driver.store.calls["pop"])

    async def signal() -> None:
        await driver.engine.groups.seek(ORDERS, QUEUE_MODE_GROUP, FROM_NOW)

    driver.store.hold("pop")
    await signal()
    await driver.store.held("pop")
    driver.clock.advance(10)
    await signal()
    driver.store.let_go("pop")
    driver.store.hold("pop")
    await driver.store.held("pop")  # one more look, as the signal came after the first one had begun
    await signal()
    driver.store.let_go("pop")

    assert await answer(poll) == []
    assert len(driver.store.calls["pop"]) == before + 2


async def test_polls_are_served_in_the_order_they_came_and_one_message_wakes_one(driver: EngineDriver) -> None:
    polls = [await driver.polling() for _ in range(5)]
    looks = len(driver.store.calls["pop"])
    await driver.push("1", partition="a")
    assert await answer(polls[0]) == ["1"]
    assert driver.engine.parked_polls == 4

    await driver.push("2", partition="b")
    assert await answer(polls[1]) == ["2"]
    assert len(driver.store.calls["pop"]) == looks, "the pushes claimed for them"
    assert len(driver.store.calls["push_and_pop"]) == 2


async def test_a_batch_wakes_as_many_as_it_has_work_for(driver: EngineDriver) -> None:
    polls = [await driver.polling() for _ in range(5)]
    await driver.engine.push([message(str(number), partition=f"p{number}") for number in range(3)])
    answered = [await answer(poll) for poll in polls[:3]]

    assert sorted(answered) == [["0"], ["1"], ["2"]]
    assert driver.engine.parked_polls == 2


async def test_a_poll_that_leaves_work_behind_wakes_the_next(driver: EngineDriver) -> None:
    await driver.engine.pause_queue(ORDERS)
    polls = [await driver.polling(), await driver.polling(), await driver.polling()]
    await driver.engine.push([message(str(number), partition=f"p{number}") for number in range(3)])
    await until(lambda: driver.engine.parked_polls == 3)
    await driver.engine.resume_queue(ORDERS)

    assert sorted([await answer(poll) for poll in polls]) == [["0"], ["1"], ["2"]]


async def test_a_poll_for_one_partition_does_not_stand_in_the_way(driver: EngineDriver) -> None:
    narrow = await driver.polling(partition="mine")
    wide = await driver.polling()
    await driver.push("1", partition="theirs")
    assert await answer(wide) == ["1"]
    assert not narrow.done()
    await driver.push("2", partition="mine")
    assert await answer(narrow) == ["2"]


async def test_I14_groups_wait_each_for_themselves(driver: EngineDriver) -> None:
    polls = [await driver.polling(group=group) for group in ("a", "b")]
    await driver.push("1")

    assert [await answer(poll) for poll in polls] == [["1"], ["1"]]


async def test_what_a_push_claims_for_a_poll_that_is_cancelled_goes_to_the_next(driver: EngineDriver) -> None:
    first, second = await driver.polling(), await driver.polling()
    driver.store.hold("push_and_pop")
    pushing = asyncio.create_task(driver.push("1"))
    await driver.store.held("push_and_pop")
    first.cancel()
    driver.store.let_go("push_and_pop")
    await pushing

    assert await answer(second) == ["1"]
    assert second.result().deliveries[0].attempt == 1


async def test_a_cancelled_poll_passes_its_signal_on(driver: EngineDriver) -> None:
    await driver.engine.pause_queue(ORDERS)
    await driver.push("1")
    first, second = await driver.polling(), await driver.polling()
    driver.store.hold("pop")
    await driver.engine.resume_queue(ORDERS)
    await driver.store.held("pop")
    first.cancel()
    driver.store.let_go("pop")

    assert await answer(second) == ["1"]


async def test_who_comes_where_nothing_is_to_be_had_sleeps_without_a_look(driver: EngineDriver) -> None:
    first = await driver.polling()
    looks = len(driver.store.calls["pop"])
    second = await driver.polling()
    await driver.push("1")
    (delivery,) = (await first).deliveries
    await driver.ack([delivery])
    third = await driver.polling()
    assert len(driver.store.calls["pop"]) == looks, "nor does an ack that frees nothing make anybody look"

    await driver.push("2")
    await driver.push("3", partition="b")
    assert [await answer(second), await answer(third)] == [["2"], ["3"]]


async def test_a_line_that_all_have_left_is_looked_at_again_once_something_stirred_it(driver: EngineDriver) -> None:
    poll = await driver.polling()
    poll.cancel()
    await asyncio.wait([poll])
    await driver.push("1")
    assert [d.payload for d in (await driver.engine.pop(PopRequest(ORDERS), wait_seconds=60)).deliveries] == [b"1"]


async def test_an_ack_that_frees_the_next_of_a_partition_wakes_who_waits(driver: EngineDriver) -> None:
    await driver.engine.push([message("1"), message("2")])
    (first,) = await driver.pop()
    poll, other = await driver.polling(), await driver.polling()
    looks = len(driver.store.calls["pop"])
    await driver.ack([first])

    assert await answer(poll) == ["2"]
    await driver.push("3", partition="b")
    assert await answer(other) == ["3"]
    assert len(driver.store.calls["pop"]) == looks, "the ack claimed for the first, and left nothing for the second"


async def test_what_an_ack_claims_for_a_poll_that_is_cancelled_goes_to_the_next(driver: EngineDriver) -> None:
    await driver.engine.push([message("1"), message("2")])
    (held,) = await driver.pop()
    first, second = await driver.polling(), await driver.polling()
    driver.store.hold("settle_and_pop")
    acking = asyncio.create_task(driver.ack([held]))
    await driver.store.held("settle_and_pop")
    first.cancel()
    driver.store.let_go("settle_and_pop")
    await acking

    assert await answer(second) == ["2"]
    assert second.result().deliveries[0].attempt == 1


async def test_an_ack_that_fails_leaves_who_waits_asleep(driver: EngineDriver) -> None:
    await driver.engine.push([message("1"), message("2")])
    (held,) = await driver.pop()
    poll = await driver.polling()
    driver.store.fail_next("settle_and_pop", SkepError(Code.STORE_UNAVAILABLE, "gone"))
    with pytest.raises(SkepError, match="STORE_UNAVAILABLE"):
        await driver.ack([held])
    assert driver.engine.parked_polls == 1
    await driver.ack([held])

    assert await answer(poll) == ["2"]


async def test_I14_an_ack_claims_for_its_own_group_only(driver: EngineDriver) -> None:
    await driver.engine.push([message("1"), message("2")])
    (mine,) = await driver.pop(group="a")
    (theirs,) = await driver.pop(group="b")
    poll = await driver.polling(group="b")
    await driver.ack([mine])
    assert not driver.store.calls["settle_and_pop"]
    await driver.ack([theirs])
    assert await answer(poll) == ["2"]
    assert [d.payload for d in await driver.pop(group="a")] == [b"2"]


async def test_an_ack_that_claims_for_one_of_a_line_leaves_the_rest_to_the_next(driver: EngineDriver) -> None:
    await driver.engine.push(
        [
            message("1", partition="a"),
            message("2", partition="a"),
            message("3", partition="b"),
            message("4", partition="b"),
        ]
    )
    held = await driver.pop(batch=1) + await driver.pop(batch=1)
    polls = [await driver.polling(), await driver.polling()]
    await driver.ack(held)

    assert sorted([await answer(poll) for poll in polls]) == [["2"], ["4"]]


async def test_a_lease_that_somebody_else_took_and_left_wakes_who_waits_when_it_runs_out(driver: EngineDriver) -> None:
    poll = await driver.polling()
    await driver.store.inner.push([PushBatch([message("1")], IdMint(driver.clock).mint_many(1))], driver.clock.now())
    assert await driver.pop(lease_seconds=2)
    driver.clock.advance(2)

    assert await answer(poll) == ["1"]


async def test_a_push_that_fails_leaves_who_waits_asleep(driver: EngineDriver) -> None:
    poll = await driver.polling()
    driver.store.fail_next("push_and_pop", SkepError(Code.STORE_UNAVAILABLE, "gone"))
    with pytest.raises(SkepError, match="STORE_UNAVAILABLE"):
        await driver.push("1")
    assert driver.engine.parked_polls == 1
    await driver.push("2")

    assert await answer(poll) == ["2"]


async def test_what_is_scheduled_is_claimed_for_nobody(driver: EngineDriver) -> None:
    poll = await driver.polling()
    await driver.engine.push([message("1", deliver_at=Instant(driver.clock.now() + 10_000_000))])
    assert not driver.store.calls["push_and_pop"]
    assert not poll.done()
    poll.cancel()


async def test_a_store_error_reaches_a_poll_that_waits(driver: EngineDriver) -> None:
    poll = await driver.polling()
    driver.store.fail_next("pop", SkepError(Code.STORE_UNAVAILABLE, "gone"))
    await driver.engine.pause_queue(ORDERS)

    with pytest.raises(SkepError, match="STORE_UNAVAILABLE"):
        await answer(poll)


async def test_a_poll_of_a_queue_that_is_deleted_says_so(driver: EngineDriver) -> None:
    poll = await driver.polling()
    await driver.engine.delete_queue(ORDERS)

    with pytest.raises(SkepError, match="QUEUE_NOT_FOUND"):
        await answer(poll)


class TestBound:
    @pytest.fixture
    def settings(self) -> EngineSettings:
        return EngineSettings(limits=Limits(parked_polls=2))

    async def test_only_so_many_polls_may_wait(self, driver: EngineDriver) -> None:
        polls = [await driver.polling() for _ in range(2)]
        with pytest.raises(SkepError, match="STORE_BUSY"):
            await answer(asyncio.ensure_future(driver.engine.pop(PopRequest(ORDERS), wait_seconds=1)))
        await driver.engine.push([message("1", partition="a"), message("2", partition="b")])
        assert sorted([await answer(poll) for poll in polls]) == [["1"], ["2"]]


async def test_where_nobody_else_writes_a_poll_looks_once_a_minute_and_only_so_that_its_group_is_in_use(
    driver: EngineDriver,
) -> None:
    await driver.push("1")
    await driver.ack(await driver.pop())
    poll = await driver.polling(wait_seconds=300)
    looks, unused = len(driver.store.calls["pop"]), list[float]()
    for _ in range(600):
        await driver.advance(0.5)
        await until(lambda: driver.engine.parked_polls == 1 or poll.done())
        unused.append((await driver.engine.browse.queue_stats(ORDERS)).groups[0].inactive_seconds)

    assert await answer(poll) == []
    assert 300 / ALONE_SECONDS <= len(driver.store.calls["pop"]) - looks <= 300 / ALONE_SECONDS / (1 - SPREAD) + 1
    assert max(unused) < 120, "else it could be idle, and retention would no longer wait for it"
    assert seconds(ALONE_SECONDS) < ACTIVE_EVERY_MICROS, "however the looks fall"


async def test_a_server_with_waiting_polls_asks_nothing_of_its_store_but_to_note_the_time_and_figures(
    driver: EngineDriver,
) -> None:
    polls = []
    for key in (QueueKey(f"q{number}") for number in range(3)):
        await driver.engine.create_queue(key)
        polls.append(await driver.polling(key, wait_seconds=300))
    await driver.quiet()
    driver.store.calls.clear()
    for _ in range(20):
        await driver.advance(1)

    assert set(driver.store.calls) <= {"put_right", "sample", "maintain", "waiting_operations"}
    for poll in polls:
        poll.cancel()


class TestSharedStore:
    @pytest.fixture
    def settings(self) -> EngineSettings:
        return EngineSettings(shared=True, watch_seconds=10_000)

    async def test_the_safety_poll_finds_what_nobody_announced(self, driver: EngineDriver) -> None:
        poll = await self.waiting(driver)
        looks = len(driver.store.calls["pop"])
        now = driver.clock.now()
        await driver.store.inner.push([PushBatch([message("1")], IdMint(driver.clock).mint_many(1))], now)
        await driver.advance(2.4)
        assert len(driver.store.calls["pop"]) == looks
        driver.clock.advance(2.6)

        assert await answer(poll) == ["1"]

    async def test_safety_polls_of_many_lines_do_not_come_together(self, driver: EngineDriver) -> None:
        polls, looks = [], []
        for key in (QueueKey(f"q{number}") for number in range(50)):
            await driver.engine.create_queue(key)
            polls.append(await self.waiting(driver, key))
        for _ in range(50):
            before = len(driver.store.calls["pop"])
            await driver.advance(0.1)
            await until(lambda: driver.engine.parked_polls == len(polls))
            looks.append(len(driver.store.calls["pop"]) - before)

        assert sum(looks) >= len(polls), "each looked"
        assert max(looks) < len(polls) / 4
        for poll in polls:
            poll.cancel()

    async def test_very_many_lines_do_not_keep_the_store_busy_with_their_safety_polls(
        self, driver: EngineDriver, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(polls, "LOOKS_PER_SECOND", 2)
        waiting = []
        for key in (QueueKey(f"q{number}") for number in range(50)):
            await driver.engine.create_queue(key)
            waiting.append(await self.waiting(driver, key))
        first = len(driver.store.calls["pop"])
        await self.let_pass(driver, 5, len(waiting))  # those that came first had few before them
        before = len(driver.store.calls["pop"])
        await self.let_pass(driver, 50, len(waiting))
        looks = [request.queue for asked in driver.store.calls["pop"][before:] for request in asked]

        assert before - first <= len(waiting)
        assert len(set(looks)) == len(waiting), "each looked"
        assert len(looks) <= 2 * 50 / (1 - SPREAD) + 1
        for poll in waiting:
            poll.cancel()

    async def let_pass(self, driver: EngineDriver, seconds: int, waiting: int) -> None:
        """Let time pass, in steps after which all polls sleep again."""
        for _ in range(seconds * 10):
            await driver.advance(0.1)
            await until(lambda: driver.engine.parked_polls == waiting and not driver.engine._in_flight._background)

    async def waiting(self, driver: EngineDriver, queue: QueueKey = ORDERS) -> asyncio.Task[PopResult]:
        """A pop that has looked for the last time before it sleeps: other servers know that it waits."""
        parked = driver.engine.parked_polls
        poll = asyncio.ensure_future(driver.engine.pop(PopRequest(queue), wait_seconds=300))
        await until(lambda: driver.engine.parked_polls > parked and not driver.engine._in_flight._background)
        return poll

    async def test_other_servers_are_told_and_then_one_more_look_is_taken(self, driver: EngineDriver) -> None:
        poll = asyncio.ensure_future(driver.engine.pop(PopRequest(ORDERS), wait_seconds=60))
        await until(lambda: len(driver.store.calls["pop"]) == 2 and driver.engine.parked_polls == 1)
        assert driver.store.calls["watch"] == [[ORDERS]]

        second = await driver.polling()
        assert len(driver.store.calls["watch"]) == 1, "a live watch serves everyone"
        await driver.push("1")
        assert await answer(poll) == ["1"]
        second.cancel()


class TestShortWatches:
    @pytest.fixture
    def settings(self) -> EngineSettings:
        return EngineSettings(shared=True, watch_seconds=20, safety_poll_seconds=9)

    async def test_very_many_lines_are_watched_all_the_time(
        self, driver: EngineDriver, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(polls, "LOOKS_PER_SECOND", 0.01)
        shared, keys = TestSharedStore(), [QueueKey(f"q{number}") for number in range(3)]
        waiting = []
        for key in keys:
            await driver.engine.create_queue(key)
            waiting.append(await shared.waiting(driver, key))
        left: list[int] = []
        for _ in range(120):
            await shared.let_pass(driver, 1, len(waiting))
            left += [driver.engine._registry.get(key).watched_until - driver.clock.steady() for key in keys]
        for poll in waiting:
            poll.cancel()

        assert min(left) > 0

    async def test_a_watch_that_goes_on_needs_no_look(
        self, driver: EngineDriver, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(polls, "SPREAD", 0.0)
        shared = TestSharedStore()
        poll = await shared.waiting(driver)
        looks, watches = len(driver.store.calls["pop"]), len(driver.store.calls["watch"])
        await shared.let_pass(driver, 90, 1)
        looks, watches = len(driver.store.calls["pop"]) - looks, len(driver.store.calls["watch"]) - watches
        poll.cancel()

        assert 90 / 20 - 1 <= watches <= 90 / 10
        assert looks == 90 / 9, "each watch would have brought one more"


class TestWithoutSafetyPoll:
    @pytest.fixture
    def settings(self) -> EngineSettings:
        return EngineSettings(safety_poll_seconds=10_000)

    async def test_I9_each_poll_is_woken_by_the_lease_that_runs_out_next(self, driver: EngineDriver) -> None:
        await driver.engine.push([message(str(number), partition=f"p{number}") for number in range(3)])
        for lease_seconds in (33, 37, 41):
            await driver.pop(lease_seconds=lease_seconds)
        polls = [await driver.polling(lease_seconds=1000) for _ in range(3)]
        got = []
        for pause, poll in zip((33, 4, 4), polls, strict=True):
            driver.clock.advance(pause)
            got.append(await answer(poll))

        assert got == [["0"], ["1"], ["2"]]

    async def test_a_poll_is_woken_when_a_retry_is_due(self, driver: EngineDriver) -> None:
        await driver.push("1")
        await driver.nack((await driver.pop())[0], Retry.BACKOFF)
        poll = await driver.polling()
        driver.clock.advance(59)

        assert await answer(poll) == ["1"]

    async def test_a_poll_is_woken_when_a_scheduled_message_is_due(self, driver: EngineDriver) -> None:
        poll = await driver.polling()
        await driver.push("1", deliver_at=Instant(driver.clock.now() + seconds(33)))
        driver.clock.advance(33)

        assert await answer(poll) == ["1"]

    async def test_who_waits_for_dead_letters_is_woken_whoever_buries_them(self, driver: EngineDriver) -> None:
        """The lease runs out with its last attempt, and a pop that waits comes to it before the chore does."""
        dead = QueueKey("orders.dead")
        await driver.engine.create_queue(dead)
        await driver.push("1")
        await driver.nack((await driver.pop())[0])
        await driver.pop(lease_seconds=33)
        driver.store.hold("expire")
        poll, letters = await driver.polling(), await driver.polling(dead)
        looks = len(driver.store.calls["pop"])
        driver.clock.advance(33)
        await until(lambda: len(driver.store.calls["pop"]) > looks and driver.engine.parked_polls == 2)
        assert not letters.done()
        driver.store.let_go("expire")

        assert await answer(letters) == ["1"]
        poll.cancel()
