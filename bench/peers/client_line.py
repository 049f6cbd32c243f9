"""The Python client as a line of the loader: what `SkepLine` does by hand, done with `skep.AsyncClient` as its users do."""

from __future__ import annotations

from typing import Self

import msgspec

from bench.peers.lines import Way, number_of, template
from bench.peers.skep_line import PARTITIONS, partition_of
from skep.client import AsyncClient, NewMessage
from skep.client.async_message import AsyncMessage

WAIT_SECONDS = 30.0
"""How long a pop waits; the hand-made one waits for the server's default, which is as long."""


class ClientLine:
    """A client of a Skep server."""

    def __init__(self, way: Way) -> None:
        self._way = way
        self._client = AsyncClient(f"http://{way.address}")
        self._filling = msgspec.json.decode(template(way.size) % 0)["x"]
        self._partitions = [partition_of(number) for number in range(PARTITIONS)]
        self._popped: list[AsyncMessage] = []
        self._done: list[AsyncMessage] = []

    @classmethod
    async def open(cls, way: Way) -> Self:
        return cls(way)

    async def prepare(self) -> None:
        await self._client.configure(self._way.queue)

    async def push(self, first: int) -> None:
        await self._client.push(
            self._way.queue,
            [
                NewMessage({"n": f"{number:010d}", "x": self._filling}, partition=self._partitions[number % PARTITIONS])
                for number in range(first, first + self._way.batch)
            ],
        )

    async def pop(self) -> list[int]:
        done, self._done = self._done, []
        self._popped = await self._client.pop(
            self._way.queue, ack=done, batch=self._way.batch, wait_seconds=WAIT_SECONDS
        )
        return [number_of(message.payload) for message in self._popped]

    async def ack(self) -> None:
        """The next pop takes the acks along."""
        self._done = self._popped

    async def drop(self) -> None:
        """Send the last acks. What is settled is retention's, as in production."""
        done, self._done = self._done, []
        await self._client.ack(*done)

    async def close(self) -> None:
        await self._client.close()
