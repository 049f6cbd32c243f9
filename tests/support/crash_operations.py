"""Pushes queued and performed by a process that dies at a chosen write."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from multiprocessing.connection import Connection

from skep.clock import ManualClock
from skep.ids import IdMint
from skep.model import NewMessage, PushBatch, QueueKey, Token
from skep.model.operation import ClaimLimits, GivenBack, NewOperations, OperationKind
from skep.store.protocol import Store
from skep.store.sqlite import SqliteStore
from tests.support.crash import CrashingVfs

KEY = QueueKey("q", "crash")
ROUNDS = 4
EACH = 3
POISON = 5
"""The number of the push that fails for good."""


class Server:
    """Queues pushes and performs them; what was left by one that died is performed first."""

    def __init__(self, store: Store, seconds: int, tell: Callable[[int], None]) -> None:
        self.store = store
        self.tell = tell
        self.clock = ManualClock()
        self.clock.advance(seconds)
        self.mint = IdMint(self.clock)

    async def run(self, first: int = 0) -> None:
        number = first
        for _ in range(ROUNDS):
            for _ in range(EACH):
                await self.queue(number)
                self.tell(number)
                number += 1
            await self.drain()

    async def queue(self, number: int) -> None:
        messages = [NewMessage(KEY, f'"{number}.{part}"'.encode(), f"P{number % 2}") for part in range(2)]
        batch = PushBatch(messages, self.mint.mint_many(2))
        request = NewOperations(OperationKind.PUSH, self.mint.mint_many(1), push=batch)
        await self.store.enqueue([request], self.clock.now())

    async def drain(self) -> None:
        while True:
            token = Token(bytes(self.mint.mint()))
            claim = await self.store.claim_operations("w", token, ClaimLimits(operations=2), self.clock.now())
            claimed = claim.operations
            if not claimed:
                return
            for one in claimed:
                if one.batch.messages[0].payload == f'"{POISON}.0"'.encode():
                    await self.store.give_back(token, [GivenBack(one.position, None, "poison")], self.clock.now())
            await self.store.perform(token, claimed, self.clock.now())


def run_server(path: str, deadly: int, mode: str, pipe: Connection) -> None:
    """The body of the process: to the end, or to the deadly write."""
    vfs = CrashingVfs(deadly, mode)
    asyncio.run(_run(path, pipe))
    pipe.send(-1 - vfs.writes)
    pipe.close()


async def _run(path: str, pipe: Connection) -> None:
    store = SqliteStore(path, checkpoint_pages=60)
    await store.open()
    await Server(store, 0, pipe.send).run()
    await store.close()
