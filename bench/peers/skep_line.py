"""Skep itself, over HTTP/1.1 as any client speaks it, without the client's own work."""

from __future__ import annotations

from typing import Self

import msgspec

from bench.apart import taken_answer
from bench.peers.lines import Way, Wire, number_of, template
from bench.scripts import expect, request

PARTITIONS = 16
NO_CONTENT = 204
TRANSACTION_ID = "01a1de02-7b1f-7061-b55a-48%010d"


def partition_of(number: int) -> str:
    """The partition of a message."""
    return f"customer-{number % PARTITIONS:06d}"


class _Message(msgspec.Struct, gc=False):
    leaseId: str  # noqa: N815 - as it is on the wire
    payload: msgspec.Raw


class _Popped(msgspec.Struct, gc=False):
    messages: list[_Message]


_popped = msgspec.json.Decoder(_Popped).decode


class SkepLine:
    """A connection to a Skep server."""

    def __init__(self, wire: Wire, way: Way) -> None:
        self._wire = wire
        self._way = way
        self._pushes = [self._push_from(first) for first in range(PARTITIONS)]
        self._pop_path = f"/api/v1/pop/queue/{way.queue}?batch={way.batch}&wait=true"
        self._pop = request("POST", self._pop_path)
        self._popped: list[_Message] = []
        self._acks: list[dict[str, str]] = []

    @classmethod
    async def open(cls, way: Way) -> Self:
        return cls(await Wire.to(way.address), way)

    def _push_from(self, first: int) -> bytes:
        """The request that pushes messages from this number on, or from one that falls to the same partition."""
        items = [self.item(number) for number in range(first, first + self._way.batch)]
        body = msgspec.json.encode({"items": items})
        filled = body % self.numbers(0)
        return request("POST", "/api/v1/push", filled).removesuffix(filled) + body

    def item(self, number: int) -> dict[str, object]:
        """A message of a push, with a place for each of its numbers. Its own decides the partition, also of single messages."""
        payload = msgspec.Raw(template(self._way.size))
        return {"queue": self._way.queue, "partition": partition_of(number), "payload": payload}

    def numbers(self, first: int) -> tuple[int, ...]:
        """What goes into the places of a push, in their order."""
        return tuple(range(first, first + self._way.batch))

    async def prepare(self) -> None:
        settings = {"queue": self._way.queue, "settings": {}}
        asked = request("POST", "/api/v1/configure", msgspec.json.encode(settings))
        expect(200, *await self._wire.ask(asked, taken_answer))

    async def push(self, first: int) -> None:
        expect(201, *await self._wire.ask(self._pushes[first % PARTITIONS] % self.numbers(first), taken_answer))

    async def pop(self) -> list[int]:
        asked = self._pop
        if self._acks:
            asked = request("POST", self._pop_path, msgspec.json.encode({"acknowledgments": self._acks}))
            self._acks = []
        status, body = await self._wire.ask(asked, taken_answer)
        if status == NO_CONTENT:
            return []
        expect(200, status, body)
        self._popped = _popped(body).messages
        return [number_of(bytes(message.payload)) for message in self._popped]

    async def ack(self) -> None:
        """The next pop takes the acks along: the server commits them at once, and answers both together."""
        self._acks = [{"leaseId": lease} for lease in dict.fromkeys(message.leaseId for message in self._popped)]

    async def drop(self) -> None:
        """Send the last acks. What is settled is retention's, as in production."""
        if self._acks:
            body = msgspec.json.encode({"acknowledgments": self._acks})
            expect(200, *await self._wire.ask(request("POST", "/api/v1/ack/batch", body), taken_answer))
            self._acks = []

    async def close(self) -> None:
        self._wire.close()


class SkepLineWithIds(SkepLine):
    """The same with a transaction id for each message, as the Python client sends it."""

    def item(self, number: int) -> dict[str, object]:
        return {"transactionId": TRANSACTION_ID, **super().item(number)}

    def numbers(self, first: int) -> tuple[int, ...]:
        return tuple(number for number in super().numbers(first) for _ in ("transactionId", "payload"))
