"""Loads: callers that push, pop and ack through the engine, and how many messages a second they get through."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence

from skep.engine import Engine
from skep.model import DEFAULT_PARTITION, Delivery, NewMessage, PopRequest, QueueKey, Settlement

_names = itertools.count(1)


def fresh_queue() -> QueueKey:
    """A queue nobody has used."""
    return QueueKey(f"bench-{next(_names)}")


def payload(size: int) -> bytes:
    """A JSON text of ``size`` bytes."""
    return b'{"x":"' + b"y" * (size - 8) + b'"}'


def messages(key: QueueKey, count: int, partitions: int, size: int) -> list[NewMessage]:
    """Messages spread over partitions in turn."""
    body = payload(size)
    if partitions == 1:
        return [NewMessage(key, body, DEFAULT_PARTITION)] * count
    # A stride that shares no factor with the number of partitions: neighbours in the log are strangers in the index.
    names = (f"customer-{number * 7919 % partitions:06d}" for number in itertools.count())
    return [NewMessage(key, body, name) for name in itertools.islice(names, count)]


def batches(items: list[NewMessage], size: int) -> Iterator[list[NewMessage]]:
    """The messages in batches."""
    return (items[start : start + size] for start in range(0, len(items), size))


async def timed(callers: Sequence[Awaitable[object]]) -> float:
    """Seconds until all callers are done."""
    started = time.perf_counter()
    await asyncio.gather(*callers)
    return time.perf_counter() - started


async def push_all(engine: Engine, items: list[NewMessage], batch: int, callers: int) -> float:
    """Seconds to push everything, by callers that each wait for their answer."""
    work = batches(items, batch)

    async def caller() -> None:
        for mine in work:
            await engine.push(mine, json_checked=True)

    return await timed([caller() for _ in range(callers)])


def acks(deliveries: list[Delivery]) -> list[Settlement]:
    """The acks of what was delivered."""
    return [delivery.settlement() for delivery in deliveries]


async def drain(engine: Engine, key: QueueKey, total: int, batch: int, callers: int, group: str = "bench") -> float:
    """Seconds until ``total`` messages have been popped and acked; who still waits for more then is sent home."""
    left = total
    started = time.perf_counter()
    all_acked = asyncio.Event()

    async def caller() -> None:
        nonlocal left
        while left > 0:
            popped = await engine.pop(PopRequest(key, group=group, batch=batch), wait_seconds=10)
            await engine.settle(acks(popped.deliveries))
            left -= len(popped.deliveries)
        all_acked.set()

    tasks = [asyncio.create_task(caller()) for _ in range(callers)]
    await all_acked.wait()
    taken = time.perf_counter() - started
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    return taken


async def cycle(engine: Engine, items: list[NewMessage], batch: int, callers: int) -> float:
    """Seconds until everything has been pushed, popped and acked, by as many pushers as poppers at once."""
    key = items[0].queue
    await engine.create_queue(key)
    _, taken = await asyncio.gather(
        push_all(engine, items, batch, callers), drain(engine, key, len(items), batch, callers)
    )
    return taken


async def pop_latencies(engine: Engine, key: QueueKey, samples: int, batch: int) -> list[float]:
    """Seconds each pop took; every batch is acked before the next."""
    taken = []
    for _ in range(samples):
        started = time.perf_counter()
        popped = await engine.pop(PopRequest(key, group="latency", batch=batch))
        taken.append(time.perf_counter() - started)
        await engine.settle(acks(popped.deliveries))
    return taken


async def steady(seconds: float, step: Callable[[], Awaitable[int]]) -> list[tuple[float, int]]:
    """Repeat a step for some seconds: when each ended, and how many messages it moved."""
    started = time.perf_counter()
    moved = []
    while (now := time.perf_counter() - started) < seconds:
        moved.append((now, await step()))
    return moved
