"""Pops that wait: how they are parked, and who is woken when there may be work.

A poll is parked at every queue it wants messages from, first come first served. A signal wakes only as many polls as it
may have work for; one that takes messages and leaves more behind, or leaves before it could look, wakes the next. So
no signal is lost, and no herd runs for one message.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Generic, TypeVar

from skep.clock import MICROS_PER_MS, Clock, Instant
from skep.engine.timers import Timer, Timers
from skep.model import PopResult

Place = TypeVar("Place")

SOONEST_REPOLL = 20 * MICROS_PER_MS
"""When the store says that something is ready but could not hand it out (another server holds it), look again after this."""


class Poll(Generic[Place]):
    """One caller that waits. ``signals`` are the places that may have work for it, in the order they said so."""

    __slots__ = ("_wake", "batch", "group", "over", "partition", "places", "signals")

    def __init__(self, group: str, partition: str | None, batch: int) -> None:
        self.group = group
        self.partition = partition
        self.batch = batch
        self.places: dict[Place, Waiters[Place]] = {}
        self.signals: dict[Place, None] = {}
        self.over = False
        self._wake: asyncio.Future[None] | None = None

    @property
    def asleep(self) -> bool:
        """Whether it waits to be woken, rather than looking for messages just now."""
        return self._wake is not None and not self._wake.done()

    def signal(self, place: Place) -> None:
        """There may be work at ``place``."""
        self.signals[place] = None
        self.rouse()

    def looked(self, place: Place, found: PopResult) -> None:
        """Remember what a look at ``place`` said of later: more for whoever comes next, or when to look again."""
        waiters = self.places[place]
        if found.more:
            self.signals[place] = None
        elif not found.deliveries or len(waiters.polls) > 1:
            waiters.ready_at(found.next_ready_at)

    def end(self) -> None:
        """Its time is over, or the engine stops: it answers with what there is."""
        self.over = True
        self.rouse()

    def rouse(self) -> None:
        """Wake it if it sleeps."""
        if self._wake is not None and not self._wake.done():
            self._wake.set_result(None)

    async def sleep(self) -> None:
        """Return once there is a signal or the poll is over."""
        if self.signals or self.over:
            return
        self._wake = asyncio.get_running_loop().create_future()
        try:
            await self._wake
        finally:
            self._wake = None


class Waiters(Generic[Place]):
    """The polls parked at one place for one group (and one partition, if they want only that), first come first."""

    __slots__ = ("_clock", "_place", "_safety", "_timer", "_timers", "polls")

    def __init__(self, place: Place, clock: Clock, timers: Timers, safety: int) -> None:
        self._place = place
        self._clock = clock
        self._timers = timers
        self._safety = safety
        self._timer: Timer | None = None
        self.polls: dict[Poll[Place], None] = {}

    def wake(self, messages: int = 1) -> None:
        """Wake as many sleeping polls as it takes for ``messages``; when all are awake, the first looks once more."""
        woken = False
        for poll in self.polls:
            # One that takes nothing leaves all for the next, and looks again even if it looks just now.
            if poll.asleep or not poll.batch:
                poll.signal(self._place)
                woken = True
                messages -= poll.batch
                if messages <= 0:
                    return
        if not woken:
            for poll in self.polls:
                poll.signal(self._place)
                return

    def ready_at(self, instant: Instant | None) -> None:
        """Nothing was found; something may be ready at ``instant``. Look again then, or when the safety poll is due."""
        now = self._clock.now()
        deadline = Instant(now + self._safety)
        if instant is not None:
            deadline = min(deadline, max(instant, Instant(now + SOONEST_REPOLL)))
        if self._timer is not None:
            if self._timer.callback is not None and self._timer.deadline <= deadline:
                return
            self._timer.cancel()
        self._timer = self._timers.at(deadline, self._ring)

    def leave(self, poll: Poll[Place]) -> None:
        """Take a poll out; the last one turns off the timer."""
        self.polls.pop(poll, None)
        if not self.polls and self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _ring(self) -> None:
        self._timer = None
        self.ready_at(None)
        self.wake()


class Parking(Generic[Place]):
    """Everyone who waits at one queue."""

    __slots__ = ("_make", "_waiters")

    def __init__(self, make: Callable[[], Waiters[Place]]) -> None:
        self._make = make
        self._waiters: dict[tuple[str, str | None], Waiters[Place]] = {}

    def __bool__(self) -> bool:
        return bool(self._waiters)

    def park(self, poll: Poll[Place]) -> Waiters[Place]:
        """Put a poll at the end of its line."""
        at = (poll.group, poll.partition)
        waiters = self._waiters.get(at)
        if waiters is None:
            waiters = self._waiters[at] = self._make()
        waiters.polls[poll] = None
        return waiters

    def leave(self, poll: Poll[Place], *, pass_on: bool) -> None:
        """Take a poll out; ``pass_on`` when it leaves behind what another may want."""
        at = (poll.group, poll.partition)
        waiters = self._waiters.get(at)
        if waiters is None:
            return
        waiters.leave(poll)
        if not waiters.polls:
            del self._waiters[at]
        elif pass_on:
            waiters.wake()

    def wake(self, messages: int, group: str | None = None, partitions: set[str] | None = None) -> None:
        """There may be work: for one group or all, in some partitions or any."""
        for (for_group, partition), waiters in self._waiters.items():
            if group is not None and for_group != group:
                continue
            if partition is not None and partitions is not None and partition not in partitions:
                continue
            waiters.wake(messages)

    def ready_at(self, group: str, instant: Instant) -> None:
        """Something will be ready for a group at ``instant``."""
        for (for_group, _), waiters in self._waiters.items():
            if for_group == group:
                waiters.ready_at(instant)

    def groups(self) -> set[str]:
        """The groups that someone waits for."""
        return {group for group, _ in self._waiters}
