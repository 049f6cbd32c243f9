"""Lines of waiting pops: whom a signal wakes, and what becomes of a signal that comes while its poll does something else."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from random import Random

import pytest

from skep.clock import Instant, ManualClock, seconds
from skep.config import EngineSettings
from skep.engine.polls import Poll, Safety, Waiters
from skep.engine.timers import Timers
from skep.model import PopRequest, PopResult, QueueKey
from tests.engine.driver import until

PLACE = "orders"
REQUEST = PopRequest(QueueKey(PLACE))
NOTHING = PopResult([])


class Claims:
    """Room for whatever is claimed."""

    def request(self) -> PopRequest:
        return REQUEST

    def fits(self, found: PopResult | None) -> bool:
        return True


class Line:
    """One line of polls on a clock that stands still."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.timers = Timers(self.clock)
        self.waiters: Waiters[str] = Waiters(PLACE, self.clock, self.timers, Safety(Random(1), EngineSettings()))
        self.abandoned: list[PopResult] = []
        self._asleep: list[asyncio.Task[PopResult | None]] = []

    def come(self) -> Poll[str]:
        """A poll that joins the line, and looks."""
        poll: Poll[str] = Poll("group", None, 1, Claims())
        poll.places = {PLACE: self.waiters}
        self.waiters.polls[poll] = None
        poll.look(PLACE)
        return poll

    async def sleep(self, poll: Poll[str]) -> asyncio.Task[PopResult | None]:
        task = asyncio.ensure_future(poll.sleep(lambda _, found: self.abandoned.append(found)))
        self._asleep.append(task)
        await until(lambda: poll.asleep)
        return task

    async def close(self) -> None:
        self.timers.close()
        for task in self._asleep:
            task.cancel()
        await asyncio.gather(*self._asleep, return_exceptions=True)


@pytest.fixture
async def line() -> AsyncIterator[Line]:
    line = Line()
    yield line
    await line.close()


async def test_a_message_wakes_one_poll_and_two_wake_two(line: Line) -> None:
    polls = [line.come() for _ in range(4)]
    for poll in polls:
        await line.sleep(poll)
    line.waiters.wake(1)
    assert [poll.asleep for poll in polls] == [False, True, True, True]

    line.waiters.wake(2)
    assert [poll.asleep for poll in polls] == [False, False, False, True]


async def test_a_signal_while_all_polls_look_makes_the_first_look_again(line: Line) -> None:
    first, second = line.come(), line.come()
    line.waiters.wake(1)
    first.looked(PLACE, NOTHING)
    second.looked(PLACE, NOTHING)

    assert (first.signals, second.signals) == ({PLACE: None}, {}), "its look may have missed the message"


async def test_the_earliest_of_several_times_counts(line: Line) -> None:
    poll = line.come()
    asleep = await line.sleep(poll)
    now = line.clock.now()
    line.waiters.ready_at(Instant(now + seconds(5)))
    line.waiters.ready_at(Instant(now + seconds(30)))
    line.clock.advance(5)

    async with asyncio.timeout(10):
        assert await asleep is None
    assert poll.signals == {PLACE: None}


async def test_messages_that_come_in_the_turn_of_the_cancellation_are_abandoned_and_not_lost(line: Line) -> None:
    poll = line.come()
    asleep = await line.sleep(poll)
    assert poll.claim() is REQUEST
    found = PopResult(["a delivery"])  # type: ignore[list-item] # whatever it is
    assert poll.claimed(found)
    asleep.cancel()
    await asyncio.wait([asleep])

    assert asleep.cancelled()
    assert line.abandoned == [found]
