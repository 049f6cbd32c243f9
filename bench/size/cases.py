"""What there may be much of. A case makes so much of it, and then says what goes on while the bystander pushes."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Coroutine
from datetime import UTC, datetime, timedelta
from typing import Any

from msgspec import Struct

from bench.apart import taken_answer
from bench.peers.lines import Wire
from bench.scripts import request
from bench.size.crowd import Crowd

QUEUE = "crowd"
WORKERS = ("workers",)
LEASED_AT_ONCE = 1_000
DRAINED_AT_ONCE = 1_000
DRAINED = 20
LONG_POLL_SECONDS = 30
OK, NO_CONTENT = 200, 204
SWEEPING = {"SKEP_ENGINE_SWEEP_SECONDS": "1"}
"""Retention looks for what is old once a minute; so that it falls into the window, each second."""

Event = Coroutine[Any, Any, None]
Prepare = Callable[[Crowd, int], Awaitable[Event]]


class Case(Struct, frozen=True):
    """How much is little and how much is much, what makes it, and settings of the server."""

    small: int
    large: int
    prepare: Prepare
    environment: dict[str, str] = {}
    sampled: bool = False
    """Whether the window must be long enough for the counters to be noted."""


async def queues(crowd: Crowd, size: int) -> Event:
    """Queues with a message each; their counters are noted every ten seconds."""
    names = [f"{QUEUE}-{number}" for number in range(size)]
    await crowd.pour(names, size)
    return crowd.work(names, WORKERS)


async def partitions(crowd: Crowd, size: int) -> Event:
    """One queue with as many partitions, all with work."""
    await crowd.pour([QUEUE], size, size)
    return crowd.work([QUEUE], WORKERS)


async def groups(crowd: Crowd, size: int) -> Event:
    """One queue that as many groups read."""
    names = [f"group-{number}" for number in range(size)]
    await crowd.pour([QUEUE], 1)
    for name in names:
        await crowd.client.ack(*await crowd.client.pop(QUEUE, group=name, start="all"))
    return crowd.work([QUEUE], names)


async def settled(crowd: Crowd, size: int) -> Event:
    """One queue with as many settled messages: some by acks, the rest by a seek to the end."""
    await crowd.pour([QUEUE], size)
    for _ in range(min(DRAINED, size // DRAINED_AT_ONCE)):
        await crowd.client.pop(QUEUE, group=WORKERS[0], batch=DRAINED_AT_ONCE, start="all", auto_ack=True)
    await crowd.client.seek(QUEUE, WORKERS[0], "end")
    return crowd.work([QUEUE], WORKERS)


async def leases(crowd: Crowd, size: int) -> Event:
    """As many leases that run out at one moment, each with the last attempt of its message."""
    await crowd.client.configure(QUEUE, max_attempts=1)
    batch = min(LEASED_AT_ONCE, size)
    await crowd.pour([QUEUE], size + batch, size + batch)
    started = time.monotonic()
    await crowd.client.pop(QUEUE, group=WORKERS[0], batch=batch, start="all")
    ends = crowd.moment_after(time.monotonic() - started, size / batch)
    for _ in range(0, size, batch):
        left = max(0.1, ends - time.monotonic())
        await crowd.client.pop(QUEUE, group=WORKERS[0], batch=batch, lease_seconds=left)
    await asyncio.sleep(max(0.0, ends - time.monotonic()))
    return crowd.work([QUEUE], WORKERS)


async def scheduled(crowd: Crowd, size: int) -> Event:
    """As many scheduled messages that are due at one moment."""
    batch, much_later = max(1, size // 10), datetime.now(UTC) + timedelta(days=1)
    await crowd.pour([QUEUE], 1, deliver_at=much_later)
    started = time.monotonic()
    await crowd.pour([QUEUE], batch, deliver_at=much_later)
    ends = crowd.moment_after(time.monotonic() - started, size / batch)
    due = datetime.now(UTC) + timedelta(seconds=ends - time.monotonic())
    await crowd.pour([QUEUE], size, deliver_at=due)
    await asyncio.sleep(max(0.0, ends - time.monotonic()))
    return crowd.work([QUEUE], WORKERS)


async def retention(crowd: Crowd, size: int) -> Event:
    """As many messages that are too old from now on."""
    await crowd.pour([QUEUE], size)

    async def age() -> None:
        await crowd.client.configure(QUEUE, retention_seconds=0.001)

    return age()


async def replay(crowd: Crowd, size: int) -> Event:
    """As many dead letters, half of which are sent back."""
    await crowd.letters(QUEUE, size)

    async def send_back() -> None:
        await crowd.client.replay(QUEUE, error="worn")

    return send_back()


async def purge(crowd: Crowd, size: int) -> Event:
    """As many dead letters, half of which are deleted."""
    await crowd.letters(QUEUE, size)

    async def delete() -> None:
        await crowd.client.purge(QUEUE, error="worn")

    return delete()


async def waiters(crowd: Crowd, size: int) -> Event:
    """As many consumers that wait, each for another queue."""
    names = [f"{QUEUE}-{number}" for number in range(size)]
    await crowd.pour(names, size)
    wires = [await Wire.to(crowd.address) for _ in names]
    served = asyncio.Semaphore(0)
    waiting = [asyncio.create_task(_wait(wire, name, served)) for wire, name in zip(wires, names, strict=True)]

    async def all_served() -> None:
        for _ in names:
            await served.acquire()

    done, _ = await asyncio.wait({asyncio.create_task(all_served()), *waiting}, return_when=asyncio.FIRST_COMPLETED)
    await asyncio.gather(*done)  # a waiter ends only by an error
    await asyncio.sleep(crowd.slack_seconds)  # by then all of them wait again

    async def push_to_them() -> None:
        try:
            await crowd.work(names, WORKERS)
        finally:
            for task in waiting:
                task.cancel()
            await asyncio.gather(*waiting, return_exceptions=True)
            for wire in wires:
                wire.close()

    return push_to_them()


async def _wait(wire: Wire, queue: str, served: asyncio.Semaphore) -> None:
    """Consume a queue with long polls. Each answer is counted: the first has the message that made the queue."""
    path = f"/api/v1/pop/queue/{queue}?wait=true&timeout={LONG_POLL_SECONDS}&consumerGroup=waiters&autoAck=true"
    while True:
        status, body = await wire.ask(request("GET", path), taken_answer)
        if status not in (OK, NO_CONTENT):
            raise RuntimeError(f"{status} {body[:200]!r}")
        served.release()


CASES: dict[str, Case] = {
    "queues": Case(10, 10_000, queues, sampled=True),
    "partitions": Case(100, 300_000, partitions),
    "groups": Case(1, 200, groups),
    "settled": Case(1, 1_000_000, settled),
    "leases": Case(500, 50_000, leases),
    "scheduled": Case(1_000, 100_000, scheduled),
    "retention": Case(1_000, 300_000, retention, SWEEPING),
    "replay": Case(100, 20_000, replay),
    "purge": Case(100, 20_000, purge),
    "waiters": Case(10, 2_000, waiters, sampled=True),
}
