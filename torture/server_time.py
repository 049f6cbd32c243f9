"""The server's time in a run that moves clocks, and what that may change in a history.

A jump ahead ends leases early, and no program can tell it from time that passed. A clock that goes back, or stands still, lets leases last
longer, and cuts none short. Nothing else changes: what was stored stays, tokens fence, order and attempts are as ever.
"""

from __future__ import annotations

import time
from collections import deque
from dataclasses import replace

from msgspec import Struct, structs

from skep.clock import SLEW, Instant, seconds
from skep.model import PopResult, QueueSettings, RenewResult, Start, StartMode
from torture.history import NEVER, Call, History

NOTICED_SECONDS = 3.0
"""How long it takes the server at most to notice that a clock was put ahead: with PostgreSQL it looks once a second."""
MOST_JUMPS = 1_000
"""How many jumps are remembered: more than a round has."""


class Jump(Struct, frozen=True):
    """The server's time went ahead at once, at some moment between two ticks."""

    started: int
    ended: int


class ServerTime:
    """The jumps of a run."""

    def __init__(self) -> None:
        self.is_moved = False
        """Whether the server's time is not, or may not be, that of this machine."""
        self.jumps: deque[Jump] = deque(maxlen=MOST_JUMPS)

    def goes(self, by: float) -> None:
        """Note that the clock which the server follows is about to be put ahead, or back when ``by`` is negative."""
        self.is_moved = True
        if by > 0:
            now = time.monotonic_ns()
            self.jumps.append(Jump(now, now + round(NOTICED_SECONDS * 1e9)))

    def steadied(self, history: History) -> History:
        """The history with the ends of leases as this machine's clock would tell them: the earliest moment at which each may have ended."""
        if not self.is_moved:
            return history
        calls = [self._steadied(call, history) for call in history.calls]
        return replace(history, calls=calls, leases_may_last=True)

    def _steadied(self, call: Call, history: History) -> Call:
        if call.verb == "seek" and call.request[2].mode is StartMode.TIME:
            # By which time the messages were stamped nobody knows.
            return structs.replace(call, request=(*call.request[:2], Start(StartMode.TIME, Instant(2**62))))
        if call.ended is None:
            return call
        if call.verb == "pop":
            return structs.replace(call, answer=[self._popped(call, one, history) for one in call.answer])
        if call.verb == "renew":
            ends = [self._earliest_end(call, renewal.lease_seconds) for renewal in call.request]
            renewed = zip(call.answer, ends, strict=False)
            return structs.replace(
                call, answer=[one if one.deadline is None else RenewResult(end) for one, end in renewed]
            )
        return call

    def _popped(self, call: Call, popped: PopResult, history: History) -> PopResult:
        asked: float | None = call.request[0].lease_seconds
        deliveries = []
        for delivery in popped.deliveries:
            settings: QueueSettings = history.settings_of(delivery.queue)
            end = self._earliest_end(call, settings.lease_seconds if asked is None else asked)
            deliveries.append(structs.replace(delivery, lease_deadline=end))
        return structs.replace(popped, deliveries=deliveries)

    def _earliest_end(self, call: Call, lease_seconds: float) -> Instant:
        """A clock that is put right little by little is fast by a tenth; and a jump after the claim may have ended the lease at once."""
        length = seconds(lease_seconds)
        end = call.now + length - length // SLEW
        ticks = min((jump.started for jump in self.jumps if jump.ended >= call.started), default=NEVER)
        return Instant(min(end, call.now + max(0, ticks - call.started) // 1_000))
