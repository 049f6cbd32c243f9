"""Epochs staged and published by a process that dies at a chosen write."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from multiprocessing.connection import Connection

import pyarrow as pa

from skep.arrow.staged import plain_chunk, rich_chunk
from skep.clock import Instant, ManualClock, seconds
from skep.ids import IdMint
from skep.model import NewMessage, QueueKey
from skep.model.staging import Attempt, EpochKey, StagedChunk
from skep.store.protocol import Store
from skep.store.sqlite import SqliteStore
from tests.support.crash import CrashingVfs

EPOCHS = 4
PARTITIONS = 2
KEYS = [QueueKey(name, "crash") for name in ("columns", "messages")]


def epoch_key(epoch: int) -> EpochKey:
    return EpochKey("query", epoch, "crash")


def texts(epoch: int, partition: int, queue: str) -> list[str]:
    """What a task writes, the same at every attempt."""
    return [f'"{epoch}.{partition}.{queue}.{number}"' for number in range(5)]


def messages_of(epoch: int, partition: int) -> list[NewMessage]:
    return [
        NewMessage(KEYS[1], text.encode(), transaction_id=text, headers=b"{}")
        for text in texts(epoch, partition, "messages")
    ]


class Sink:
    """A streaming query's sink: from the first epoch that is not published, as after any restart."""

    def __init__(self, store: Store, attempt: int, tell: Callable[[int], None]) -> None:
        self.store = store
        self.attempt = attempt
        self.tell = tell
        self.clock = ManualClock()
        self.clock.advance(attempt)
        self.mint = IdMint(self.clock)

    async def run(self) -> None:
        for epoch in range(EPOCHS):
            (receipt,) = await self.store.records.receipts([epoch_key(epoch).receipt], self.clock.now())
            if receipt is None:
                await self.write(epoch)
            await self.publish(epoch)
            self.tell(epoch)

    async def write(self, epoch: int) -> None:
        for partition in range(PARTITIONS):
            column = pa.array([t.encode() for t in texts(epoch, partition, "columns")], pa.large_binary())
            await self.stage(epoch, partition, 0, "columns", plain_chunk("columns", column, column))
            await self.stage(epoch, partition, 1, "messages", rich_chunk(messages_of(epoch, partition)))

    async def stage(self, epoch: int, partition: int, number: int, queue: str, data: bytes) -> None:
        now = self.clock.now()
        chunk = StagedChunk(
            epoch=epoch_key(epoch), partition=partition, attempt=self.attempt, number=number, messages=5,
            queues=[queue], data=data, expires_at=Instant(now + seconds(86_400)),
        )  # fmt: skip
        await self.store.stage(chunk, now)

    async def publish(self, epoch: int) -> None:
        now = self.clock.now()
        attempts = [Attempt(partition, self.attempt, 10) for partition in range(PARTITIONS)]
        first_id = self.mint.mint_range(10 * PARTITIONS)
        await self.store.publish(epoch_key(epoch), attempts, first_id, Instant(now + seconds(10**7)), now)


def run_sink(path: str, attempt: int, deadly: int, mode: str, pipe: Connection) -> None:
    """The body of the process: to the end, or to the deadly write."""
    vfs = CrashingVfs(deadly, mode)
    asyncio.run(_run(path, attempt, pipe))
    pipe.send(-1 - vfs.writes)
    pipe.close()


async def _run(path: str, attempt: int, pipe: Connection) -> None:
    store = SqliteStore(path, checkpoint_pages=60)
    await store.open()
    await Sink(store, attempt, pipe.send).run()
    await store.close()
