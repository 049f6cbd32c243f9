"""The lives of queues that are deleted and made again. Seqs begin anew with each life, so each has a key of its own in the history.

Nobody calls while a queue is deleted: a call that overlaps would be of either life.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

from msgspec import Struct, structs

from skep.model import QueueKey, QueueSettings

Names = dict[QueueKey, QueueKey]
"""The keys that queues have in the history, where they are others than their own."""


class Lives:
    """How often each queue was made, and who calls at present."""

    def __init__(self) -> None:
        self._counts: dict[QueueKey, int] = {}
        self._callers = 0
        self._is_idle = asyncio.Event()
        self._is_open = asyncio.Event()
        self._is_open.set()
        self.names: Names = {}

    @asynccontextmanager
    async def calling(self) -> AsyncIterator[None]:
        """For a call on any queue."""
        while not self._is_open.is_set():
            await self._is_open.wait()
        self._callers += 1
        try:
            yield
        finally:
            self._callers -= 1
            if not self._callers:
                self._is_idle.set()

    @asynccontextmanager
    async def alone(self) -> AsyncIterator[None]:
        """For a deletion: nobody else calls."""
        self._is_open.clear()
        try:
            while self._callers:
                self._is_idle.clear()
                await self._is_idle.wait()
            yield
        finally:
            self._is_open.set()

    def begin(self, queue: QueueKey) -> None:
        """The queue has been deleted, and its next life begins."""
        self._counts[queue] = count = self._counts.get(queue, 1) + 1
        self.names = self.names | {queue: _name(queue, count)}

    def settings(self, queues: dict[QueueKey, QueueSettings]) -> Iterator[tuple[QueueKey, QueueSettings]]:
        """The settings of all queues, by the keys of all their lives."""
        for queue, settings in queues.items():
            yield queue, settings
            for count in range(2, self._counts.get(queue, 1) + 1):
                yield _name(queue, count), settings


def _name(queue: QueueKey, count: int) -> QueueKey:
    return QueueKey(f"{queue.name}#{count}", queue.tenant)


def renamed(value: Any, names: Names) -> Any:
    """A request or an answer with these keys instead of the queues' own."""
    if not names:
        return value
    if isinstance(value, QueueKey):
        return names.get(value, value)
    if isinstance(value, list | tuple):
        return type(value)([renamed(one, names) for one in value])
    if isinstance(value, Struct):
        changed = {name: renamed(getattr(value, name), names) for name in value.__struct_fields__}
        return structs.replace(value, **changed)
    return value
