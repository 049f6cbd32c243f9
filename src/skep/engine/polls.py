"""Waiting pops (long polls): how they are parked, and which of them a signal wakes.

A poll is parked at every queue it wants messages from, first come first served. A signal wakes only as many polls as there may be
messages for. A poll that leaves messages behind, or leaves before it could look, wakes the next one. So no signal is lost, and there
is no thundering herd. A poll that joins a quiet line sleeps without a look.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection
from random import Random
from typing import Generic, Protocol, TypeVar

from skep.clock import MICROS_PER_MS, Clock, Instant, seconds
from skep.config import EngineSettings
from skep.engine.timers import Timer, Timers
from skep.model import PopRequest, PopResult

Place = TypeVar("Place")
Line = tuple[str, str | None]
"""The group of some waiting polls, and their partition (None: any)."""

SOONEST_REPOLL = 20 * MICROS_PER_MS
"""How long to wait before another look, when a message is ready but the store could not lease it (another server holds it)."""
ALONE_SECONDS = 50.0
"""The safety poll of a server without other servers, where no signal is lost. Its only purpose: the store learns that the group is in
use, which it notes each minute (`ACTIVE_EVERY_MICROS`)."""
SPREAD = 0.5
"""A safety poll comes early by up to this share, so that the polls of many lines spread out."""
LOOKS_PER_SECOND = 50
"""The safety polls of all lines together, about: with many lines each comes later, up to `ALONE_SECONDS`."""


class Safety:
    """The time until a line looks again without a signal, in case a signal was lost."""

    __slots__ = ("_latest", "_longest", "_random", "lines")

    def __init__(self, random: Random, settings: EngineSettings) -> None:
        asked = settings.safety_poll_seconds
        longest = asked if settings.shared else max(asked, ALONE_SECONDS)
        # A look renews the queue's watch, and must come before that ends: else pushes to other servers would not be announced.
        latest = min(ALONE_SECONDS, settings.watch_seconds / 2) if settings.shared else ALONE_SECONDS
        self._longest, self._latest = seconds(longest), max(seconds(longest), seconds(latest))
        self._random = random
        self.lines = 0
        """How many lines have a look before them."""

    def next(self) -> int:
        """The time until the next look, in microseconds."""
        longest = min(max(self._longest, seconds(self.lines / LOOKS_PER_SECOND)), self._latest)
        return round(longest * (1 - SPREAD * self._random.random()))


class ClaimOrder(Protocol):
    """Makes the claims for a poll that waits for a single queue."""

    def request(self) -> PopRequest | None:
        """The request to claim messages; None when there is no room for them now."""

    def fits(self, found: PopResult | None) -> bool:
        """Whether there is room for the claimed messages."""


class Poll(Generic[Place]):
    """One waiting pop. ``signals`` are the places that may have messages for it, in the order of their signals.

    A poll for a single queue has an ``order``: while it sleeps, a push claims messages for it in the push's own transaction.
    """

    __slots__ = (
        "_asked", "_claiming", "_wake", "batch", "group", "has_looked", "order", "over", "partition", "places", "signals",
    )  # fmt: skip

    def __init__(self, group: str, partition: str | None, batch: int, order: ClaimOrder | None = None) -> None:
        self.group = group
        self.partition = partition
        self.batch = batch
        self.order = order
        self._asked: PopRequest | None = None
        self.places: dict[Place, Waiters[Place]] = {}
        self.signals: dict[Place, None] = {}
        self.over = False
        self.has_looked = False
        """Whether it has looked for messages, or another call has for it."""
        self._claiming = False
        self._wake: asyncio.Future[PopResult | None] | None = None

    @property
    def asleep(self) -> bool:
        """Whether the poll sleeps: it neither looks for messages, nor does another call claim some for it."""
        return self._wake is not None and not self._wake.done() and not self._claiming

    @property
    def need_not_look(self) -> bool:
        """Whether the poll may sleep without a look: the last look at its line left nothing, and no signal came since."""
        return len(self.places) == 1 and all(waiters.quiet for waiters in self.places.values())

    def look(self, place: Place) -> None:
        """Note that a look at ``place`` begins. It may miss messages that are signalled from now on."""
        self.signals.pop(place, None)

    def looked(self, place: Place, found: PopResult) -> None:
        """Note the result of a look at ``place``: more messages for the next poll, or the time of the next look."""
        self.has_looked = True
        waiters = self.places[place]
        # A signal during the look is left to the poll of this line that has it: it looks again, or wakes the next.
        waiters.quiet = not found.more
        if found.more:
            self.signals[place] = None
        else:
            waiters.ready_at(found.next_ready_at)

    def claim(self) -> PopRequest | None:
        """The request that another call makes for this poll; None without room. Until `claimed`, signals do not wake the poll."""
        assert self.order is not None
        self._asked = self.order.request()
        if self._asked is not None:
            for place in self.places:
                self.look(place)
            self._claiming = True
        return self._asked

    def claimed(self, found: PopResult | None) -> bool:
        """Hand claimed messages to this poll (None: the call did not look). False when it has no room, or sleeps no longer."""
        self._claiming = False
        assert self.order is not None
        if not self.order.fits(found):
            for place in self.places:  # the poll looks by itself, once there is room
                self.signals[place] = None
            self.rouse()
            return False
        if self._wake is None or self._wake.done():
            return False
        if found is not None:
            for place in self.places:
                self.looked(place, found)
        if found is not None and found.deliveries:
            self._wake.set_result(found)
        elif self.signals or self.over:
            self._wake.set_result(None)
        return True

    def signal(self, place: Place) -> None:
        """Note that ``place`` may have messages, and wake the poll."""
        self.signals[place] = None
        self.rouse()

    def end(self) -> None:
        """End the poll: its time is over, or the engine stops. It answers with the messages it has."""
        self.over = True
        self.rouse()

    def rouse(self) -> None:
        """Wake the poll if it sleeps."""
        if self.asleep and self._wake is not None:
            self._wake.set_result(None)

    async def sleep(self, abandoned: Callable[[PopRequest, PopResult], None]) -> PopResult | None:
        """Return at a signal or at the end of the poll, or with messages that another call claimed for it.

        ``abandoned`` gets these messages when the caller was cancelled in the very turn of the loop in which they came.
        """
        if self.signals or self.over:
            return None
        wake: asyncio.Future[PopResult | None] = asyncio.get_running_loop().create_future()
        self._wake = wake
        try:
            return await wake
        except asyncio.CancelledError:
            found = wake.result() if wake.done() and not wake.cancelled() else None
            if found is not None and self._asked is not None:
                abandoned(self._asked, found)
            raise
        finally:
            self._wake = None


class Waiters(Generic[Place]):
    """The polls parked at one place for one group (and one partition, if they want only that), first come first.

    The line is ``quiet`` while no message is known to be ready, or a poll in it will look: a new poll need not look then.
    """

    __slots__ = ("_clock", "_place", "_safety", "_timer", "_timers", "polls", "quiet")

    def __init__(self, place: Place, clock: Clock, timers: Timers, safety: Safety) -> None:
        self._place = place
        self._clock = clock
        self._timers = timers
        self._safety = safety
        self._timer: Timer | None = None
        self.polls: dict[Poll[Place], None] = {}
        self.quiet = False

    def wake(self, messages: int = 1) -> None:
        """Wake as many sleeping polls as it takes for ``messages``; when all are awake, the first looks once more."""
        self.quiet = False
        woken = False
        for poll in self.polls:
            # A follower of the log (batch 0) takes no messages from the next poll, and is signalled also while it looks.
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

    def offered(self, messages: int) -> list[Poll[Place]]:
        """The sleeping polls that this many ``messages`` suffice for, first come first."""
        found = []
        for poll in self.polls:
            if messages <= 0 or (poll.asleep and poll.order is None):
                break
            if poll.asleep:
                found.append(poll)
                messages -= poll.batch
        return found

    def ready_at(self, instant: Instant | None) -> None:
        """Look again at ``instant``, when a message may be ready, or when the safety poll is due."""
        now = self._clock.now()
        deadline = Instant(now + self._safety.next())
        if instant is not None:
            deadline = min(deadline, max(instant, Instant(now + SOONEST_REPOLL)))
        if self._timer is not None:
            if self._timer.callback is not None and self._timer.deadline <= deadline:
                return
            self.close()
        self._safety.lines += 1
        self._timer = self._timers.at(deadline, self._ring)

    def _ring(self) -> None:
        self._timer = None
        self._safety.lines -= 1
        if self.polls:
            self.ready_at(None)
        self.wake()

    def close(self) -> None:
        """Cancel the timer."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
            self._safety.lines -= 1


