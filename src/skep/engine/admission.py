"""Admission: whether a request is executed now, queued for later, or refused, from live figures.

Load is how long a request would wait, beside how long it may: the longer of its waits for its turn in the engine's lane, going by what
calls took lately, and for a connection to the store. So the limit is found by itself. A store whose connections are all at work, and
which answers in time because many requests go into each call, is not overloaded. How many pushes are under way at once is up to the
door, before they are decoded. Each kind of request has a gate, which closes at its
threshold and opens only some way below it, so that a load around the threshold does not make it flap. How many operations are queued
already is looked at first: a full queue refuses, whatever the load.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from enum import StrEnum

from msgspec import Struct

from skep.config import AdmissionSettings
from skep.engine.door import Door
from skep.errors import Code, SkepError
from skep.model.upkeep import Connections

REOPEN_SHARE = 0.9
"""A queue of operations that was full takes more once it is this full: not one by one, as it drains."""
RECENT_SECONDS = 0.002
MIN_RETRY_SECONDS, MAX_RETRY_SECONDS = 1, 60


class Decision(StrEnum):
    """What becomes of a request."""

    EXECUTE = "execute"
    QUEUE = "queue"
    REFUSE = "refuse"


class Figures(Struct, frozen=True):
    """What admission is decided from: the load, and how many operations are queued."""

    load: float
    queued: int


class Gate:
    """The threshold of one kind of request. Without room in the queue of operations it executes or refuses."""

    __slots__ = ("_full", "_release", "_shut", "load", "operations")

    def __init__(self, load: float, operations: int, release: float) -> None:
        self.load = load
        self.operations = operations
        self._release = release
        self._shut = False
        self._full = False

    def decide(self, figures: Figures) -> Decision:
        """What to do now; it remembers, so that it does not flap."""
        if self.is_full(figures.queued):
            return Decision.REFUSE
        self._shut = figures.load >= (self.load - self._release if self._shut else self.load)
        if not self._shut:
            return Decision.EXECUTE
        return Decision.QUEUE if self.operations else Decision.REFUSE

    def is_full(self, queued: int) -> bool:
        """Whether as many operations are queued as may be, for this kind."""
        if self.operations:
            self._full = queued >= (self.operations * REOPEN_SHARE if self._full else self.operations)
        return self._full


class Recent:
    """Figures of connections, read anew every few milliseconds at the most: the fast path must not pay for each request."""

    def __init__(self, read: Callable[[], Connections]) -> None:
        self._read = read
        self._last = Connections()
        self._until = 0.0

    def __call__(self) -> Connections:
        """The latest figures."""
        now = time.monotonic()
        if now >= self._until:
            self._last = self._read()
            self._until = now + RECENT_SECONDS
        return self._last


class Admission:
    """The gates of an engine, and the figures they go by."""

    def __init__(
        self,
        settings: AdmissionSettings,
        door: Door,
        connections: Callable[[], Connections],
        queued: Callable[[], int] = lambda: 0,
        drain_rate: Callable[[], float] = lambda: 0.0,
    ) -> None:
        """``queued`` tells how many operations wait, ``drain_rate`` how many are done in a second."""
        self._settings = settings
        self._connections = connections
        self._queued = queued
        self._drain_rate = drain_rate
        self._door = door
        release = settings.release
        self.push = Gate(settings.push_load, settings.push_operations, release)
        self.ack_batch = Gate(settings.ack_load, settings.ack_operations, release)
        self.ack_single = Gate(settings.ack_load, settings.ack_operations, release)
        self.pop = Gate(settings.pop_load, 0, release)

    def figures(self, wait_seconds: float = 0.0) -> Figures:
        """The present figures for a request that would wait so long for its turn."""
        longest = max(wait_seconds, self._connections().wait_seconds)
        return Figures(longest / self._settings.backlog_seconds, self._queued())

    def decide(self, gate: Gate, wait_seconds: float = 0.0) -> Decision:
        """What becomes of a request at this gate; a refusal is raised, with when to come again."""
        if not self._settings.enabled:
            return Decision.EXECUTE
        figures = self.figures(wait_seconds)
        decision = gate.decide(figures)
        if decision is Decision.REFUSE:
            raise self._refusal(gate, figures)
        if decision is Decision.QUEUE and gate is self.push and self._door.is_busy:
            # To queue it takes the same store, and more of it. Who is inside is answered in time.
            return Decision.EXECUTE
        return decision

    def lets_push_in(self) -> bool:
        """Whether a push whose body is there gets in at once. OVERLOADED when no more operations can be queued.

        Who does not get in waits (`wait_to_push`), and who got in leaves (`leave_push`).
        """
        if not self._settings.enabled:
            return True
        if self.push.is_full(self._queued()):
            raise self._refusal(self.push, self.figures())
        return self._door.lets_in()

    async def wait_to_push(self) -> None:
        """Return when it is the push's turn; OVERLOADED when it cannot be taken in time."""
        if not await self._door.enter():
            raise self._refusal(self.push, self.figures())

    def leave_push(self) -> None:
        """A push that was let in has ended."""
        if self._settings.enabled:
            self._door.leave()

    def end_waits(self) -> None:
        """Let nobody wait to be let in any longer."""
        self._door.close()

    def _refusal(self, gate: Gate, figures: Figures) -> SkepError:
        full = gate.is_full(figures.queued)
        reason = "as many operations are queued as may be" if full else "it has as many calls as it can answer in time"
        return SkepError(
            Code.OVERLOADED,
            f"the server takes no more of this just now, since {reason}",
            load=round(figures.load, 2),
            queued=figures.queued,
            retry_after_seconds=self.retry_seconds(gate, figures) if full else MIN_RETRY_SECONDS,
        )

    def retry_seconds(self, gate: Gate, figures: Figures) -> int:
        """When there will be room again, at the rate at which operations are done now."""
        excess = figures.queued - gate.operations * REOPEN_SHARE
        rate = self._drain_rate()
        wait = math.ceil(excess / rate) if rate > 0 else MAX_RETRY_SECONDS
        return max(MIN_RETRY_SECONDS, min(MAX_RETRY_SECONDS, wait))
