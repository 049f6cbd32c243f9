"""Frames on a local socket: a length, a number, a kind, and bytes. What is said in one pass of the event loop goes out in one write.

A number names a call, so that answers may come in any order. A frame that is longer than any call may be ends the connection.
"""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Callable
from typing import cast

HEADER = struct.Struct("<IIH")
"""The length of what follows it, the number of a call, and a kind: that of a verb, or one of those below."""
HELLO = 0xFFFF
"""The greeting of a connection: the verbs and structs that the other end knows."""
ANNOUNCE = 0xFFFE
"""Operations wait; no answer is expected."""
RESULT, FAILED, NEWS, OPERATIONS = range(4)
"""What the owner says: a result, an error, queues where something is ready, and that operations wait."""
FRAME_BYTES_MAX = 1 << 30

Received = Callable[[int, int, memoryview], None]


class BadFrameError(Exception):
    """The other end does not speak as it should."""


class Frames(asyncio.Protocol):
    """One end of a connection."""

    def __init__(self, received: Received, lost: Callable[[], None]) -> None:
        """``received`` gets number, kind and bytes, which are good until it returns; it raises `BadFrameError` to end the connection."""
        self._received = received
        self._lost = lost
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._begun = bytearray()
        self._missing = 0
        self._outgoing: list[bytes] = []

    @property
    def closed(self) -> bool:
        """Whether nothing can be said any more."""
        return self._transport is None or self._transport.is_closing()

    def send(self, number: int, kind: int, payload: bytes) -> None:
        """Say something, with all else that is said in this pass."""
        if not self._outgoing:
            self._loop.call_soon(self._flush)
        self._outgoing += (HEADER.pack(len(payload), number, kind), payload)

    def close(self) -> None:
        """Say what is left, and end the connection."""
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
        """Hand on all frames that are there as a whole; the bytes of one that is not."""
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
