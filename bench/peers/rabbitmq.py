"""RabbitMQ's quorum queues, in AMQP 0-9-1: publishes with confirms, a consumer with a prefetch of one batch, acks of all up to a tag.

A consumer gets what there is without asking; a pop takes what has come, so its batches may be smaller than the prefetch.
"""

from __future__ import annotations

import struct
from typing import NamedTuple, Self

from bench.peers.lines import Way, Wire, number_of, template

GREETING = b"AMQP\x00\x00\x09\x01"
METHOD, HEADER, BODY, END = 1, 2, 3, b"\xce"
HEAD = struct.Struct(">BHI")
PERSISTENT = struct.pack(">HB", 0x1000, 2)  # of all properties only the delivery mode, which is persistent
DURABLE = 2
NO_TABLE = struct.pack(">I", 0)
QUORUM = b"\x0cx-queue-typeS\x00\x00\x00\x06quorum"

START_OK, TUNE_OK, OPEN = (10, 11), (10, 31), (10, 40)
CLOSES = ((10, 50), (20, 40))
CHANNEL_OPEN, CONFIRM = (20, 10), (85, 10)
DECLARE, DELETE = (50, 10), (50, 40)
QOS, CONSUME, PUBLISH, DELIVER, ACK, NACK = (60, 10), (60, 20), (60, 40), (60, 60), (60, 80), (60, 120)


class Frame(NamedTuple):
    """A frame: its kind, the method that it is of, and what follows."""

    kind: int
    method: tuple[int, int]
    rest: bytes


class RabbitLine:
    """A connection to RabbitMQ with one channel."""

    def __init__(self, wire: Wire, way: Way) -> None:
        self._wire = wire
        self._way = way
        self._queue = short_text(way.queue)
        message = template(way.size)
        publish = method(1, PUBLISH, b"\x00\x00" + short_text("") + self._queue + b"\x00")
        header = frame(HEADER, 1, struct.pack(">HHQ", PUBLISH[0], 0, way.size) + PERSISTENT)
        self._push = (publish + header + frame(BODY, 1, message % 0).replace(message % 0, message)) * way.batch
        self._published = 0
        self._unconfirmed: set[int] = set()
        self._consuming = False
        self.last_tag = 0

    @classmethod
    async def open(cls, way: Way) -> Self:
        wire = await Wire.to(way.address)
        line = cls(wire, way)
        await wire.ask(GREETING, one_method)
        login = NO_TABLE + short_text("PLAIN") + long_text(b"\x00guest\x00guest") + short_text("en_US")
        await wire.ask(method(0, START_OK, login), one_method)
        wire.send(method(0, TUNE_OK, struct.pack(">HIH", 1, 131072, 0)))  # one channel, no heartbeats
        await wire.ask(method(0, OPEN, short_text("/") + short_text("") + b"\x00"), one_method)
        await line.call(CHANNEL_OPEN, short_text(""))
        await line.call(CONFIRM, b"\x00")
        return line

    async def call(self, what: tuple[int, int], arguments: bytes) -> None:
        """Call a method of the channel, and wait for its answer."""
        await self._wire.ask(method(1, what, arguments), one_method)

    async def prepare(self) -> None:
        arguments = b"\x00\x00" + self._queue + bytes([DURABLE]) + long_text(QUORUM)
        await self.call(DECLARE, arguments)

    async def push(self, first: int) -> None:
        batch = self._way.batch
        self._unconfirmed = set(range(self._published + 1, self._published + batch + 1))
        self._published += batch
        await self._wire.ask(self._push % tuple(range(first, first + batch)), self._take_confirms)

    def _take_confirms(self, received: bytearray) -> bool | None:
        for _, what, rest in frames(received):
            if what == NACK:
                raise RuntimeError("RabbitMQ refused a message")
            tag, multiple = struct.unpack_from(">QB", rest)
            self._unconfirmed = (
                {one for one in self._unconfirmed if one > tag} if multiple else self._unconfirmed - {tag}
            )
        return None if self._unconfirmed else True

    async def pop(self) -> list[int]:
        if not self._consuming:
            await self.call(QOS, struct.pack(">IHB", 0, self._way.batch, 0))
            await self.call(CONSUME, b"\x00\x00" + self._queue + short_text("") + b"\x00" + NO_TABLE)
            self._consuming = True
        return await self._wire.ask(b"", self.take_deliveries)

    def take_deliveries(self, received: bytearray) -> list[int] | None:
        """Messages that are there as a whole: a method, a header and a body each."""
        found = frames(received, whole_messages=True)
        for one in found:
            if one.kind == METHOD:
                self.last_tag = struct.unpack_from(">Q", one.rest, 1 + one.rest[0])[0]
        return [number_of(one.rest) for one in found if one.kind == BODY] or None

    async def ack(self) -> None:
        self._wire.send(method(1, ACK, struct.pack(">QB", self.last_tag, 1)))

    async def drop(self) -> None:
        line = await RabbitLine.open(self._way)  # this one may be a consumer, to which messages come at any time
        await line.call(DELETE, b"\x00\x00" + self._queue + b"\x00")
        await line.close()

    async def close(self) -> None:
        self._wire.close()


def frame(kind: int, channel: int, payload: bytes) -> bytes:
    """A frame as it goes over the wire."""
    return HEAD.pack(kind, channel, len(payload)) + payload + END


def method(channel: int, what: tuple[int, int], arguments: bytes) -> bytes:
    """The frame of a method call."""
    return frame(METHOD, channel, struct.pack(">HH", *what) + arguments)


def short_text(text: str) -> bytes:
    """A text of up to 255 bytes."""
    data = text.encode()
    return bytes([len(data)]) + data


def long_text(data: bytes) -> bytes:
    """A text, or a table, with its length."""
    return struct.pack(">I", len(data)) + data


def frames(received: bytearray, *, whole_messages: bool = False, most: int = 1 << 30) -> list[Frame]:
    """The frames that are there, which are taken out; with ``whole_messages`` only up to the last body."""
    found: list[Frame] = []
    at = taken = count = 0
    while len(received) >= at + HEAD.size and len(found) < most:
        kind, _, length = HEAD.unpack_from(received, at)
        if len(received) < (end := at + HEAD.size + length + 1):
            break
        found.append(parsed(kind, bytes(received[at + HEAD.size : end - 1])))
        at = end
        if kind == BODY or not whole_messages:
            taken, count = at, len(found)
    del received[:taken]
    return found[:count]


def parsed(kind: int, payload: bytes) -> Frame:
    """A frame by its kind; when the server closes, its reason is raised."""
    if kind != METHOD:
        return Frame(kind, (0, 0), payload)
    what = struct.unpack_from(">HH", payload)
    if what in CLOSES:
        raise RuntimeError(payload[7 : 7 + payload[6]].decode(errors="replace"))
    return Frame(kind, (what[0], what[1]), payload[4:])


def one_method(received: bytearray) -> Frame | None:
    """The answer to a call; what follows it, messages perhaps, stays."""
    found = frames(received, most=1)
    return found[0] if found else None
