"""The loads, the same for every system: they run in the loader's process and count what came back.

Every message has a number. What was pushed must come back once: what did not is lost, what came again is a repeat, and both are
told. The loader tells its own share of its core, since a loader that is busy measures itself.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import psutil
from msgspec import Struct

from bench.at_rate import at_rate
from bench.peers.client_line import ClientLine
from bench.peers.lines import Line, Way
from bench.peers.nats import NatsLine
from bench.peers.rabbitmq import RabbitLine
from bench.peers.redis import RedisLine
from bench.peers.skep_line import SkepLine, SkepLineWithIds
from bench.peers.tables import PgmqLine, TableLine

LINES: dict[str, type[Line]] = {
    "skep": SkepLine, "skep_ids": SkepLineWithIds, "skep_client": ClientLine,
    "redis": RedisLine, "rabbitmq": RabbitLine, "nats": NatsLine, "pgmq": PgmqLine, "table": TableLine,
}  # fmt: skip
DRAIN_BATCH = 100
DRAIN_CALLERS = 4
PATIENCE_SECONDS = 20.0
"""How long nothing may come before the rest counts as lost."""


class Outcome(Struct):
    """What came of a load. ``seconds`` and CPU seconds are those of the part that counts."""

    pushed: int = 0
    popped: int = 0
    lost: int = 0
    repeated: int = 0
    seconds: float = 0.0
    loader_cpu: float = 0.0
    system_cpu: float = 0.0
    latencies: list[float] = []

    @property
    def loader_share(self) -> float:
        """The loader's share of its core."""
        return self.loader_cpu / self.seconds


class Numbers:
    """The numbers that were given out, and those that came back."""

    def __init__(self) -> None:
        self.pushed = 0
        self.popped = 0
        self._next = 0
        self._seen: set[int] = set()
        self.moved_at = time.perf_counter()

    def take(self, count: int) -> int:
        """Numbers for that many messages: the first of them."""
        first, self._next = self._next, self._next + count
        return first

    def came(self, numbers: list[int]) -> None:
        """These came back."""
        self.popped += len(numbers)
        self._seen.update(numbers)
        self.moved_at = time.perf_counter()

    @property
    def all_came(self) -> bool:
        """Whether nothing is missing."""
        return len(self._seen) >= self.pushed

    def tell(self, outcome: Outcome) -> Outcome:
        """Write down what is missing and what came twice."""
        outcome.pushed, outcome.popped = self.pushed, self.popped
        outcome.lost = self.pushed - len(self._seen)
        outcome.repeated = self.popped - len(self._seen)
        return outcome


class Stopwatch:
    """Time, and CPU time of the loader and of the system."""

    def __init__(self, pids: Sequence[int]) -> None:
        self._pids = pids
        self._system = family_cpu(pids)
        self._own = time.process_time()
        self._started = time.perf_counter()

    def read(self) -> Outcome:
        """What passed so far."""
        return Outcome(
            seconds=time.perf_counter() - self._started,
            loader_cpu=time.process_time() - self._own,
            system_cpu=family_cpu(self._pids) - self._system,
        )


async def push_only(way: Way, callers: int, seconds: float, most: int) -> Outcome:
    """Push for some time, or that many messages; then, untimed, all must come back."""
    numbers = Numbers()
    async with lines(way, callers) as pushers:
        await pushers[0].prepare()
        watch = Stopwatch(way.pids)
        deadline = time.perf_counter() + seconds
        await asyncio.gather(*(_push(line, numbers, way.batch, deadline, most) for line in pushers))
        outcome = watch.read()
    async with lines(way.with_batch(DRAIN_BATCH), DRAIN_CALLERS) as poppers:
        await _until_all_came(poppers, numbers)
        await poppers[0].drop()
    return numbers.tell(outcome)


async def cycle(way: Way, callers: int, seconds: float, most: int) -> Outcome:
    """Push for some time while as many others pop and ack; it ends when all that was pushed is acked."""
    numbers = Numbers()
    async with lines(way, 2 * callers) as all_lines:
        await all_lines[0].prepare()
        pushers, poppers = all_lines[:callers], all_lines[callers:]
        watch = Stopwatch(way.pids)
        deadline = time.perf_counter() + seconds
        pushing = asyncio.gather(*(_push(line, numbers, way.batch, deadline, most) for line in pushers))
        await _until_all_came(poppers, numbers, pushing)
        outcome = watch.read()
        await pushers[0].drop()
    return numbers.tell(outcome)