class Parking(Generic[Place]):
    """All polls that wait at one queue. A line for any partition stays when it is empty, to remember whether it is quiet."""

    __slots__ = ("_lines", "_make")

    def __init__(self, make: Callable[[], Waiters[Place]]) -> None:
        self._make = make
        self._lines: dict[Line, Waiters[Place]] = {}

    def __bool__(self) -> bool:
        return any(waiters.polls for waiters in self._lines.values())

    @property
    def has_lines(self) -> bool:
        """Whether a poll waits, or has waited: else there is nobody to wake, and nothing to remember."""
        return bool(self._lines)

    def park(self, poll: Poll[Place]) -> Waiters[Place]:
        """Put a poll at the end of its line."""
        line = (poll.group, poll.partition)
        waiters = self._lines.get(line)
        if waiters is None:
            waiters = self._lines[line] = self._make()
        waiters.polls[poll] = None
        return waiters

    def leave(self, poll: Poll[Place], *, pass_on: bool) -> None:
        """Take a poll out of its line; ``pass_on`` wakes the next poll, for messages that this one leaves behind."""
        line = (poll.group, poll.partition)
        waiters = self._lines.get(line)
        if waiters is None:
            return
        waiters.polls.pop(poll, None)
        if pass_on:
            waiters.wake()
        if not waiters.polls and poll.partition is not None:
            waiters.close()
            del self._lines[line]

    def offered(self, messages: int, partitions: set[str], group: str | None = None) -> list[Poll[Place]]:
        """The sleeping polls, of one group or all, that this many messages of these partitions suffice for."""
        return [
            poll
            for (for_group, partition), waiters in self._lines.items()
            if (partition is None or partition in partitions) and (group is None or group == for_group)
            for poll in waiters.offered(messages)
        ]

    def wake(
        self,
        messages: int,
        group: str | None = None,
        partitions: set[str] | None = None,
        served: Collection[Line] = (),
    ) -> None:
        """Wake polls for new messages: of one group or all, in some partitions or any, except in lines that were ``served``."""
        for line, waiters in self._lines.items():
            for_group, partition = line
            if group is not None and for_group != group:
                continue
            if partition is not None and partitions is not None and partition not in partitions:
                continue
            if line not in served:
                waiters.wake(messages)

    def ready_at(self, group: str, instant: Instant) -> None:
        """Note that a message will be ready for a group at ``instant``."""
        for (for_group, _), waiters in self._lines.items():
            if for_group == group and (waiters.polls or waiters.quiet):
                waiters.ready_at(instant)
