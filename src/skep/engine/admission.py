"""Admission control: whether a request is executed now, queued for later, or refused, from live figures.

The load is the expected wait of a request, divided by the allowed wait (``backlog_seconds``). The expected wait is the longer one of
two: for its turn in the engine's lane, and for a connection to the store. So nobody has to set a limit: a store with busy connections
is not overloaded while it answers in time, as many requests go into each call. The door limits how many pushes are under way at once,
before they are decoded. Each kind of request has a gate. A gate closes at its threshold, and opens only when the load is some way
below it, to avoid flapping. A full queue of operations refuses requests whatever the load.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from enum import StrEnum
from typing import Protocol

from msgspec import Struct

from skep.config import AdmissionSettings
from skep.engine.door import Door
from skep.errors import Code, SkepError
from skep.model.chores import Connections

REOPEN_SHARE = 0.9
"""A full queue of operations takes new ones only when it has drained to this share, to avoid flapping."""
RECENT_SECONDS = 0.002
MIN_RETRY_SECONDS, MAX_RETRY_SECONDS = 1, 60


class AdmissionDecision(StrEnum):
    """The decision about a request."""

    EXECUTE = "execute"
    QUEUE = "queue"
    REFUSE = "refuse"


class Figures(Struct, frozen=True):
    """The figures that admission uses: the load, and how many operations are queued."""

    load: float
    queued: int


class QueuedOperations(Protocol):
    """The operations that wait, as far as admission looks at them."""

    @property
    def depth(self) -> int:
        """How many are live."""

    @property
    def drain_rate(self) -> float:
        """How many are performed in a second."""


class LoadGate:
    """The threshold of one kind of request. With ``operations`` 0, such requests are never queued: executed or refused."""

    __slots__ = ("_full", "_release", "_shut", "load", "operations")

    def __init__(self, load: float, operations: int, release: float) -> None:
        self.load = load
        self.operations = operations
        self._release = release
        self._shut = False
        self._full = False

    def decide(self, figures: Figures) -> AdmissionDecision:
        """The decision for these figures. The gate remembers that it is closed, to avoid flapping."""
        if self.is_full(figures.queued):
            return AdmissionDecision.REFUSE
        self._shut = figures.load >= (self.load - self._release if self._shut else self.load)
        if not self._shut:
            return AdmissionDecision.EXECUTE
        return AdmissionDecision.QUEUE if self.operations else AdmissionDecision.REFUSE

    def is_full(self, queued: int) -> bool:
        """Whether the queue of operations is full for this kind of request."""
        if self.operations:
            self._full = queued >= (self.operations * REOPEN_SHARE if self._full else self.operations)
        return self._full


class Recent:
    """Figures of connections, cached for `RECENT_SECONDS`, so that not every request pays for reading them."""

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
    """The gates of an engine, the door for pushes, and their figures."""

    def __init__(
        self,
        settings: AdmissionSettings,
        door: Door,
        connections: Callable[[], Connections],
        operations: QueuedOperations,
    ) -> None:
        self._settings = settings
        self._connections = connections
        self._operations = operations
        self._door = door
        release = settings.release
        self.push = LoadGate(settings.push_load, settings.push_operations, release)
        self.ack_batch = LoadGate(settings.ack_load, settings.ack_operations, release)
        self.ack_single = LoadGate(settings.ack_load, settings.ack_operations, release)
        self.pop = LoadGate(settings.pop_load, 0, release)

    def figures(self, wait_seconds: float = 0.0) -> Figures:
        """The present figures for a request that would wait ``wait_seconds`` for its turn."""
        longest = max(wait_seconds, self._connections().wait_seconds)
        return Figures(longest / self._settings.backlog_seconds, self._operations.depth)

    def decide(self, gate: LoadGate, wait_seconds: float = 0.0) -> AdmissionDecision:
        """The decision about a request at this gate. A refusal is raised as OVERLOADED, with the time to try again."""
        if not self._settings.enabled:
            return AdmissionDecision.EXECUTE
        figures = self.figures(wait_seconds)
        decision = gate.decide(figures)
        if decision is AdmissionDecision.REFUSE:
            raise self._refusal(gate, figures)
        if decision is AdmissionDecision.QUEUE and gate is self.push and self._door.is_busy:
            # Queueing costs the same store more than executing, and the door lets in only as many as are answered in time.
            return AdmissionDecision.EXECUTE
        return decision

    def lets_push_in(self) -> bool:
        """Whether a push whose body has arrived gets in at once. OVERLOADED when no more operations can be queued.

        A push that does not get in waits (`wait_to_push`). A push that got in leaves at its end (`leave_push`).
        """
        if not self._settings.enabled:
            return True
        if self.push.is_full(self._operations.depth):
            raise self._refusal(self.push, self.figures())
        return self._door.lets_in()

    async def wait_to_push(self) -> None:
        """Return when the push may enter; OVERLOADED when it cannot enter in time."""
        if not await self._door.enter():
            raise self._refusal(self.push, self.figures())

    def leave_push(self) -> None:
        """Note that a push that got in has ended."""
        if self._settings.enabled:
            self._door.leave()

    def end_waits(self) -> None:
        """Refuse all pushes that wait to enter."""
        self._door.close()

    def _refusal(self, gate: LoadGate, figures: Figures) -> SkepError:
        full = gate.is_full(figures.queued)
        reason = "as many operations are queued as may be" if full else "it has as many calls as it can answer in time"
        return SkepError(
            Code.OVERLOADED,
            f"the server takes no more of this just now, since {reason}",
            load=round(figures.load, 2),
            queued=figures.queued,
            retry_after_seconds=self.retry_seconds(gate, figures) if full else MIN_RETRY_SECONDS,
        )

    def retry_seconds(self, gate: LoadGate, figures: Figures) -> int:
        """The seconds until the queue of operations has room again, at its present drain rate."""
        excess = figures.queued - gate.operations * REOPEN_SHARE
        rate = self._operations.drain_rate
        wait = math.ceil(excess / rate) if rate > 0 else MAX_RETRY_SECONDS
        return max(MIN_RETRY_SECONDS, min(MAX_RETRY_SECONDS, wait))
