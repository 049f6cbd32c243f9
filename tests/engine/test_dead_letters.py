"""Replay, purge and clear: in bounded transactions, with an end, and with a count beforehand."""

from __future__ import annotations

import pytest

from skep.clock import Instant, seconds
from skep.config import EngineSettings, Limits
from skep.errors import Code, SkepError
from skep.model import ClearScope, DeadLetterFilter, Outcome, QueueChanges, QueueKey
from tests.engine.driver import ORDERS, EngineDriver, settlement

GRAVES = QueueKey("orders.dead")
ALL = DeadLetterFilter(queue=GRAVES)


@pytest.fixture
def settings() -> EngineSettings:
    return EngineSettings(limits=Limits(replay_batch=10, replays_listed=15))


async def bury(driver: EngineDriver, count: int) -> None:
    await driver.push(*(str(number) for number in range(count)))
    deliveries = await driver.pop(batch=count)
    await driver.engine.settle([settlement(delivery, Outcome.REJECT, error="no") for delivery in deliveries])


async def test_a_replay_moves_all_in_order_in_bounded_batches(driver: EngineDriver) -> None:
    await bury(driver, 25)
    replay = await driver.engine.dead_letters.replay(ALL)

    assert replay.count == 25
    assert len(replay.replayed) == 15, "the answer names the first ones only"
    assert len(driver.store.calls["replay"]) == 3
    assert [delivery.payload.decode() for delivery in await driver.pop(batch=99)] == [str(n) for n in range(25)]
    assert await driver.engine.dead_letters.count(ALL) == 0


async def test_a_dry_run_counts_and_moves_nothing(driver: EngineDriver) -> None:
    await bury(driver, 3)

    assert (await driver.engine.dead_letters.replay(ALL, dry_run=True)).count == 3
    assert await driver.engine.dead_letters.purge(ALL, dry_run=True) == 3
    assert await driver.engine.dead_letters.count(ALL) == 3


async def test_a_replay_ends_though_messages_die_while_it_runs(driver: EngineDriver) -> None:
    await bury(driver, 10)
    replay = driver.store.inner.replay

    async def replay_while_more_die(*args: object) -> object:
        step = await replay(*args)  # type: ignore[arg-type] # passed on as they came
        if step.replayed:
            await bury(driver, len(step.replayed))
        return step

    driver.store.inner.replay = replay_while_more_die  # type: ignore[method-assign,assignment] # a wire tap
    moved = await driver.engine.dead_letters.replay(ALL)

    assert moved.count == 10
    assert await driver.engine.dead_letters.count(ALL) == 10


async def test_a_replay_that_fails_says_how_many_went_before(driver: EngineDriver) -> None:
    await bury(driver, 15)
    driver.store.fail_next("replay", None, SkepError(Code.STORE_BUSY, "busy"))
    with pytest.raises(SkepError) as failed:
        await driver.engine.dead_letters.replay(ALL)

    assert failed.value.details == {"replayed": 10}
    assert await driver.engine.dead_letters.count(ALL) == 5


async def test_a_purge_deletes_in_bounded_batches(driver: EngineDriver) -> None:
    await bury(driver, 25)

    assert await driver.engine.dead_letters.purge(ALL) == 25
    assert len(driver.store.calls["purge"]) == 3
    assert [letter.seq for letter in await driver.engine.dead_letters.page(ALL)] == []


@pytest.mark.parametrize("scope", ClearScope)
async def test_clear_says_beforehand_what_it_takes_away(driver: EngineDriver, scope: ClearScope) -> None:
    await driver.push("1", "2", "3", partition="a")
    await driver.push("4", partition="b")
    await driver.push("5", deliver_at=Instant(driver.clock.now() + seconds(60)))
    await driver.pop()

    foretold = await driver.engine.clear(ORDERS, scope, dry_run=True)
    assert await driver.engine.clear(ORDERS, scope) == foretold


async def test_discarded_dead_letters_are_told_apart(driver: EngineDriver) -> None:
    await driver.engine.configure_queue(ORDERS, QueueChanges(dead_letter_queue="none"))
    await driver.push("1")
    (delivery,) = await driver.pop()
    (result,) = await driver.engine.settle([settlement(delivery, Outcome.REJECT)])

    assert result.status == "discarded"
