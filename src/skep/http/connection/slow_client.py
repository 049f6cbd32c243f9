"""A client that takes its answer more slowly than it is made: whoever writes to it waits, and it is cut off when it takes next to nothing."""

from __future__ import annotations

import asyncio

import structlog

from skep.engine.answers import Room
from skep.http.connection.timers import Deadline
from skep.http.connection.unsent import UnsentAnswers

READER_BYTES = 64 * 1024
"""A client takes at least this much of its answer in every `reader_seconds`."""

log = structlog.get_logger("skep.http")


class SlowClient:
    """One connection's client, as far as it takes answers."""

    __slots__ = ("_deadline", "_loop", "_room", "_seconds", "_taken", "_transport", "_unread_bytes", "_unsent")

    def __init__(
        self,
        transport: asyncio.Transport,
        loop: asyncio.AbstractEventLoop,
        reader_seconds: float,
        unsent: UnsentAnswers,
    ) -> None:
        self._transport = transport
        self._loop = loop
        self._seconds = reader_seconds
        self._unsent = unsent
        self._deadline = Deadline(loop)
        self._unread_bytes = 0
        self._room: Room | None = None
        self._taken: asyncio.Future[None] | None = None

    @property
    def is_watched(self) -> bool:
        """Whether it must take some of its answer in time."""
        return self._deadline.handle is not None

    @property
    def unsent_bytes(self) -> int:
        """What it has not taken of its answer."""
        return self._transport.get_write_buffer_size()

    def fall_behind(self) -> None:
        """It takes its answer more slowly than it is made: watch it."""
        if self._deadline.handle is None:
            self._watch()
        self._unsent.hold(self)

    def catch_up(self) -> None:
        """It has taken most of it, or has gone."""
        self._deadline.stop()
        self._unsent.let_go(self)
        if self._room is not None:
            room, self._room = self._room, None
            room.let_go()
        if self._taken is not None and not self._taken.done():
            self._taken.set_result(None)

    async def wait(self) -> None:
        """Wait until it has caught up; one at a time writes to it."""
        assert self._taken is None, "one at a time writes"
        self._taken = self._loop.create_future()
        try:
            await self._taken
        finally:
            self._taken = None

    def hold_until_taken(self, room: Room) -> None:
        """Hold the room of an answer until it has caught up."""
        self._room = room
        room.read_by(self)

    def watch_end(self) -> None:
        """The connection closes once the last of its answer is taken, which the client must do in time as well."""
        if self._deadline.handle is None and self.unsent_bytes:
            self._watch()

    def _watch(self) -> None:
        self._unread_bytes = self.unsent_bytes
        self._deadline.set(self._seconds, self._look)

    def _look(self) -> None:
        left = self.unsent_bytes
        # More than before means that another piece was added, which happens only after some was taken.
        if left > self._unread_bytes or left <= self._unread_bytes - READER_BYTES:
            self._watch()
        else:
            self.cut_off()

    def cut_off(self) -> None:
        """It did not take its answer in time, or others need the room."""
        log.info("a client that did not take its answer was cut off", unread_bytes=self.unsent_bytes)
        self._transport.abort()
