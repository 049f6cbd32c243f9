"""An engine whose clock was ahead and is put right while it runs, or before it starts again."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from skep.clock import ManualClock, SystemClock, seconds
from skep.config import EngineSettings
from skep.model import PopRequest, QueueKey
from skep.server.compose import open_engine
from tests.engine.driver import ORDERS, EngineDriver, answer, message, until

NS = 1_000_000_000
SAMPLE_SECONDS = EngineSettings().sample_seconds
AHEAD = pytest.mark.parametrize("ahead", [3_600, 86_400, 10 * 365 * 86_400])


async def put_back(driver: EngineDriver, by_seconds: float) -> None:
    """Put the clock back, and let the store notice."""
    await driver.quiet()
    noted = len(driver.store.calls["put_right"])
    driver.clock.put_back(by_seconds)
    driver.clock.advance(SAMPLE_SECONDS)
    await until(lambda: len(driver.store.calls["put_right"]) > noted and driver.engine.is_quiet)


@AHEAD
async def test_pushes_are_delivered_at_once_though_the_clock_is_put_back(driver: EngineDriver, ahead: int) -> None:
    driver.clock.advance(ahead)
    await driver.push("1")
    await driver.ack(await driver.pop())
    driver.clock.put_back(ahead)

    poll = await driver.polling()
    await driver.push("2")

    assert await answer(poll) == ["2"]


@AHEAD
async def test_I9_a_lease_from_ahead_runs_out_for_a_poll_that_waits(driver: EngineDriver, ahead: int) -> None:
    await driver.push("1")
    await driver.quiet()
    driver.clock.advance(ahead)
    await driver.quiet()
    await driver.engine.pop(PopRequest(ORDERS, lease_seconds=30))
    poll = await driver.polling(wait_seconds=300)
    await put_back(driver, ahead)
    driver.clock.advance(30)

    async with asyncio.timeout(10):
        assert [delivery.attempt for delivery in (await poll).deliveries] == [2]


@AHEAD
async def test_a_poll_ends_when_it_was_to_end(driver: EngineDriver, ahead: int) -> None:
    await driver.engine.create_queue(ORDERS)
    poll = await driver.polling(wait_seconds=30)
    driver.clock.put_back(ahead)
    driver.clock.advance(30)

    assert await answer(poll) == []


@AHEAD
async def test_a_poll_ends_when_it_was_to_end_though_the_clock_is_put_back_during_its_first_look(
    driver: EngineDriver, ahead: int
) -> None:
    await driver.engine.create_queue(ORDERS)
    driver.store.hold("pop")
    poll = asyncio.ensure_future(driver.engine.pop(PopRequest(ORDERS), wait_seconds=30))
    await driver.store.held("pop")
    driver.clock.put_back(ahead)
    driver.clock.advance(20)
    driver.store.let_go("pop")
    await until(lambda: driver.engine.parked_polls == 1)
    driver.clock.advance(10)

    assert await answer(poll) == []


@AHEAD
async def test_chores_go_on_when_the_clock_is_put_back(driver: EngineDriver, ahead: int) -> None:
    await driver.quiet()
    driver.clock.put_back(ahead)
    chores = ("put_right", "sample", "sweep", "maintain")
    done = {chore: len(driver.store.calls[chore]) for chore in chores}
    driver.clock.advance(60)
    await until(lambda: all(len(driver.store.calls[chore]) > done[chore] for chore in chores))


@AHEAD
@pytest.mark.parametrize("chore", ["put_right", "sample", "sweep", "maintain"])
async def test_a_chore_comes_again_in_time_though_the_clock_is_put_back_while_it_runs(
    driver: EngineDriver, ahead: int, chore: str
) -> None:
    await driver.quiet()
    driver.store.hold(chore)
    driver.clock.advance(60)
    await driver.store.held(chore)
    driver.clock.put_back(ahead)
    done = len(driver.store.calls[chore])
    driver.store.let_go(chore)
    await driver.quiet()
    driver.clock.advance(60)

    await until(lambda: len(driver.store.calls[chore]) > done)


@AHEAD
async def test_an_engine_that_starts_with_the_right_clock_delivers_what_comes(tmp_path: Path, ahead: int) -> None:
    key = QueueKey("orders")
    right = ManualClock().now()
    async with open_engine(str(tmp_path / "s.db"), clock=ManualClock(right + seconds(ahead))) as engine:
        await engine.push([message("1", key)])
        found = await engine.pop(PopRequest(key, batch=10))
        await engine.settle([delivery.settlement() for delivery in found.deliveries])
        await engine.push([message("2", key)])

    async with open_engine(str(tmp_path / "s.db"), clock=ManualClock(right)) as engine:
        await engine.push([message("3", key)])
        found = await engine.pop(PopRequest(key, batch=10))

    assert [delivery.payload for delivery in found.deliveries] == [b"2", b"3"]


class Machine:
    """The clocks of a machine, which stand still until they are moved."""

    def __init__(self) -> None:
        self.wall = 1_795_000_000 * NS
        self.monotonic = 1_000 * NS

    def pass_time(self, for_seconds: float, *, wall_jumps: float = 0.0) -> None:
        self.monotonic += round(for_seconds * NS)
        self.wall += round((for_seconds + wall_jumps) * NS)


async def test_I9_a_lease_from_ahead_runs_out_though_the_clock_was_ahead_too_briefly_for_the_store_to_note_it(
    tmp_path: Path,
) -> None:
    machine = Machine()
    clock = SystemClock(lambda: machine.wall, lambda: machine.monotonic)
    async with open_engine(str(tmp_path / "s.db"), clock=clock) as engine:
        await engine.push([message("1", ORDERS)])
        await until(lambda: engine.is_quiet)
        machine.pass_time(0.2, wall_jumps=3_600)
        assert (await engine.pop(PopRequest(ORDERS, lease_seconds=30))).deliveries
        machine.pass_time(0.2, wall_jumps=-3_600)
        poll = asyncio.ensure_future(engine.pop(PopRequest(ORDERS), wait_seconds=300))
        await until(lambda: engine.parked_polls == 1)
        machine.pass_time(SAMPLE_SECONDS)
        async with asyncio.timeout(10):
            while not poll.done():
                await asyncio.wait([poll], timeout=0.1)
                machine.pass_time(1)

        assert [delivery.attempt for delivery in poll.result().deliveries] == [2]
