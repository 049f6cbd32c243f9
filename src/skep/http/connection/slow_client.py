"""Slow clients (backpressure): the writer waits for a client that reads slowly; a client that reads next to nothing is cut off."""

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
    """How fast the client of one connection reads its answers."""

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
        """Whether the client must read some of its answer in time."""
        return self._deadline.handle is not None

    @property
    def unsent_bytes(self) -> int:
        """The bytes that the client has not read yet."""
        return self._transport.get_write_buffer_size()

    def fall_behind(self) -> None:
        """The client reads more slowly than the answer is made: watch it."""
        if self._deadline.handle is None:
            self._watch()
        self._unsent.hold(self)

    def catch_up(self) -> None:
        """The client has read most of the answer, or has gone."""
        self._deadline.stop()
        self._unsent.let_go(self)
        if self._room is not None:
            room, self._room = self._room, None
            room.let_go()
        if self._taken is not None and not self._taken.done():
            self._taken.set_result(None)

    async def wait(self) -> None:
        """Wait until the client has caught up; one writer at a time."""
        assert self._taken is None, "one at a time writes"
        self._taken = self._loop.create_future()
        try:
            await self._taken
        finally:
            self._taken = None

    def hold_until_taken(self, room: Room) -> None:
        """Keep the reserved memory of an answer until the client has caught up."""
        self._room = room
        room.read_by(self)

    def watch_end(self) -> None:
        """Watch the end of a connection: it closes once the client has read its last answer, also within the time."""
        if self._deadline.handle is None and self.unsent_bytes:
            self._watch()

    def _watch(self) -> None:
        self._unread_bytes = self.unsent_bytes
        self._deadline.set(self._seconds, self._look)

    def _look(self) -> None:
        left = self.unsent_bytes
        # More bytes than before mean that another piece was added, which happens only after the client read some.
        if left > self._unread_bytes or left <= self._unread_bytes - READER_BYTES:
            self._watch()
        else:
            self.cut_off()

    def cut_off(self) -> None:
        """Drop the client: it did not read its answer in time, or others need the memory."""
        log.info("a client that did not take its answer was cut off", unread_bytes=self.unsent_bytes)
        self._transport.abort()
