"""The history of replays: which dead letters went back, what they had died of, and as which messages."""

from __future__ import annotations

import pytest

from skep.errors import Code, SkepError
from skep.model import DeadReason, Seq
from skep.model.history import ReplayRecord
from tests.contract.driver import Driver


async def bury(driver: Driver, *messages: str, queue: str = "q", error: str = "bad") -> None:
    await driver.push(*messages, queue=queue, partition="p")
    await driver.reject(*await driver.pop(queue, group="g"), error=error)


async def seen(driver: Driver, **narrow: object) -> list[ReplayRecord]:
    wish = {"source_queue": None, "before": None, "limit": 100, **narrow}
    return await driver.store.replays(driver.key("q.dead"), **wish)  # type: ignore[arg-type] # as above


async def test_a_replay_is_known_with_what_the_letter_had_died_of(driver: Driver) -> None:
    await bury(driver, "a", error="no such card")
    (letter,) = await driver.dead()
    driver.clock.advance(60)

    (replayed,) = await driver.replay()

    assert await seen(driver) == [
        ReplayRecord(
            dead_seq=letter.seq, dead_id=letter.id, queue="q", seq=replayed.seq, id=replayed.id, group="g",
            reason=DeadReason.REJECTED, error="no such card", attempts=1, replayed_at=driver.now,
        )
    ]  # fmt: skip


async def test_replays_come_in_pages_with_the_newest_letters_first(driver: Driver) -> None:
    await bury(driver, "a", "b", "c")
    await driver.replay()

    assert [one.dead_seq for one in await seen(driver, limit=2)] == [3, 2]
    assert [one.dead_seq for one in await seen(driver, before=Seq(2))] == [1]


async def test_replays_are_narrowed_by_the_queue_they_went_to(driver: Driver) -> None:
    await driver.create("r", dead_letter_queue="q.dead")
    await bury(driver, "a")
    await bury(driver, "b", queue="r")
    await driver.replay()

    assert [one.queue for one in await seen(driver)] == ["r", "q"]
    assert [one.queue for one in await seen(driver, source_queue="q")] == ["q"]


async def test_a_replay_into_a_queue_that_was_deleted_names_none(driver: Driver) -> None:
    await driver.create("r", dead_letter_queue="q.dead")
    await bury(driver, "b", queue="r")
    await driver.replay()
    await driver.store.delete_queue(driver.key("r"), driver.now)

    assert [one.queue for one in await seen(driver)] == [None]


async def test_a_purge_is_no_replay_and_only_dead_letter_queues_have_any(driver: Driver) -> None:
    await bury(driver, "a")
    await driver.purge()

    assert await seen(driver) == []
    with pytest.raises(SkepError) as refused:
        await driver.store.replays(driver.key(), None, None, 1)
    assert refused.value.code is Code.NOT_A_DEAD_LETTER_QUEUE
