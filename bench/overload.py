"""`skep bench overload`: more than the server can do, with admission and without, in the same run.

The server is a process of its own on PostgreSQL with a pool of 4 connections; pushes of 10 messages, each to one partition, go to
64 queues. What it can do is measured first, without admission, by callers who wait for their answers. Then pushes come at 1, 2, 4
and 8 times that rate, whether or not the earlier ones have been answered. Goodput is what is in the logs when the offer ends, per
second of it; at the end of each everything that was accepted must be there.
"""

from __future__ import annotations

import asyncio
import time
import urllib.error
import urllib.request
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import msgspec
import structlog
from msgspec import Struct

from bench.http import SIZE, Subject, driven, fresh, serving
from bench.load import payload
from bench.loader import Driven, Load, Script
from bench.offering import Answered, Offer, offer
from bench.report import Report, machine, percentile
from bench.scripts import expect, request
from skep.testing.postgres import running_postgres

TARGETS = {"goodput_8x_of_capacity": ">= 0.80"}
CONNECTIONS = 4
QUEUES = 64
PARTITIONS = 16
BATCH = 10
CALLERS = 512
OFFERING_CONNECTIONS = 512
DRAIN_SECONDS = 120
NOT_FOUND = 404
log = structlog.get_logger("bench")


class Scale(Struct, frozen=True, kw_only=True):
    """How much of everything."""

    seconds: float
    capacity_seconds: float
    factors: tuple[int, ...]


QUICK = Scale(seconds=4, capacity_seconds=3, factors=(1, 8))
FULL = Scale(seconds=30, capacity_seconds=10, factors=(1, 2, 4, 8))


async def run(quick: bool) -> Report:
    """Measure a server without admission, then one with it."""
    scale = QUICK if quick else FULL
    report = Report("overload", machine())
    report.notes["load"] = (
        f"PostgreSQL with {CONNECTIONS} connections and fsync on; pushes of {BATCH} messages of {SIZE} bytes to {QUEUES} queues "
        f"over {OFFERING_CONNECTIONS} connections, {scale.seconds:.0f} s each"
    )
    with TemporaryDirectory(prefix="skep-bench-") as folder, running_postgres() as server:
        capacity = 0.0
        for name, enabled in (("no_admission", False), ("admission", True)):
            environment = {"SKEP_STORE_CONNECTIONS": str(CONNECTIONS), "SKEP_ADMISSION_ENABLED": str(enabled).lower()}
            with serving(server.create_database(), Path(folder), environment) as at:
                subject = Subject(name, *at, "")
                queues = [fresh() for _ in range(QUEUES)]
                capacity = capacity or await measure_capacity(subject, queues, scale, report)
                await measure(subject, queues, capacity, scale, report)
    for name, label in (("admission", ""), ("no_admission", "_without_admission")):
        report.ratios[f"goodput_8x_of_capacity{label}"] = report.rates[f"{name}.goodput_8x"] / capacity
    return report


async def measure_capacity(subject: Subject, queues: list[str], scale: Scale, report: Report) -> float:
    """Messages a second, when callers wait for their answers."""
    closed = Load(push_in_turn, (queues,), CALLERS, seconds=scale.capacity_seconds)
    await driven(subject, closed)  # connections, plans and caches
    report.rates["capacity"] = (await driven(subject, closed)).messages_per_second
    return report.rates["capacity"]


async def measure(subject: Subject, queues: list[str], capacity: float, scale: Scale, report: Report) -> None:
    """What one server does under each load."""
    requests = [pushing(queue, partition) for partition in range(PARTITIONS) for queue in queues]
    for factor in scale.factors:
        before = await stored(subject.port, queues)
        wanted = Offer(requests, factor * capacity / BATCH, scale.seconds, OFFERING_CONNECTIONS)
        answered, in_time = await offered(subject.port, wanted, queues)
        after = await drained(subject.port, queues)
        accepted = BATCH * sum(answered.statuses.get(status, 0) for status in (200, 201, 202))
        if after - before < accepted:
            raise RuntimeError(f"{accepted} messages were accepted, {after - before} are there")
        report.rates[f"{subject.name}.goodput_{factor}x"] = (in_time - before) / scale.seconds
        report.notes[f"{subject.name}.{factor}x"] = told(answered)
        log.info("measured", server=subject.name, factor=factor, answered=answered.statuses)


async def offered(port: int, wanted: Offer, queues: list[str]) -> tuple[Answered, int]:
    """Make an offer; what it was answered, and how much was stored at the moment it ended."""
    work = asyncio.create_task(asyncio.to_thread(offer, port, wanted))
    await asyncio.sleep(wanted.seconds)
    in_time = await stored(port, queues)
    return await work, in_time


def push_in_turn(number: int, driven: Driven, queues: list[str]) -> Script:
    """Push to one queue after the other, waiting for each answer."""
    asked = [pushing(queue, number % PARTITIONS) for queue in queues]
    turn = number
    while True:
        turn += 1
        expect(201, *(yield asked[turn % len(asked)]))
        driven.messages += BATCH


def pushing(queue: str, partition: int) -> bytes:
    """A request that pushes a batch to one partition."""
    item = {"queue": queue, "partition": f"customer-{partition:06d}", "payload": msgspec.Raw(payload(SIZE))}
    return request("POST", "/api/v1/push", msgspec.json.encode({"items": [item] * BATCH}))


async def stored(port: int, queues: list[str]) -> int:
    """How many messages are in the logs."""

    def count() -> int:
        return sum(last_seq(port, queue) for queue in queues)

    return await asyncio.to_thread(count)


def last_seq(port: int, queue: str) -> int:
    """How many messages a log has got; none when nobody has pushed to it yet."""
    try:
        return int(get(port, f"/api/v1/log/{queue}/bounds")["lastSeq"])
    except urllib.error.HTTPError as error:
        if error.code != NOT_FOUND:
            raise
        return 0


async def drained(port: int, queues: list[str]) -> int:
    """Wait until no operation is left; how many messages are in the logs then."""
    deadline = time.monotonic() + DRAIN_SECONDS
    while (await asyncio.to_thread(get, port, "/api/v1/operations/stats"))["depth"]:
        if time.monotonic() > deadline:
            raise RuntimeError(f"operations were not done within {DRAIN_SECONDS} s")
        await asyncio.sleep(0.1)
    return await stored(port, queues)


def get(port: int, path: str) -> dict[str, Any]:
    """What a route answers."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=60) as answer:
        found: dict[str, Any] = msgspec.json.decode(answer.read())
    return found


def told(answered: Answered) -> str:
    """The shares of the answers, and how long the accepted ones took."""
    shares = [
        f"{100 * count / max(1, answered.offered):.1f}% {status or 'unanswered'}"
        for status, count in sorted(answered.statuses.items())
        if count
    ]
    if not answered.accepted_seconds:
        return ", ".join(shares)
    p50, p99 = (1e3 * percentile(answered.accepted_seconds, share) for share in (0.5, 0.99))
    return f"{', '.join(shares)}; accepted p50 {p50:,.0f} ms, p99 {p99:,.0f} ms"
