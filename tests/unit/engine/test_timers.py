"""Timers: each callback comes when its time has passed, whatever the clock shows."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from skep.clock import ManualClock, seconds
from skep.engine.timers import Timers
from tests.engine.driver import until


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
async def timers(clock: ManualClock) -> AsyncIterator[Timers]:
    timers = Timers(clock)
    yield timers
    timers.close()


@pytest.mark.parametrize("back", [0, 100])
async def test_a_timer_keeps_its_time_though_the_clock_was_put_back(
    timers: Timers, clock: ManualClock, back: int
) -> None:
    called: list[int] = []
    clock.put_back(back)
    timers.after(seconds(10), lambda: called.append(1))

    clock.advance(9)
    for _ in range(20):
        await asyncio.sleep(0)
    assert called == []
    clock.advance(1)
    await until(lambda: called == [1])


async def test_an_earlier_timer_does_not_wait_for_a_later_one(timers: Timers, clock: ManualClock) -> None:
    called: list[str] = []
    timers.after(seconds(10), lambda: called.append("late"))
    timers.after(seconds(5), lambda: called.append("early"))

    clock.advance(5)
    await until(lambda: called == ["early"])
    clock.advance(5)
    await until(lambda: called == ["early", "late"])
