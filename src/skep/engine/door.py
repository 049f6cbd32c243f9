"""The door for calls of one kind: how many are in the server at once, and who gets in when it is full.

As many get in as the server answers in the time that they may take. Nobody sets that number. It is found by Little's law: calls take as
long as the number of those inside, over how many are answered in a second. The limit is multiplied by how long they may take, over how
long they do: it falls when they take longer, and rises while they are quick and as many come as it allows. More calls in one transaction
make each cheaper, so what a server can do is not known from what it did lately: a limit that nobody came near is not lowered by that.

The others wait at the door. The newest gets in first, since it has the most of its time left; who has waited for too long is refused. But
refusing takes time, too, and who is refused comes again: so while the server is full, it refuses one call for a few that it answers.
"""

from __future__ import annotations

import asyncio
from collections import deque

from skep.clock import Clock, Instant, seconds
from skep.engine.timers import Timer, Timers

FIRST_LIMIT = 1_024.0
LEAST = 64.0
"""The limit never falls below: so many calls are one transaction of the store, or a few."""
STEADY_MICROS = seconds(0.5)
"""The limit is left alone for this long, at the least."""
JUDGED_BY = 32
"""It takes so many answers to judge a limit."""
MOST_FALL, MOST_RISE = 0.7, 1.25
INSIDE_SHARE = 0.4
"""How much of its time a call may spend inside, on average: some take more than twice as long."""
WAITING_SHARE = 0.1
"""The share of its time that a call may wait at the door."""
LOOK_MICROS = seconds(0.1)
"""How often it is seen who has waited for too long."""
ANSWERED_PER_REFUSED = 6
REFUSED_AT_ONCE = 100
"""How many are refused at one look while none is answered, or there is room: there is time for it."""


class Door:
    """Calls that are in the server, and those that wait to get in."""

    __slots__ = (
        "_answered",
        "_answered_at_look",
        "_clock",
        "_counted_at",
        "_inside_micros",
        "_judged_at",
        "_most",
        "_target_micros",
        "_timer",
        "_timers",
        "_wait_micros",
        "_waiting",
        "inside",
        "limit",
    )

    def __init__(self, clock: Clock, timers: Timers, call_seconds: float) -> None:
        """A call may take ``call_seconds``, from when it came."""
        self._clock = clock
        self._timers = timers
        self._target_micros = INSIDE_SHARE * seconds(call_seconds)
        self._wait_micros = round(WAITING_SHARE * seconds(call_seconds))
        self._waiting: deque[tuple[Instant, asyncio.Future[bool]]] = deque()
        self._timer: Timer | None = None
        self.limit = FIRST_LIMIT
        self.inside = 0
        self._most = 0
        self._judged_at = self._counted_at = clock.steady()
        self._inside_micros = 0
        self._answered = self._answered_at_look = 0

    @property
    def waiting(self) -> int:
        """How many wait at the door."""
        return len(self._waiting)

    @property
    def is_busy(self) -> bool:
        """Whether the server is more than half full. Then calls wait for the whole server, not for one queue."""
        return self.inside * 2 > self.limit

    def lets_in(self) -> bool:
        """Whether there is room for a call, which is inside then."""
        if self.inside >= self.limit:
            return False
        self._count(1)
        return True

    async def enter(self) -> bool:
        """Whether a call gets in, now or when its turn has come."""
        if self.lets_in():
            return True
        future: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._waiting.append((self._clock.steady(), future))
        if self._timer is None:
            self._look_in(self._wait_micros)
        try:
            return await future
        except asyncio.CancelledError:
            if future.done() and not future.cancelled() and future.result():
                self._count(-1)
                self._let_in()
            raise

    def leave(self) -> None:
        """A call that got in has ended, in whichever way."""
        self._count(-1)
        self._answered += 1
        self._answered_at_look += 1
        if self._answered >= JUDGED_BY and self._counted_at - self._judged_at >= STEADY_MICROS:
            self._judge()
        if self._waiting:
            self._let_in()

    def close(self) -> None:
        """Refuse whoever waits."""
        while self._waiting:
            _answer(self._waiting.popleft()[1], False)

    def _count(self, more: int) -> None:
        now = self._clock.steady()
        self._inside_micros += self.inside * (now - self._counted_at)
        self._counted_at = now
        self.inside += more
        if self.inside > self._most:
            self._most = self.inside

    def _judge(self) -> None:
        """Change the limit by how long calls took since the last time."""
        passed, answered = self._counted_at - self._judged_at, self._answered
        took_micros = max(1.0, self._inside_micros / answered)
        if took_micros > self._target_micros:
            held = self._target_micros * answered / passed
            self.limit = max(LEAST, MOST_FALL * self.limit, min(held, self.limit))
        elif self._most >= self.limit:
            self.limit *= min(MOST_RISE, self._target_micros / took_micros)
        self._judged_at = self._counted_at
        self._inside_micros = self._answered = 0
        self._most = self.inside

    def _let_in(self) -> None:
        """Let the newest in, as far as there is room."""
        latest = self._counted_at - self._wait_micros
        while self._waiting and self.inside < self.limit and self._waiting[-1][0] > latest:
            if _answer(self._waiting.pop()[1], True):
                self._count(1)

    def _look_in(self, micros: int) -> None:
        self._timer = self._timers.at(Instant(self._clock.now() + micros), self._look)

    def _look(self) -> None:
        """Refuse those who have waited for too long, the oldest first."""
        self._timer = None
        latest = self._clock.steady() - self._wait_micros
        left = REFUSED_AT_ONCE
        if self._answered_at_look and self.inside >= self.limit:
            left = -(-self._answered_at_look // ANSWERED_PER_REFUSED)
        self._answered_at_look = 0
        while left and self._waiting and self._waiting[0][0] <= latest:
            left -= _answer(self._waiting.popleft()[1], False)
        if self._waiting:
            self._look_in(max(LOOK_MICROS, self._waiting[0][0] - latest))


def _answer(future: asyncio.Future[bool], gets_in: bool) -> bool:
    """Tell one who waits, if it is still there."""
    if future.done():
        return False
    future.set_result(gets_in)
    return True
