"""What the loader needs of a system: lines, each a connection that pushes, pops and acks; and the sockets below them.

A line speaks its system's own protocol and no more of it than the benchmark needs. Libraries would do the rest as well, at the
price of an object per message: then the loader, and not the system, would be what is measured.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Protocol, Self, TypeVar, cast

from msgspec import Struct

T = TypeVar("T")

DIGITS = 10
NUMBER = b'{"n":"%010d","x":"'
"""How a message begins: by its number all are known again, so a lost one is found, and one that comes twice."""


class Way(Struct, frozen=True):
    """Where a line leads: a queue of a system, how many messages go at once, and how large they are.

    ``pids`` are the system's processes, whose CPU time is told.
    """

    protocol: str
    address: str
    queue: str
    batch: int
    size: int
    pids: tuple[int, ...]

    def with_batch(self, batch: int) -> Way:
        """The same queue in other batches."""
        return Way(self.protocol, self.address, self.queue, batch, self.size, self.pids)


class Line(Protocol):
    """One connection of the loader."""

    @classmethod
    async def open(cls, way: Way) -> Self:
        """Connect."""

    async def prepare(self) -> None:
        """Make the queue. Called once, by one line, before all else."""

    async def push(self, first: int) -> None:
        """Push a batch of messages that are numbered from ``first``; return when the system said that they are on disk."""

    async def pop(self) -> list[int]:
        """The numbers of some messages, at most a batch; it waits when there are none, and may return none after a while."""

    async def ack(self) -> None:
        """Finish what was popped last."""

    async def drop(self) -> None:
        """Remove the queue and all that is in it."""

    async def close(self) -> None:
        """Disconnect."""


def template(size: int) -> bytes:
    """A JSON text of ``size`` bytes with a place for the message's number (``%010d``)."""
    rest = size - len(NUMBER % 0) - len(b'"}')
    return NUMBER + b"y" * rest + b'"}'


def number_of(payload: bytes | str) -> int:
    """The number of a message; some systems write JSON anew, with a space after the colon."""
    start = payload.index(b'"', 4) if isinstance(payload, bytes) else payload.index('"', 4)
    return int(payload[start + 1 : start + 1 + DIGITS])


class Wire(asyncio.Protocol):
    """A socket: bytes go out, and ``take`` makes an answer of those that came, once they are all there."""

    def __init__(self) -> None:
        self._received = bytearray()
        self._take: Callable[[bytearray], object] | None = None
        self._answer: asyncio.Future[object] | None = None
        self._transport: asyncio.Transport | None = None

    @classmethod
    async def to(cls, address: str) -> Wire:
        """Connect to ``host:port``."""
        host, _, port = address.rpartition(":")
        _, wire = await asyncio.get_running_loop().create_connection(cls, host, int(port))
        return wire

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is one in all but name

    def send(self, data: bytes) -> None:
        """Send without waiting for an answer."""
        assert self._transport is not None
        self._transport.write(data)

    async def ask(self, request: bytes, take: Callable[[bytearray], T | None]) -> T:
        """Send, and wait until ``take`` finds its answer, which it removes from the bytes that came."""
        answer = self._answer = asyncio.get_running_loop().create_future()
        self._take = take
        if request:
            self.send(request)
        if self._received:
            self._look()
        return cast(T, await answer)

    def data_received(self, data: bytes) -> None:
        self._received += data
        if self._answer is not None:
            self._look()

    def _look(self) -> None:
        assert self._answer is not None
        assert self._take is not None
        if self._answer.done():  # who asked was sent home
            return
        try:
            found = self._take(self._received)
        except Exception as error:
            self._answer.set_exception(error)
            return
        if found is not None:
            self._answer.set_result(found)
            self._answer = None

    def connection_lost(self, exc: Exception | None) -> None:
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(exc or ConnectionError("the system closed the connection"))

    def close(self) -> None:
        """Disconnect."""
        if self._transport is not None:
            self._transport.close()
