"""A transport that ends a connection so that the client sees its answer.

To close a socket while the client still sends makes the kernel reset the connection, and the answer is often lost with it.
Here such a connection is finished instead: the answer goes out, then the end of the stream, and what still comes is dropped.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterable
from typing import Protocol

from skep.engine.answers import Room

Data = bytes | bytearray | memoryview
Write = Callable[[Data], None]
WriteLines = Callable[[Iterable[Data]], None]


class Closable(Protocol):
    """What the transport asks of the protocol that it serves."""

    lingering: bool
    is_lost: bool
    """Whether the connection is no more."""

    @property
    def is_unread(self) -> bool:
        """Whether the client is still sending."""

    def linger(self) -> None:
        """Finish, and wait a little."""

    def hold_until_taken(self, room: Room) -> bool:
        """Let the room of an answer go when the client has taken it, or has gone; False when there is nothing to wait for."""

    def closing(self) -> None:
        """The connection is being closed."""


class ClosingInOrder:
    """The part of `asyncio.Transport` that uvicorn uses, with another way to close."""

    def __init__(self, transport: asyncio.Transport, protocol: Closable) -> None:
        self._transport = transport
        self._protocol = protocol
        self._is_closed = False
        # Bound once: these are called for every request, and a method in between would cost more than it does.
        self.write: Write = transport.write
        self.writelines: WriteLines = transport.writelines
        self.pause_reading = transport.pause_reading
        self.resume_reading = transport.resume_reading
        self.get_extra_info = transport.get_extra_info
        self.get_write_buffer_size = transport.get_write_buffer_size
        self.abort = transport.abort

    def hold_until_taken(self, room: Room) -> bool:
        """Hold the room of what was written until the client has taken it; False when it has."""
        return self._protocol.hold_until_taken(room)

    def is_closing(self) -> bool:
        """Whether nothing more is to be written."""
        return self._protocol.lingering or self._transport.is_closing()

    @property
    def is_gone(self) -> bool:
        """Whether an answer that was just written reached nobody: the client had ended the connection, or had been refused already."""
        return self._protocol.is_lost or (self.is_closing() and not self._is_closed)

    def close(self) -> None:
        """Close when all is written; by way of `linger` when the client still sends."""
        if self.is_closing():
            return
        self._is_closed = True
        if self._protocol.is_unread:
            self._protocol.linger()
        else:
            self._transport.close()
            self._protocol.closing()

    def finish(self) -> None:
        """Write nothing after what was written already."""
        self.write = self.writelines = _dropped
        if not self._transport.is_closing():
            with contextlib.suppress(OSError):  # the client has gone in the same moment
                self._transport.write_eof()


def _dropped(data: Data | Iterable[Data]) -> None:
    """What is written after the end goes nowhere."""
