"""Keeping up with other servers: what changed elsewhere reaches the caches here within a second.

The store keeps changes in order, so a server that was cut off reads on where it was. It looks at everything anew when it was away
for so long that some have aged out, and when the store went back to an earlier state: a standby took over without the last commits,
or a backup was put back. Reading does not wait for a connection of the pool: however busy the store, this comes first.
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
    """Reads the changes of all servers, ours too, and hands them on."""

    def __init__(
        self,
        store: ServerVerbs,
        clock: Clock,
        every_seconds: float,
        on_event: Callable[[SystemEvent], None],
        on_gap: Callable[[], None],
    ) -> None:
        """``on_gap`` hears that changes were missed for good, or undone."""
        self._store = store
        self._clock = clock
        self._every = seconds(every_seconds)
        self._on_event = on_event
        self._on_gap = on_gap
        self._position: EventPosition | None = None
        self._cut_off = False
        self._task: asyncio.Task[None] | None = None

    async def note_position(self) -> None:
        """Begin with what changes from now on, before anything is loaded: what changes while it is loaded is heard of later."""
        self._position = (await self._store.system_events(None)).position

    def start(self) -> None:
        """Follow the changes since the position that was noted."""
        self._task = asyncio.create_task(self._follow())

    async def stop(self) -> None:
        """Follow no longer."""
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
                if not self._cut_off:  # said once
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
            # Before what is held is read anew: what changes from now on is heard of.
            self._position = found.position
            self._on_gap()
        self._position = found.position
        for event in found.events:
            self._on_event(event)
        return bool(found.events)
