"""The queues of a round: one of each kind, so that every ordering and every setting that moves messages is under load."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import msgspec
from msgspec import Struct, structs

from skep.model import Ordering, QueueKey, QueueSettings

LEASE_SECONDS = 1.0
GROUPS = ("g", "h")
NAMESPACE = "torture"
AUTO_ACKED = ("loose", "swept")


def _settings(**given: object) -> QueueSettings:
    usual = {
        "lease_seconds": LEASE_SECONDS, "max_attempts": 4, "initial_backoff_ms": 10, "max_backoff_ms": 50,
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
    "sealed": _settings(encryption_enabled=True),
    "turned": _settings(),
    "typed": _settings(),
    "hooked": _settings(),
}
"""By name: ``full`` has room for the largest push when it is empty, ``moved`` and ``strewn`` are for seeks, clears and deletions.

``remade`` is deleted and made again, ``turned`` gets another ordering, and ``sealed`` is encrypted and gets new keys.
``typed`` and ``hooked`` are of the round's app.
"""
SEVERAL_LIVES = ("remade", "turned")
WORKED: dict[str, QueueSettings] = {
    "counted": _settings(max_attempts=0),
    "sent": _settings(max_attempts=0),
    "told": _settings(),
}
"""The queues of the app that workers consume, and the one that gets their follow-ups."""


STREAMED: dict[str, QueueSettings] = {"streamed": _settings(), "copies": _settings()}
"""The queue that a Spark job reads, and the one that it writes to; only rounds with Spark have them."""


class RoundQueue:
    """One queue of a round. A queue that is made again, or gets another ordering, has several lives, and each its own key in the history.

    Nobody calls between two lives: a call that overlaps would be of either.
    """

    def __init__(self, kind: str, name: str, bulk: int = 1) -> None:
        self.kind = kind
        self.name = name
        usual = (KINDS | WORKED | STREAMED)[kind]
        self.lives = [structs.replace(usual, max_depth=bulk * usual.max_depth)]
        """The settings of each life."""
        self.floor = 0
        """The last seq of the life before, in a log that goes on."""
        self._callers = 0
        self._is_idle = asyncio.Event()
        self._is_idle.set()
        self._remaking = asyncio.Lock()

    @property
    def settings(self) -> QueueSettings:
        return self.lives[-1]

    @property
    def key(self) -> QueueKey:
        return self.keys[-1]

    @property
    def keys(self) -> list[QueueKey]:
        """The keys of all its lives."""
        return [QueueKey(self.name), *(QueueKey(f"{self.name}#{life}") for life in range(2, len(self.lives) + 1))]

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
    async def alone(self) -> AsyncIterator[QueueKey]:
        """For the end of a life: nobody else calls."""
        async with self._remaking:
            await self._is_idle.wait()
            yield self.key

    def begin_life(self, settings: QueueSettings, floor: int = 0) -> None:
        """Begin the next life, by who is alone with the queue."""
        self.lives.append(settings)
        self.floor = floor


class Queues(Struct):
    """The queues of one round by kind: those that load clients consume, those that workers do, and those of the Spark job."""

    number: int
    of_kind: dict[str, RoundQueue]
    worked: dict[str, RoundQueue]
    bulk: int = 1
    """How many times as large as usual batches are."""
    streamed: dict[str, RoundQueue] = {}

    @classmethod
    def of_round(
        cls, number: int, bulk: int = 1, *, is_shared: bool = False, may_lose: bool = False, has_spark: bool = False
    ) -> Queues:
        """``is_shared``: with other processes, which cannot agree on the lives of a queue.

        ``may_lose``: commits may be lost, with the end of a life among them, or the key of payloads that nobody can read then.
        """
        of_kind, worked, streamed = (
            {kind: RoundQueue(kind, f"round{number}-{kind}", bulk) for kind in kinds}
            for kinds in (KINDS, WORKED, STREAMED if has_spark else {})
        )
        left_out = {*(SEVERAL_LIVES if is_shared or may_lose else ()), *(("sealed",) if may_lose else ())}
        of_kind = {kind: queue for kind, queue in of_kind.items() if kind not in left_out}
        return cls(number, of_kind, worked, bulk, streamed)

    @property
    def all(self) -> list[RoundQueue]:
        return [*self.of_kind.values(), *self.worked.values(), *self.streamed.values()]

    def key_of(self, name: str) -> QueueKey:
        """The key of the queue that the server calls so, in its present life."""
        return self.of_kind[name.partition("-")[2]].key

    def settings(self) -> dict[QueueKey, QueueSettings]:
        """The settings of all queues, for the history."""
        return {key: settings for queue in self.all for key, settings in zip(queue.keys, queue.lives, strict=True)}


def payload_of(queue: QueueKey, name: str, partition: str) -> bytes:
    """The payload of a message, in the type of its queue; no other message has it."""
    match queue.name.partition("-")[2]:
        case "typed" | "sent":
            return f'{{"name":"{name}","number":1}}'.encode()
        case "hooked":
            return f'{{"payload":{{"name":"{name}"}}}}'.encode()
        case "counted":
            return f'{{"name":"{name}","account":"{queue.name}/{partition}"}}'.encode()
        case _:
            return f'"{name}"'.encode()


def name_in(payload: bytes) -> str:
    """The name that a payload of ``counted``, or of what follows from it, has."""
    name: str = msgspec.json.decode(payload)["name"]
    return name


def groups_of(queue: RoundQueue) -> tuple[str, ...]:
    """The groups that a queue has from the start."""
    return (*GROUPS, "auto") if queue.kind in AUTO_ACKED else GROUPS