async def steady(way: Way, pushers: int, poppers: int, per_second: int, seconds: float) -> Outcome:
    """Single messages at a fixed rate, whether or not the earlier ones were answered; how long each takes to its consumer."""
    numbers, sent_at, latencies = Numbers(), dict[int, float](), list[float]()
    single = way.with_batch(1)
    async with lines(single, pushers) as free, lines(way, poppers) as waiting:
        await free[0].prepare()
        consumers = [asyncio.create_task(_consume(line, numbers, sent_at, latencies)) for line in waiting]

        async def send(line: Line, came_at: float) -> None:
            number = numbers.take(1)
            sent_at[number] = came_at
            await line.push(number)
            numbers.pushed += 1

        watch = Stopwatch(way.pids)
        await at_rate(free, per_second, seconds, send)
        outcome = watch.read()
        await _ends(numbers, consumers)
        outcome.latencies = latencies
        await free[0].drop()
    return numbers.tell(outcome)


async def one_by_one(way: Way, count: int) -> Outcome:
    """One caller that waits for each answer: so many pushes need at least so many syncs of the disk."""
    numbers = Numbers()
    single = way.with_batch(1)
    async with lines(single, 1) as (line,):
        await line.prepare()
        watch = Stopwatch(way.pids)
        await _push(line, numbers, 1, time.perf_counter() + PATIENCE_SECONDS, count)
        outcome = watch.read()
        await line.drop()
    outcome.pushed = numbers.pushed
    return outcome


async def in_turn(way: Way, count: int, warm: int) -> Outcome:
    """One caller that pushes, pops and acks one message after the other: how long the three take, after some that do not count."""
    numbers = Numbers()
    async with lines(way.with_batch(1), 1) as (line,):
        await line.prepare()
        for _ in range(warm):
            await _turn(line, numbers)
        watch = Stopwatch(way.pids)
        latencies = [await _turn(line, numbers) for _ in range(count)]
        outcome = watch.read()
        await line.drop()
    outcome.latencies = latencies
    return numbers.tell(outcome)


async def _turn(line: Line, numbers: Numbers) -> float:
    began = time.perf_counter()
    await line.push(numbers.take(1))
    numbers.pushed += 1
    numbers.came(await line.pop())
    await line.ack()
    return time.perf_counter() - began


@asynccontextmanager
async def lines(way: Way, count: int) -> AsyncIterator[list[Line]]:
    """That many connections."""
    opened = [await LINES[way.protocol].open(way) for _ in range(count)]
    try:
        yield list(opened)
    finally:
        for line in opened:
            await line.close()


async def _push(line: Line, numbers: Numbers, batch: int, deadline: float, most: int) -> None:
    while time.perf_counter() < deadline and numbers.pushed < most:
        first = numbers.take(batch)
        await line.push(first)
        numbers.pushed += batch


async def _pop(line: Line, numbers: Numbers) -> None:
    while True:
        if popped := await line.pop():
            await line.ack()
            numbers.came(popped)


async def _until_all_came(poppers: list[Line], numbers: Numbers, pushing: asyncio.Future[Any] | None = None) -> None:
    tasks = [asyncio.create_task(_pop(line, numbers)) for line in poppers]
    if pushing is not None:
        done, _ = await asyncio.wait({pushing, *tasks}, return_when=asyncio.FIRST_COMPLETED)
        await asyncio.gather(*done)  # a popper ends only by an error
    await _ends(numbers, tasks)


async def _ends(numbers: Numbers, tasks: list[asyncio.Task[None]]) -> None:
    """Wait until all came back or nothing comes any more, then send the consumers home."""
    numbers.moved_at = time.perf_counter()
    while not numbers.all_came and time.perf_counter() - numbers.moved_at < PATIENCE_SECONDS:
        await asyncio.wait(tasks, timeout=0.002, return_when=asyncio.FIRST_EXCEPTION)
        for task in tasks:
            if task.done():
                task.result()
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def _consume(line: Line, numbers: Numbers, sent_at: dict[int, float], latencies: list[float]) -> None:
    while True:
        if popped := await line.pop():
            now = time.perf_counter()
            latencies.extend(now - sent_at[number] for number in popped)
            await line.ack()
            numbers.came(popped)


def family_cpu(pids: Sequence[int]) -> float:
    """CPU seconds of these processes and their children so far."""
    family: dict[int, psutil.Process] = {}
    for pid in pids:
        process = psutil.Process(pid)
        family |= {one.pid: one for one in (process, *process.children(recursive=True))}
    spent = 0.0
    for one in family.values():
        try:
            spent += sum(one.cpu_times()[:4])  # its own, and that of children it has waited for
        except psutil.NoSuchProcess:
            continue
    return spent
