"""NATS JetStream, in the NATS protocol: publishes that the stream answers, a shared pull consumer, an ack per message.

A pull asks for a batch; a pop takes what has come of it, so its batches may be smaller.
"""

from __future__ import annotations

import re
from itertools import count
from typing import Any, NamedTuple, Self

import msgspec

from bench.peers.lines import Way, Wire, number_of, template

CONSUMER = "bench"
PULL_NANOSECONDS = 1_000_000_000
MOST_UNACKED = 100_000
CONNECT = b'CONNECT {"verbose":false,"pedantic":false,"headers":true,"no_responders":true}\r\nPING\r\n'
HEAD = re.compile(
    rb"(?:MSG (\S+) \S+ (?:(\S+) )?(\d+)|HMSG (\S+) \S+ (?:(\S+) )?(\d+) (\d+)|PING|PONG|\+OK|INFO [^\r]*)\r\n"
)
_inboxes = count(1)


class Message(NamedTuple):
    """A message: where an answer or an ack goes, and what it says. A status (no messages, time over) has none of both."""

    reply: bytes
    payload: bytes


class NatsLine:
    """A connection to NATS."""

    def __init__(self, wire: Wire, way: Way) -> None:
        self._wire = wire
        self._way = way
        self._inbox = f"_INBOX.{next(_inboxes)}.{id(self)}"
        message = template(way.size)
        self._push = (f"PUB {way.queue} {self._inbox} {way.size}\r\n".encode() + message + b"\r\n") * way.batch
        body = msgspec.json.encode({"batch": way.batch, "expires": PULL_NANOSECONDS})
        self._pull = publish(f"$JS.API.CONSUMER.MSG.NEXT.{way.queue}.{CONSUMER}", body, self._inbox)
        self._answers = 0
        self._pulled = 0
        self._replies: list[bytes] = []

    @classmethod
    async def open(cls, way: Way) -> Self:
        wire = await Wire.to(way.address)
        line = cls(wire, way)
        await wire.ask(CONNECT, lambda received: take(received, wire).ponged or None)
        wire.send(f"SUB {line._inbox} 1\r\n".encode())
        return line

    async def prepare(self) -> None:
        queue = self._way.queue
        await self.call(f"STREAM.CREATE.{queue}", {"name": queue, "subjects": [queue], "storage": "file"})
        consumer = {"durable_name": CONSUMER, "ack_policy": "explicit", "max_ack_pending": MOST_UNACKED}
        await self.call(f"CONSUMER.DURABLE.CREATE.{queue}.{CONSUMER}", {"stream_name": queue, "config": consumer})

    async def call(self, subject: str, body: dict[str, Any]) -> None:
        """Call JetStream's own interface."""
        asked = publish(f"$JS.API.{subject}", msgspec.json.encode(body), self._inbox)
        refuse(await self._wire.ask(asked, lambda received: take(received, self._wire).messages or None))

    async def push(self, first: int) -> None:
        self._answers = 0
        await self._wire.ask(self._push % tuple(range(first, first + self._way.batch)), self._take_answers)

    def _take_answers(self, received: bytearray) -> bool | None:
        answers = take(received, self._wire).messages
        refuse(answers)
        self._answers += len(answers)
        return True if self._answers >= self._way.batch else None

    async def pop(self) -> list[int]:
        asked = b""
        if self._pulled <= 0:
            asked, self._pulled = self._pull, self._way.batch
        found = await self._wire.ask(asked, lambda received: take(received, self._wire).messages or None)
        came = [one for one in found if one.reply]
        self._pulled = self._pulled - len(came) if len(came) == len(found) else 0  # a status ends the pull
        self._replies = [one.reply for one in came]
        return [number_of(one.payload) for one in came]

    async def ack(self) -> None:
        self._wire.send(b"".join([b"PUB %s 4\r\n+ACK\r\n" % reply for reply in self._replies]))

    async def drop(self) -> None:
        line = await NatsLine.open(self._way)  # this one may still get messages
        await line.call(f"STREAM.DELETE.{self._way.queue}", {})
        await line.close()

    async def close(self) -> None:
        self._wire.close()


class Taken(NamedTuple):
    """What was taken of the bytes: messages, and whether a PONG was among them."""

    messages: list[Message]
    ponged: bool


def take(received: bytearray, wire: Wire) -> Taken:
    """Everything that is there as a whole; a PING is answered."""
    found: list[Message] = []
    at, ponged = 0, False
    while (head := HEAD.match(received, at)) is not None:
        plain, length = head[1], int(head[3] or head[7] or 0)
        end = head.end() + (length + 2 if length or head[1] or head[4] else 0)
        if len(received) < end:
            break
        if plain:
            found.append(Message(head[2] or b"", bytes(received[head.end() : end - 2])))
        elif head[4]:
            found.append(Message(b"", bytes(received[head.end() : end - 2])))
        elif head[0] == b"PING\r\n":
            wire.send(b"PONG\r\n")
        ponged |= head[0] == b"PONG\r\n"
        at = end
    if received.startswith(b"-ERR", at):
        raise RuntimeError(bytes(received[at : at + 200]).decode(errors="replace"))
    del received[:at]
    return Taken(found, ponged)


def publish(subject: str, payload: bytes, reply: str) -> bytes:
    """A message to a subject that wants an answer."""
    return f"PUB {subject} {reply} {len(payload)}\r\n".encode() + payload + b"\r\n"


def refuse(answers: list[Message]) -> None:
    """Raise when an answer is an error, or that nobody answers."""
    for answer in answers:
        if b'"error"' in answer.payload or answer.payload.startswith(b"NATS/1.0"):
            raise RuntimeError(answer.payload.decode(errors="replace"))
