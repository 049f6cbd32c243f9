"""Changes that workers announce to each other. The owner keeps them while it lives; under a new owner each worker reads everything again."""

from __future__ import annotations

import secrets
from collections import deque

from skep.model import QueueKey
from skep.model.system_event import EventPosition, SystemEvent, SystemEventKind, SystemEvents
from skep.store.protocol import Store

KEPT = 10_000
"""How many changes are kept. Workers read every second; a worker that missed more reads everything again."""


class Events:
    """The latest changes, numbered from 1 on."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._log = secrets.token_hex(8)
        """Identifies this owner, as another owner gave the same numbers to other changes."""
        self._last = 0
        self._kept: deque[tuple[SystemEventKind, QueueKey]] = deque(maxlen=KEPT)

    def note(self, kind: SystemEventKind, key: QueueKey) -> None:
        """Note a change."""
        self._last += 1
        self._kept.append((kind, key))

    async def after(self, position: EventPosition | None) -> SystemEvents:
        """As `Store.system_events`."""
        here = EventPosition(self._last, mark=self._log)
        if position is None:
            return SystemEvents(here, [])
        missed = self._last - position.number
        if position.mark != self._log or not 0 <= missed <= len(self._kept):
            return SystemEvents(here, [], complete=False)
        fresh = list(self._kept)[len(self._kept) - missed :]
        return SystemEvents(here, [await self._event(kind, key) for kind, key in fresh])

    async def _event(self, kind: SystemEventKind, key: QueueKey) -> SystemEvent:
        queue = await self._store.get_queue(key) if kind is SystemEventKind.QUEUE else None
        return SystemEvent(kind, key, queue)
