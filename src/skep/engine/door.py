"""The door (an adaptive concurrency limit) for calls of one kind: how many are in the server at once, and which get in when it is full.

The door lets in as many calls as the server answers in their allowed time. Nobody sets that number. It follows from Little's law: the
time of a call is the number of calls inside, divided by the calls answered per second. When calls take too long, the limit falls to
the number that fits the target time. It rises while calls are quick and the limit is reached. A limit that was never reached stays, as
it says nothing about what the server can do: more calls in one transaction make each call cheaper.

Other calls wait at the door. The newest gets in first, since it has the most time left; a call that has waited too long is refused. But
a refusal takes time, too, and a refused caller comes again. So while the server is full, it refuses one call per few answered calls.
"""

from __future__ import annotations

import asyncio
from collections import deque

from skep.clock import Clock, Instant, seconds
from skep.engine.timers import Timer, Timers

FIRST_LIMIT = 1_024.0
LEAST = 64.0
"""The least limit: this many calls fit into one transaction of the store, or a few."""
STEADY_MICROS = seconds(0.5)
"""The least time between two changes of the limit."""
JUDGED_BY = 32
"""The least number of answers before the limit is judged."""
MOST_FALL, MOST_RISE = 0.7, 1.25
INSIDE_SHARE = 0.38
"""The share of its time that a call may spend inside, on average. Some calls take more than twice the average."""
WAITING_SHARE = 0.3
"""The share of its time that a call may wait at the door."""
LOOK_MICROS = seconds(0.1)
"""How often the door looks for calls that have waited too long."""
ANSWERED_PER_REFUSED = 6
REFUSED_AT_ONCE = 100
"""How many calls one look refuses at most while no call is answered, or while the server is not full."""


class Door:
    """The calls inside the server, and the calls that wait to get in."""

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
        "_took_micros",
        "_wait_micros",
        "_waiting",
        "inside",
        "limit",
    )

    def __init__(self, clock: Clock, timers: Timers, inside_seconds: float, waiting_seconds: float) -> None:
        """A call may spend ``inside_seconds`` in the server on average, and wait ``waiting_seconds`` at the door at most."""
        self._clock = clock
        self._timers = timers
        self._target_micros = seconds(inside_seconds)
        self._wait_micros = seconds(waiting_seconds)
        self._waiting: deque[tuple[Instant, asyncio.Future[bool]]] = deque()
        self._timer: Timer | None = None
        self.limit = FIRST_LIMIT
        self.inside = 0
        self._most = 0
        self._judged_at = self._counted_at = clock.steady()
        self._took_micros = 0.0
        self._inside_micros = 0
        self._answered = self._answered_at_look = 0

    @property
    def waiting(self) -> int:
        """How many calls wait at the door."""
        return len(self._waiting)

    @property
    def is_busy(self) -> bool:
        """Whether calls wait for the server, and not for one queue of it: many are inside, some wait, or all take long.

        Few calls that take long may all be of one queue. With many, their time so far counts, too: in a first wave of calls none is
        answered yet.
        """
        took = self._took_micros
        if self.inside >= LEAST:
            took = max(took, self._inside_micros / max(1, self._answered))
        return bool(self._waiting) or self.inside * 2 > self.limit or took * 2 > self._target_micros

    def lets_in(self) -> bool:
        """Let a call in if there is room; whether it got in."""
        if self.inside >= self.limit:
            return False
        self._count(1)
        return True

    async def enter(self) -> bool:
        """Let a call in, now or at its turn; False when it was refused."""
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
        """Note that a call that got in has ended, whatever its outcome."""
        self._count(-1)
        self._answered += 1
        self._answered_at_look += 1
        if self._answered >= JUDGED_BY and self._counted_at - self._judged_at >= STEADY_MICROS:
            self._judge()
        if self._waiting:
            self._let_in()

    def close(self) -> None:
        """Refuse all waiting calls."""
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
        """Change the limit by the average time of calls since the last change."""
        passed, answered = self._counted_at - self._judged_at, self._answered
        took_micros = self._took_micros = max(1.0, self._inside_micros / answered)
        if took_micros > self._target_micros:
            held = self._target_micros * answered / passed
            self.limit = max(LEAST, MOST_FALL * self.limit, min(held, self.limit))
        elif self._most >= self.limit:
            self.limit *= min(MOST_RISE, self._target_micros / took_micros)
        self._judged_at = self._counted_at
        self._inside_micros = self._answered = 0
        self._most = self.inside

    def _let_in(self) -> None:
        """Let waiting calls in, the newest first, while there is room."""
        latest = self._counted_at - self._wait_micros
        while self._waiting and self.inside < self.limit and self._waiting[-1][0] > latest:
            if _answer(self._waiting.pop()[1], True):
                self._count(1)

    def _look_in(self, micros: int) -> None:
        self._timer = self._timers.at(Instant(self._clock.now() + micros), self._look)

    def _look(self) -> None:
        """Refuse calls that have waited too long, the oldest first."""
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
    """Answer a waiting call; False when its caller has gone."""
    if future.done():
        return False
    future.set_result(gets_in)
    return True
