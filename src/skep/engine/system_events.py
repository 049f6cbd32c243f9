"""Following other servers: their changes reach the caches of this server within a second.

The store keeps changes in order, so a server that was cut off reads on from its position. It reads everything again when changes have
aged out meanwhile, or when the store went back to an earlier state (a failover without the last commits, or a restored backup).
Reading uses a connection outside the pool, so it works however busy the store is.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import structlog

from skep.clock import Clock, Instant, seconds
from skep.errors import SkepError
from skep.model.system_event import EventPosition, SystemEvent
from skep.store.protocol.servers import ServerVerbs

log = structlog.get_logger("skep.engine")


class Follower:
    """Reads the changes of all servers, including this one, and hands them on."""

    def __init__(
        self,
        store: ServerVerbs,
        clock: Clock,
        every_seconds: float,
        on_event: Callable[[SystemEvent], None],
        on_gap: Callable[[], None],
    ) -> None:
        """``on_gap`` is called when changes were missed for good, or undone."""
        self._store = store
        self._clock = clock
        self._every = seconds(every_seconds)
        self._on_event = on_event
        self._on_gap = on_gap
        self._position: EventPosition | None = None
        self._cut_off = False
        self._task: asyncio.Task[None] | None = None

    async def note_position(self) -> None:
        """Note the present position. Call this before anything is loaded, so that changes during the load are read later."""
        self._position = (await self._store.system_events(None)).position

    def start(self) -> None:
        """Follow the changes since the noted position."""
        self._task = asyncio.create_task(self._follow())

    async def stop(self) -> None:
        """Stop following."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
            self._task = None

    async def _follow(self) -> None:
        while True:
            await self._clock.sleep_until(Instant(self._clock.now() + self._every))
            try:
                while await self._read():
                    pass
            except SkepError as error:
                if not self._cut_off:  # logged once
                    self._cut_off = True
                    log.warning("changes of other servers cannot be read", error=str(error))
            else:
                self._cut_off = False

    async def _read(self) -> bool:
        """Read a page; whether there may be more."""
        found = await self._store.system_events(self._position)
        if not found.complete:
            log.warning(
                "changes of other servers were missed, or the store went back to an earlier state; looking at everything anew",
                position=None if self._position is None else self._position.number,
                now_at=found.position.number,
                timeline=found.position.timeline,
            )
            # Set before the caches are read again, so that later changes are read, too.
            self._position = found.position
            self._on_gap()
        self._position = found.position
        for event in found.events:
            self._on_event(event)
        return bool(found.events)
