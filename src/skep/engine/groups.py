"""Moving and ending consumer groups. Reached as ``engine.groups``."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from skep.clock import Clock
from skep.engine import validate
from skep.engine.inflight import InFlight
from skep.model import GroupStats, QueueKey, Start, Token
from skep.store.protocol.groups import GroupVerbs
from skep.store.protocol.leases import LeaseVerbs


class GroupsAndLeases(GroupVerbs, LeaseVerbs, Protocol):
    """The store's verbs for consumer groups and their leases."""


@dataclass(eq=False)
class Groups:
    """The groups of all queues."""

    _store: GroupsAndLeases
    _clock: Clock
    _in_flight: InFlight
    _inspect: Callable[[QueueKey], None]
    _wake: Callable[[QueueKey], None]
    """Both are called for queues where messages may have become ready."""

    async def seek(self, key: QueueKey, group: str, start: Start) -> GroupStats:
        """Move a group to a position; a missing group is made. Its leases end, and its counters start again."""
        with self._in_flight:
            _check(key, group)
            validate.check_start(start)
            stats = await self._store.seek(key, group, start, self._clock.now())
            self._wake(key)
            return stats

    async def delete(self, key: QueueKey, group: str) -> bool:
        """Forget a group and its leases; False when there is none."""
        with self._in_flight:
            _check(key, group)
            return await self._store.delete_group(key, group, self._clock.now())

    async def end_leases(self, key: QueueKey, group: str, partition: str) -> int:
        """End the leases of a partition, so that its messages are delivered again at once; returns how many ended."""
        with self._in_flight:
            _check(key, group)
            validate.check_partition(partition)
            ended = await self._store.end_leases(key, group, partition, self._clock.now())
            self._inspect(key)
            self._wake(key)
            return ended

    async def release_lease(self, key: QueueKey, group: str, partition: str, token: Token) -> bool:
        """End the lease with this token, so that its messages are delivered again at once; False when there is none."""
        with self._in_flight:
            _check(key, group)
            validate.check_partition(partition)
            released = await self._store.release_lease(key, group, partition, token, self._clock.now())
            self._inspect(key)
            self._wake(key)
            return released > 0


def _check(key: QueueKey, group: str) -> None:
    validate.check_key(key)
    validate.check_name(group, "group")
