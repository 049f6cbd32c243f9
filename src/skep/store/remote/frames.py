"""Frames on a local socket: a length, a number, a kind, and bytes. All frames of one pass of the event loop go out in one write.

A number identifies a call, so that answers may come in any order. A frame that is too long ends the connection.
"""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Callable
from typing import cast

HEADER = struct.Struct("<IIH")
"""The length of the bytes that follow, the number of a call, and a kind: the number of a verb, or one of the constants below."""
HELLO = 0xFFFF
"""The first frame of a connection: a worker's `VERSION`, which must equal the owner's."""
ANNOUNCE = 0xFFFE
"""A worker announces that operations wait; no answer is expected."""
RESULT, FAILED, NEWS, OPERATIONS = range(4)
"""The kinds of the owner's frames: a result, an error, queues with ready messages, and the news that operations wait."""
FRAME_BYTES_MAX = 1 << 30

Received = Callable[[int, int, memoryview], None]


class BadFrameError(Exception):
    """The other end broke the protocol."""


class Frames(asyncio.Protocol):
    """One end of a connection."""

    def __init__(self, received: Received, lost: Callable[[], None]) -> None:
        """``received`` gets number, kind and bytes, which are valid until it returns; it raises `BadFrameError` to end the connection."""
        self._received = received
        self._lost = lost
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._begun = bytearray()
        self._missing = 0
        self._outgoing: list[bytes] = []

    @property
    def closed(self) -> bool:
        """Whether no frame can be sent any more."""
        return self._transport is None or self._transport.is_closing()

    def send(self, number: int, kind: int, payload: bytes) -> None:
        """Send a frame, in one write with the others of this pass."""
        if not self._outgoing:
            self._loop.call_soon(self._flush)
        self._outgoing += (HEADER.pack(len(payload), number, kind), payload)

    def close(self) -> None:
        """Send the remaining frames, and end the connection."""
        self._flush()
        if self._transport is not None:
            self._transport.close()

    def _flush(self) -> None:
        outgoing, self._outgoing = self._outgoing, []
        if outgoing and self._transport is not None and not self._transport.is_closing():
            self._transport.write(b"".join(outgoing))

    # called by the event loop

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - why does not matter
        self._transport = None
        self._outgoing.clear()
        self._lost()

    def data_received(self, data: bytes) -> None:
        if self._begun:
            self._begun += data
            if len(data) < self._missing:
                self._missing -= len(data)
                return
            data = bytes(self._begun)
            self._begun.clear()
        try:
            rest = self._read(memoryview(data))
        except BadFrameError:
            if self._transport is not None:
                self._transport.abort()
            return
        if rest:
            self._begun += rest

    def _read(self, data: memoryview) -> memoryview:
        """Hand on all complete frames; returns the bytes of an incomplete one."""
        at = 0
        while len(data) - at >= HEADER.size:
            length, number, kind = HEADER.unpack_from(data, at)
            if length > FRAME_BYTES_MAX:
                raise BadFrameError
            begin, end = at + HEADER.size, at + HEADER.size + length
            if end > len(data):
                self._missing = end - len(data)
                return data[at:]
            self._received(number, kind, data[begin:end])
            at = end
        self._missing = HEADER.size - (len(data) - at)
        return data[at:]
