"""The consumers of this server: those that popped lately, and those that wait for messages now. In memory only, and bounded.

The store knows the consumers with leases, of all servers. This module also knows those without leases.
"""

from __future__ import annotations

from typing import NamedTuple

from msgspec import Struct

from skep.clock import Clock, Instant, seconds
from skep.model import LeaseInfo, QueueKey

KEPT = 10_000
"""How many consumers are remembered: the latest ones."""
FORGOTTEN_SECONDS = 300.0
"""A consumer is gone when it has neither asked nor waited for this long."""


class Consumed(NamedTuple):
    """A consumer, and the queue and group it pops from. ``queue`` has no name for a pop over a namespace or task."""

    queue: QueueKey
    group: str
    consumer: str | None


class LastCall(Struct):
    """When a consumer last asked for messages, and how many of its calls wait."""

    last_at: Instant
    waiting: int = 0


class Connected(Struct, frozen=True):
    """A consumer of a queue and group: one that waits or asked lately, or that holds leases."""

    queue: QueueKey
    group: str
    consumer: str | None
    waiting: int
    leases: int
    messages: int
    last_at: Instant


class Consumers:
    """The consumers that this server has seen."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._seen: dict[Consumed, LastCall] = {}

    def asks(self, place: Consumed, *, waits: bool) -> LastCall:
        """Note that a consumer asks for messages; ``waits``: it waits if there are none. Call `answered` at the end."""
        seen = self._seen.get(place)
        if seen is None:
            if len(self._seen) >= KEPT:
                self._forget()
            seen = self._seen[place] = LastCall(self._clock.now())
        else:
            seen.last_at = self._clock.now()
        seen.waiting += waits
        return seen

    def answered(self, seen: LastCall, *, waits: bool) -> None:
        """Note that a consumer got its answer, or has gone."""
        seen.waiting -= waits
        if waits:
            seen.last_at = self._clock.now()

    def waiting(self, queue: QueueKey, group: str) -> int:
        """How many calls wait for messages of a queue and group."""
        return sum(seen.waiting for place, seen in self._seen.items() if place.queue == queue and place.group == group)

    def _forget(self) -> None:
        """Make room: forget consumers that are gone, then those without waiting calls that were seen longest ago."""
        self.drop_gone()
        idle = sorted(
            (place for place, seen in self._seen.items() if not seen.waiting), key=lambda p: self._seen[p].last_at
        )
        for place in idle[: max(0, len(self._seen) - KEPT // 2)]:
            del self._seen[place]

    def drop_gone(self) -> None:
        """Forget consumers that made no call for long."""
        gone_at = self._clock.now() - seconds(FORGOTTEN_SECONDS)
        for place in [place for place, seen in self._seen.items() if not seen.waiting and seen.last_at < gone_at]:
            del self._seen[place]

    def of(self, tenant: str, leases: list[LeaseInfo]) -> list[Connected]:
        """A tenant's consumers by queue, group and name, including the holders of live ``leases``."""
        self.drop_gone()
        held: dict[Consumed, list[LeaseInfo]] = {}
        for lease in leases:
            held.setdefault(Consumed(lease.queue, lease.group, lease.consumer), []).append(lease)
        seen = {place: one for place, one in self._seen.items() if place.queue.tenant == tenant}
        found = [_connected(place, seen.get(place), held.get(place, [])) for place in dict.fromkeys([*seen, *held])]
        return sorted(found, key=lambda one: (one.queue.name, one.group, one.consumer or ""))


def _connected(place: Consumed, seen: LastCall | None, leases: list[LeaseInfo]) -> Connected:
    last_at = max([lease.leased_at for lease in leases] + ([] if seen is None else [seen.last_at]))
    return Connected(
        place.queue, place.group, place.consumer, 0 if seen is None else seen.waiting, len(leases),
        sum(lease.messages for lease in leases), last_at,
    )  # fmt: skip
