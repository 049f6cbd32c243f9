"""Short words for what tests of the engine do all the time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

from skep.clock import ManualClock
from skep.engine import Engine
from skep.model import (
    Delivery,
    NewMessage,
    Outcome,
    PopRequest,
    PopResult,
    PushOutcome,
    QueueKey,
    Retry,
    Settlement,
    SettleResult,
)
from tests.engine.recording import RecordingStore

ORDERS = QueueKey("orders")
ANY = QueueKey("")
"""Of a pop over several queues."""


def message(payload: str = "1", queue: QueueKey = ORDERS, **fields: Any) -> NewMessage:
    return NewMessage(queue, payload.encode(), **fields)


def settlement(delivery: Delivery, outcome: Outcome = Outcome.ACK, **fields: Any) -> Settlement:
    return Settlement(
        queue=delivery.queue,
        partition=delivery.partition,
        seq=delivery.seq,
        token=delivery.token,
        group=delivery.group,
        outcome=outcome,
        **fields,
    )


async def until(condition: Callable[[], bool]) -> None:
    """Let the loop turn until something is so; ten seconds mean that it never will be."""
    async with asyncio.timeout(10):
        while not condition():  # noqa: ASYNC110 - it yields rather than sleeps
            await asyncio.sleep(0)


class EngineDriver:
    """An engine, its clock and its store, with short verbs."""

    def __init__(self, engine: Engine, clock: ManualClock, store: RecordingStore) -> None:
        self.engine = engine
        self.clock = clock
        self.store = store

    async def push(self, *payloads: str, queue: QueueKey = ORDERS, **fields: Any) -> PushOutcome:
        return await self.engine.push([message(payload, queue, **fields) for payload in payloads])

    async def pop(self, queue: QueueKey = ORDERS, **fields: Any) -> list[Delivery]:
        return (await self.engine.pop(PopRequest(queue, **fields))).deliveries

    async def ack(self, deliveries: Sequence[Delivery]) -> list[SettleResult]:
        return await self.engine.settle([settlement(delivery) for delivery in deliveries])

    async def nack(self, delivery: Delivery, retry: Retry = Retry.NOW, **fields: Any) -> SettleResult:
        return (await self.engine.settle([settlement(delivery, Outcome.NACK, retry=retry, **fields)]))[0]

    async def polling(
        self, queue: QueueKey = ORDERS, wait_seconds: float = 60, **fields: Any
    ) -> asyncio.Task[PopResult]:
        """A pop that waits, once it has looked and found nothing."""
        return await self.parked(self.engine.pop(PopRequest(queue, **fields), wait_seconds=wait_seconds))

    async def advance(self, by_seconds: float) -> None:
        """Let time pass, and what it brings about."""
        self.clock.advance(by_seconds)
        await self.quiet()

    async def quiet(self) -> None:
        await until(lambda: self.engine.is_quiet)

    async def parked(self, pop: Any) -> asyncio.Task[PopResult]:
        before = self.engine.parked_polls
        task: asyncio.Task[PopResult] = asyncio.ensure_future(pop)
        await until(lambda: self.engine.parked_polls > before or task.done())
        assert not task.done()
        return task


async def answer(task: asyncio.Task[PopResult]) -> list[str]:
    """The payloads a waiting pop came back with."""
    async with asyncio.timeout(10):
        return [delivery.payload.decode() for delivery in (await task).deliveries]
