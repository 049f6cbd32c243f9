"""The system's clock beside a wall clock that is set, slewed or asleep: small errors are slewed, large ones are steps."""

from __future__ import annotations

import asyncio
from itertools import pairwise

import pytest

from skep.clock import MICROS_PER_SECOND, Instant, ManualClock, SystemClock, seconds

START = 1_750_000_000 * MICROS_PER_SECOND
YEARS = 10 * 365 * 86_400


class Machine:
    """A machine's two clocks, in microseconds."""

    def __init__(self) -> None:
        self.wall = START
        self.monotonic = 12_345_678

    def run(self, by_seconds: float) -> None:
        self.wall += seconds(by_seconds)
        self.monotonic += seconds(by_seconds)

    def clock(self) -> SystemClock:
        return SystemClock(lambda: self.wall * 1_000, lambda: self.monotonic * 1_000)


@pytest.fixture
def machine() -> Machine:
    return Machine()


def watch(machine: Machine, clock: SystemClock, for_seconds: int) -> list[int]:
    """What the clock shows, ten times a second."""
    shown = []
    for _ in range(for_seconds * 10):
        machine.run(0.1)
        shown.append(int(clock.now()))
    return shown


def test_it_shows_what_the_wall_clock_shows(machine: Machine) -> None:
    clock = machine.clock()
    machine.run(86_400)

    assert clock.now() == machine.wall == clock.steady()


@pytest.mark.parametrize("asleep", [2, 3_600, 86_400, YEARS])
def test_after_a_sleep_it_shows_the_right_time_at_once(machine: Machine, asleep: int) -> None:
    clock = machine.clock()
    machine.wall += seconds(asleep)  # the monotonic clock stands still while a laptop is suspended
    machine.run(0.1)

    assert clock.now() == machine.wall == clock.steady()


@pytest.mark.parametrize("off", [0.9, -0.9, -9.0])
def test_a_small_error_is_slewed_by_a_tenth_and_time_never_goes_back(machine: Machine, off: float) -> None:
    clock = machine.clock()
    machine.wall += seconds(off)
    shown = watch(machine, clock, 120)

    steps = [later - earlier for earlier, later in pairwise(shown)]
    assert min(steps) >= seconds(0.09) - 2
    assert max(steps) <= seconds(0.11) + 2
    assert abs(clock.now() - machine.wall) <= 10
    assert clock.steady() == clock.now()


@pytest.mark.parametrize("ahead", [60, 3_600, 86_400, YEARS])
def test_a_clock_that_was_far_ahead_is_right_at_once_and_the_steady_line_goes_on(machine: Machine, ahead: int) -> None:
    clock = machine.clock()
    before = clock.steady()
    machine.wall -= seconds(ahead)
    machine.run(0.1)

    assert clock.now() == machine.wall
    assert clock.steady() == before + seconds(0.1)
    steady = [clock.steady()]
    for _ in range(100):
        machine.run(0.1)
        steady.append(clock.steady())
    assert steady == sorted(steady)


async def test_who_sleeps_sleeps_no_longer_when_the_clock_is_put_back(machine: Machine) -> None:
    clock = machine.clock()
    asleep = asyncio.ensure_future(clock.sleep_until(Instant(clock.now() + seconds(0.05))))
    await asyncio.sleep(0)
    machine.wall -= seconds(86_400)
    machine.run(0.2)

    async with asyncio.timeout(10):
        await asleep
    assert clock.now() == machine.wall


def test_the_database_leads_once_it_is_followed(machine: Machine) -> None:
    clock = machine.clock()
    clock.follow(Instant(START + seconds(3)))
    assert clock.now() == START + seconds(3)  # at once, the first time

    machine.wall -= seconds(86_400)
    machine.run(1)
    assert clock.now() == START + seconds(4)


@pytest.mark.parametrize(("off", "shown"), [(-3_600, -3_600), (3_600, 3_600), (-5, 0), (0.5, 0)])
def test_a_database_whose_clock_steps_is_followed_as_the_wall_clock_is(
    machine: Machine, off: float, shown: float
) -> None:
    clock = machine.clock()
    clock.follow(clock.now())
    machine.run(1)
    clock.follow(Instant(machine.wall + seconds(off)))

    assert clock.now() == machine.wall + seconds(shown)


def test_an_answer_that_took_long_does_not_put_the_clock_back(machine: Machine) -> None:
    clock = machine.clock()
    clock.follow(clock.now())
    asked_at = clock.now()
    machine.run(30)
    clock.follow(asked_at, took=seconds(30))

    assert clock.now() == clock.steady() == machine.wall


async def test_a_manual_clock_that_is_put_back_keeps_nobody_asleep() -> None:
    clock = ManualClock()
    asleep = asyncio.ensure_future(clock.sleep_until(Instant(clock.now() + seconds(10))))
    await asyncio.sleep(0)
    clock.put_back(3_600)
    clock.advance(9)
    assert not asleep.done()
    clock.advance(1)

    async with asyncio.timeout(10):
        await asleep
