"""What follows when a schedule is changed: timers are set anew, polls are woken, also those of other servers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from skep.clock import Instant, ManualClock, seconds
from skep.config import EngineSettings, Limits
from skep.engine import Engine
from skep.errors import Code, SkepError
from skep.model import PopRequest, QueueSettings
from skep.model.scheduled import Change, ScheduledFilter
from skep.server.compose import open_engine
from tests.engine.driver import ORDERS, answer, message, until

WANTED = ScheduledFilter(tenant=ORDERS.tenant, queue=ORDERS.name)


@pytest.fixture
async def servers(empty_tables_dsn: str, clock: ManualClock) -> AsyncIterator[tuple[Engine, Engine]]:
    async with AsyncExitStack() as stack:
        here, there = [await stack.enter_async_context(open_engine(empty_tables_dsn, clock=clock)) for _ in range(2)]
        await here.create_queue(ORDERS, QueueSettings())
        yield here, there


def later(clock: ManualClock, by_seconds: float) -> Instant:
    return Instant(clock.now() + seconds(by_seconds))


async def test_a_message_that_is_promoted_there_wakes_a_poll_here(
    servers: tuple[Engine, Engine], clock: ManualClock
) -> None:
    """Only the other server promotes: this one has not heard of the schedule, nor does its clock tell it to look."""
    here, there = servers
    await until(lambda: here.is_quiet and there.is_quiet)
    poll = asyncio.ensure_future(here.pop(PopRequest(ORDERS), wait_seconds=300))
    await until(lambda: here.parked_polls == 1)
    await there.push([message("1", deliver_at=later(clock, 1))])
    # By hand, so that no timer of this server has a part in it.
    await there._store.promote(ORDERS, later(clock, 2), 10)

    assert await answer(poll) == ["1"]


async def test_what_runs_there_wakes_a_poll_here(servers: tuple[Engine, Engine], clock: ManualClock) -> None:
    here, there = servers
    poll = asyncio.ensure_future(here.pop(PopRequest(ORDERS), wait_seconds=300))
    await until(lambda: here.parked_polls == 1)
    await there.push([message("1", deliver_at=later(clock, 1_000))])
    await there.scheduled.change(WANTED, Change.RUN)

    assert await answer(poll) == ["1"]


async def test_what_runs_wakes_a_poll_of_the_same_server(clock: ManualClock) -> None:
    async with open_engine(":memory:", clock=clock) as engine:
        await engine.push([message("1", deliver_at=later(clock, 1_000))])
        poll = asyncio.ensure_future(engine.pop(PopRequest(ORDERS), wait_seconds=300))
        await until(lambda: engine.parked_polls == 1)
        done = await engine.scheduled.change(WANTED, Change.RUN)

        assert (done.count, [one.seq for one in done.changed]) == (1, [1])
        assert await answer(poll) == ["1"]


async def test_a_message_that_is_moved_nearer_comes_then_and_one_that_is_cancelled_never(clock: ManualClock) -> None:
    async with open_engine(":memory:", clock=clock) as engine:
        outcome = await engine.push([message(text, deliver_at=later(clock, 1_000)) for text in ("1", "2")])
        await engine.scheduled.change(
            ScheduledFilter(tenant=ORDERS.tenant, queue=ORDERS.name, ids=[outcome.results[0].id]),
            Change.MOVE,
            later(clock, 10),
        )
        poll = asyncio.ensure_future(engine.pop(PopRequest(ORDERS), wait_seconds=300))
        await until(lambda: engine.parked_polls == 1)
        clock.advance(10)
        assert await answer(poll) == ["1"]

        assert (await engine.scheduled.change(WANTED, Change.CANCEL)).count == 1
        clock.advance(2_000)
        await until(lambda: engine.is_quiet)
        assert (await engine.browse.queue_stats(ORDERS)).last_seq == 1


async def test_many_are_changed_in_bounded_steps_and_what_comes_meanwhile_is_left_alone(
    clock: ManualClock, tmp_path: Path
) -> None:
    settings = EngineSettings(limits=Limits(replay_batch=7, replays_listed=3))
    async with open_engine(str(tmp_path / "skep.db"), settings, clock=clock) as engine:
        await engine.push([message(str(number), deliver_at=later(clock, 100)) for number in range(50)])
        changing = engine._store.scheduled.change
        steps: list[int] = []

        async def watched(*given: object) -> object:
            """The real step, after which somebody schedules another message."""
            step = await changing(*given)  # type: ignore[arg-type] # as it is called
            steps.append(len(step.changed))
            await engine.push([message("0", deliver_at=later(clock, 100))])
            return step

        engine._store.scheduled.change = watched  # type: ignore[method-assign, assignment]
        done = await engine.scheduled.change(WANTED, Change.MOVE, later(clock, 200))

        assert (done.count, len(done.changed), max(steps)) == (50, 3, 7)
        assert (await engine.scheduled.count(WANTED)).count == 50 + len(steps)


@pytest.mark.parametrize(
    ("what", "at"), [(Change.MOVE, None), (Change.CANCEL, 1), (Change.MOVE, -1), (Change.MOVE, 2**62)]
)
async def test_a_change_without_its_time_is_refused(clock: ManualClock, what: Change, at: int | None) -> None:
    async with open_engine(":memory:", clock=clock) as engine:
        with pytest.raises(SkepError) as refused:
            await engine.scheduled.change(WANTED, what, None if at is None else Instant(at))
        assert refused.value.code is Code.INVALID_TIME
