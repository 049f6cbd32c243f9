"""Redis streams, in RESP: XADD, XREADGROUP and XACK of one consumer group."""

from __future__ import annotations

import re
from typing import Self

from bench.peers.lines import Way, Wire, number_of, template

GROUP = "bench"
FIELD = "m"
WAIT_MS = 1_000
CRLF = b"\r\n"


class RedisLine:
    """A connection to Redis."""

    def __init__(self, wire: Wire, way: Way) -> None:
        self._wire = wire
        self._way = way
        message = template(way.size)
        self._push = command("XADD", way.queue, "*", FIELD, message % 0).replace(message % 0, message) * way.batch
        self._pop = command(
            "XREADGROUP", "GROUP", GROUP, f"c{id(self)}", "COUNT", str(way.batch), "BLOCK", str(WAIT_MS),
            "STREAMS", way.queue, ">",
        )  # fmt: skip
        self._entry = re.compile(
            rb"\*2\r\n\$\d+\r\n(\d+-\d+)\r\n\*2\r\n\$1\r\nm\r\n\$%d\r\n(.{%d})\r\n" % (way.size, way.size), re.DOTALL
        )
        self._popped: list[bytes] = []

    @classmethod
    async def open(cls, way: Way) -> Self:
        return cls(await Wire.to(way.address), way)

    async def prepare(self) -> None:
        await self._wire.ask(command("XGROUP", "CREATE", self._way.queue, GROUP, "0", "MKSTREAM"), one_line)

    async def push(self, first: int) -> None:
        numbers = tuple(range(first, first + self._way.batch))
        await self._wire.ask(self._push % numbers, self._take_ids)

    def _take_ids(self, received: bytearray) -> bool | None:
        """The ids of a push, two lines each."""
        if received[:1] == b"-":
            raise RuntimeError(bytes(received[:200]).decode(errors="replace"))
        if received.count(CRLF) < 2 * self._way.batch:
            return None
        received.clear()
        return True

    async def pop(self) -> list[int]:
        found = await self._wire.ask(self._pop, self.take_entries)
        self._popped = [entry for entry, _ in found]
        return [number_of(payload) for _, payload in found]

    def take_entries(self, received: bytearray) -> list[tuple[bytes, bytes]] | None:
        """The entries of the one stream that was asked for: [[name, [[id, [field, value]], …]]]."""
        if received == b"*-1\r\n":
            received.clear()
            return []
        if received[:1] == b"-":
            raise RuntimeError(bytes(received[:200]).decode(errors="replace"))
        head = re.match(rb"\*1\r\n\*2\r\n\$\d+\r\n[^\r]*\r\n\*(\d+)\r\n", received)
        if head is None or len(received) < head.end() + int(head[1]) * self._way.size:
            return None
        found: list[tuple[bytes, bytes]] = self._entry.findall(received, head.end())
        if len(found) < int(head[1]):
            return None
        received.clear()
        return found

    async def ack(self) -> None:
        await self._wire.ask(command("XACK", self._way.queue, GROUP, *self._popped), one_line)

    async def drop(self) -> None:
        await self._wire.ask(command("DEL", self._way.queue), one_line)

    async def close(self) -> None:
        self._wire.close()


def command(*words: str | bytes) -> bytes:
    """A command in RESP."""
    parts = [b"*%d\r\n" % len(words)]
    for word in words:
        data = word.encode() if isinstance(word, str) else word
        parts.append(b"$%d\r\n%s\r\n" % (len(data), data))
    return b"".join(parts)


def one_line(received: bytearray) -> bytes | None:
    """An answer of one line: +OK, :1 or an error, which is raised."""
    if not received.endswith(CRLF):
        return None
    line = bytes(received[:-2])
    received.clear()
    if line.startswith(b"-"):
        raise RuntimeError(line.decode(errors="replace"))
    return line
