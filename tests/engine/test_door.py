"""The door: how many get in, found from how long they take; who gets in first, and who is refused."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from skep.clock import ManualClock
from skep.engine.door import FIRST_LIMIT, JUDGED_BY, LEAST, REFUSED_AT_ONCE, Door
from skep.engine.timers import Timers
from tests.engine.driver import until

FIRST = int(FIRST_LIMIT)
INSIDE_SECONDS, WAITING_SECONDS = 4.0, 1.0


class Entrance:
    """A door, and those who come to it."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.timers = Timers(self.clock)
        self.door = Door(self.clock, self.timers, INSIDE_SECONDS, WAITING_SECONDS)

    async def fill(self) -> None:
        while self.door.inside < self.door.limit:
            assert await self.door.enter()

    async def come(self) -> asyncio.Task[bool]:
        """One who has to wait."""
        before = self.door.waiting
        task = asyncio.ensure_future(self.door.enter())
        await until(lambda: self.door.waiting > before)
        return task

    def leave(self, count: int) -> None:
        for _ in range(count):
            self.door.leave()

    async def pass_seconds(self, seconds: float) -> None:
        """Let time go by, and those timers act that were set for it."""
        self.clock.advance(seconds)
        await until(lambda: not self.timers.overdue)


@pytest.fixture
async def entrance() -> AsyncIterator[Entrance]:
    entrance = Entrance()
    yield entrance
    entrance.timers.close()


async def test_the_limit_falls_by_three_tenths_at_the_most(entrance: Entrance) -> None:
    """One commit that took long does not say much."""
    await entrance.fill()
    entrance.clock.advance(100)
    entrance.leave(JUDGED_BY - 1)
    assert entrance.door.limit == FIRST
    entrance.leave(1)
    assert entrance.door.limit == pytest.approx(0.7 * FIRST)


async def test_the_limit_is_found_where_calls_take_as_long_as_they_may(entrance: Entrance) -> None:
    """A server that answers 100 calls a second, whatever comes, can have 400 of them inside."""
    for _ in range(100):
        await entrance.fill()
        entrance.clock.advance(1)
        entrance.leave(100)
    assert entrance.door.limit == pytest.approx(400, rel=0.1)


async def test_the_limit_rises_while_calls_are_quick_and_as_many_come_as_may(entrance: Entrance) -> None:
    for _ in range(5):
        await entrance.fill()
        assert entrance.door.limit == FIRST
        entrance.clock.advance(0.1)
        entrance.leave(100)
    assert entrance.door.limit == 1.25 * FIRST


async def test_a_limit_that_nobody_comes_near_stays(entrance: Entrance) -> None:
    """What came lately says nothing of what the server can do."""
    for _ in range(10):
        for _ in range(JUDGED_BY):
            await entrance.door.enter()
        entrance.clock.advance(1)
        entrance.leave(JUDGED_BY)
    assert entrance.door.limit == FIRST


async def test_the_limit_never_falls_below_a_few_transactions(entrance: Entrance) -> None:
    for _ in range(30):
        await entrance.fill()
        entrance.clock.advance(1_000)
        entrance.leave(JUDGED_BY)
    assert entrance.door.limit == LEAST


async def test_the_newest_gets_in_first(entrance: Entrance) -> None:
    await entrance.fill()
    older = await entrance.come()
    newer = await entrance.come()
    entrance.leave(1)
    await until(lambda: newer.done() or older.done())
    assert not older.done()
    assert newer.result()
    entrance.leave(1)
    assert await older
    assert entrance.door.inside == FIRST


async def test_who_has_waited_for_too_long_is_refused_and_not_let_in(entrance: Entrance) -> None:
    await entrance.fill()
    first = await entrance.come()
    entrance.clock.advance(0.5)
    second = await entrance.come()
    await entrance.pass_seconds(0.5)
    assert await first is False
    assert not second.done()
    entrance.leave(1)
    assert await second


async def test_nobody_gets_in_whose_time_at_the_door_is_up_though_it_is_not_refused_yet(entrance: Entrance) -> None:
    await entrance.fill()
    late = await entrance.come()
    entrance.clock.advance(1)
    entrance.leave(1)
    assert await late is False
    assert entrance.door.inside == FIRST - 1


async def test_a_full_server_refuses_one_for_six_that_it_answers(entrance: Entrance) -> None:
    await entrance.fill()
    waiting = [await entrance.come() for _ in range(20)]
    entrance.clock.advance(0.9)
    for _ in range(12):
        entrance.door.leave()  # their places go to the newest
    await entrance.pass_seconds(0.1)
    await asyncio.sleep(0)
    assert [task.result() for task in waiting if task.done()] == [False, False] + [True] * 12


async def test_a_server_that_answers_nothing_has_time_to_refuse_many(entrance: Entrance) -> None:
    await entrance.fill()
    waiting = [await entrance.come() for _ in range(REFUSED_AT_ONCE + 5)]
    await entrance.pass_seconds(1)
    await asyncio.sleep(0)
    assert sum(task.done() for task in waiting) == REFUSED_AT_ONCE
    await entrance.pass_seconds(0.1)
    assert not any(await asyncio.gather(*waiting))


async def test_the_place_of_one_who_went_away_goes_to_another(entrance: Entrance) -> None:
    await entrance.fill()
    other = await entrance.come()
    gone = await entrance.come()
    entrance.leave(1)  # `gone` was told to come in, and did not hear it yet
    gone.cancel()
    await until(other.done)
    assert entrance.door.inside == FIRST


async def test_one_who_went_away_while_it_waited_gets_no_place(entrance: Entrance) -> None:
    await entrance.fill()
    gone = await entrance.come()
    gone.cancel()
    await asyncio.wait([gone])
    entrance.leave(1)
    assert entrance.door.inside == FIRST - 1


async def test_the_server_is_busy_while_calls_take_long_though_they_are_few(entrance: Entrance) -> None:
    busy = []
    for took_seconds in (0.1, INSIDE_SECONDS * 0.6, 1):
        for _ in range(JUDGED_BY):
            assert await entrance.door.enter()
        entrance.clock.advance(took_seconds)
        entrance.leave(JUDGED_BY)
        busy.append(entrance.door.is_busy)
    assert busy == [False, True, False]


@pytest.mark.parametrize(("inside", "is_busy"), [(int(LEAST), True), (int(LEAST) - 1, False)])
async def test_the_server_is_busy_while_no_call_of_a_first_wave_is_answered(
    entrance: Entrance, inside: int, is_busy: bool
) -> None:
    for _ in range(inside):
        assert await entrance.door.enter()
    assert not entrance.door.is_busy
    entrance.clock.advance(INSIDE_SECONDS)
    entrance.leave(1)
    assert await entrance.door.enter()
    assert entrance.door.is_busy is is_busy


async def test_the_server_is_busy_while_somebody_waits(entrance: Entrance) -> None:
    await entrance.fill()
    late = await entrance.come()
    entrance.clock.advance(WAITING_SECONDS * 2)
    entrance.leave(FIRST)
    assert entrance.door.inside == 0
    assert entrance.door.is_busy
    await entrance.pass_seconds(WAITING_SECONDS)
    assert await late is False
    assert entrance.door.waiting == 0
