"""The crowd: what makes a server full, over the interface that everybody uses. All of it runs in the benchmark's own process."""

from __future__ import annotations

import asyncio
import io
import time
from collections.abc import Sequence
from datetime import datetime
from itertools import cycle

import pyarrow as pa
from msgspec import Struct

from bench.apart import taken_answer
from bench.load import payload
from bench.peers.lines import Wire
from bench.scripts import expect, request
from skep.client import AsyncClient
from skep.wire.log import ARROW

SIZE = 300
STREAM_MESSAGES = 10_000
MARGIN = 1.5
WORK_EACH_SECONDS = 0.05
"""How often the crowd's own consumer does a message: seldom enough to leave the server idle, often enough to be felt."""


class Crowd(Struct):
    """A server, by its address and through a client."""

    address: str
    client: AsyncClient
    slack_seconds: float

    async def pour(
        self, queues: Sequence[str], messages: int, partitions: int = 16, deliver_at: datetime | None = None
    ) -> None:
        """Push very many messages as Arrow streams, to the queues and partitions in turn."""
        wire = await Wire.to(self.address)
        for first in range(0, messages, STREAM_MESSAGES):
            numbers = range(first, min(first + STREAM_MESSAGES, messages))
            body = stream(queues, numbers, partitions, deliver_at)
            asked = request("POST", f"/api/v1/push?queue={queues[0]}", body, ARROW)
            expect(201, *await wire.ask(asked, taken_answer))
        wire.close()

    async def work(self, queues: Sequence[str], groups: Sequence[str]) -> None:
        """Push, pop and ack a message now and then, to the queues and by the groups in turn, until it is cancelled."""
        for queue, group in zip(cycle(queues), cycle(groups), strict=False):
            await self.client.push(queue, {"n": 1}, partition="worker")
            found = await self.client.pop(queue, group=group, batch=10)
            if found:
                await self.client.ack(*found)
            await asyncio.sleep(WORK_EACH_SECONDS)

    def moment_after(self, step_seconds: float, steps: float) -> float:
        """The moment (of ``time.monotonic``) when so many more steps should be done, each as long as the one before."""
        return time.monotonic() + self.slack_seconds + MARGIN * step_seconds * steps

    async def letters(self, queue: str, messages: int) -> None:
        """Make dead letters: half of them are worn, and half torn."""
        await self.pour([queue], messages)
        for first in range(1, messages + 1, 1_000):
            seqs = range(first, min(first + 1_000, messages + 1))
            errors = {seq: "worn" if seq % 2 else "torn" for seq in seqs}
            await self.client.bury(queue, errors, name=f"{queue}-{first}")


def stream(queues: Sequence[str], numbers: range, partitions: int, deliver_at: datetime | None) -> bytes:
    """An Arrow stream of messages."""
    body = payload(SIZE).decode()
    columns = {
        "partition": pa.array([f"customer-{n % partitions:06d}" for n in numbers]),
        "payload": pa.array([body] * len(numbers)),
    }
    if len(queues) > 1:
        columns["queue"] = pa.array([queues[n % len(queues)] for n in numbers])
    if deliver_at is not None:
        columns["deliver_at"] = pa.array([deliver_at] * len(numbers), pa.timestamp("us", tz="UTC"))
    batch = pa.record_batch(columns)
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    return sink.getvalue()
