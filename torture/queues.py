"""The queues of a round: one of each kind, so that every ordering and every setting that moves messages is under load."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from msgspec import Struct

from skep.model import Ordering, QueueKey, QueueSettings

LEASE_SECONDS = 1.0
GROUPS = ("g", "h")
NAMESPACE = "torture"


def _settings(**given: object) -> QueueSettings:
    usual = {
        "lease_seconds": LEASE_SECONDS, "max_attempts": 4, "initial_backoff_ms": 10, "max_backoff_ms": 50,
        "dead_letter_queue": None,
    }  # fmt: skip
    return QueueSettings(**{**usual, **given})  # type: ignore[arg-type] # checked by the struct itself


KINDS: dict[str, QueueSettings] = {
    "keyed": _settings(namespace=NAMESPACE),
    "loose": _settings(ordering=Ordering.UNORDERED, namespace=NAMESPACE),
    "single": _settings(ordering=Ordering.FIFO),
    "moved": _settings(max_attempts=0),
    "strewn": _settings(ordering=Ordering.UNORDERED, max_attempts=0),
    "remade": _settings(max_attempts=0),
    "delayed": _settings(delayed_processing_seconds=0.2),
    "windowed": _settings(window_buffer_seconds=0.1),
    "brief": _settings(max_wait_seconds=2.0),
    "aging": _settings(max_age_seconds=2.0),
    "swept": _settings(completed_retention_seconds=0.5),
    "full": _settings(max_depth=60),
}
"""By name: ``full`` has room for the largest push when it is empty, ``moved`` and ``strewn`` are for seeks, clears and deletions, ``remade`` is deleted and made again."""


class RoundQueue:
    """One queue of a round. A queue that is deleted and made again has several lives, and each its own key in the history.

    Nobody calls while it is deleted: seqs begin again with each life, and a call that overlaps would be of either.
    """

    def __init__(self, kind: str, name: str) -> None:
        self.kind = kind
        self.name = name
        self.settings = KINDS[kind]
        self.lives = 1
        self._callers = 0
        self._is_idle = asyncio.Event()
        self._is_idle.set()
        self._remaking = asyncio.Lock()

    @property
    def key(self) -> QueueKey:
        return QueueKey(self.name if self.lives == 1 else f"{self.name}#{self.lives}")

    @property
    def keys(self) -> list[QueueKey]:
        """The keys of all its lives."""
        return [QueueKey(self.name), *(QueueKey(f"{self.name}#{life}") for life in range(2, self.lives + 1))]

    @asynccontextmanager
    async def calling(self) -> AsyncIterator[QueueKey]:
        """For a call on the queue, in the life that it has now."""
        async with self._remaking:
            self._callers += 1
            self._is_idle.clear()
        try:
            yield self.key
        finally:
            self._callers -= 1
            if self._callers == 0:
                self._is_idle.set()

    @asynccontextmanager
    async def remaking(self) -> AsyncIterator[QueueKey]:
        """For the deletion: nobody else calls. The next life begins afterwards."""
        async with self._remaking:
            await self._is_idle.wait()
            yield self.key
            self.lives += 1


class Queues(Struct):
    """The queues of one round by kind."""

    of_kind: dict[str, RoundQueue]

    @classmethod
    def of_round(cls, number: int) -> Queues:
        return cls({kind: RoundQueue(kind, f"round{number}-{kind}") for kind in KINDS})

    def key_of(self, name: str) -> QueueKey:
        """The key of the queue that the server calls so, in its present life."""
        return self.of_kind[name.partition("-")[2]].key

    def settings(self) -> dict[QueueKey, QueueSettings]:
        """The settings of all queues, for the history."""
        return {key: queue.settings for queue in self.of_kind.values() for key in queue.keys}
