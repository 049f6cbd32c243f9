"""`skep bench overload`: more than the servers can do, with admission and without, in the same run.

Each server is a process of its own on PostgreSQL with a pool of 4 connections; pushes of 10 messages, each to one partition, go to
64 queues. What one can do is measured first, without admission, by callers who wait for their answers. Then pushes come at 1, 2, 4
and 8 times that rate, whether or not the earlier ones have been answered, over so many connections that those who wait there for
their answers would wait for seconds. Rounds of the two servers alternate, and the median round counts. Goodput is what came into the
logs while the offer lasted, per second of it; in the end everything that was accepted must be there.
"""

from __future__ import annotations

import asyncio
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import asyncpg
import msgspec
import structlog
from msgspec import Struct

from bench.http import SIZE, fresh, serving
from bench.load import payload
from bench.offering import Answered, Offer, offer, stored
from bench.report import Report, machine, middle, percentile
from bench.scripts import request
from skep.testing.postgres import PostgresServer, running_postgres

TARGETS = {"goodput_8x_of_no_admission": ">= 0.90", "accepted_p99_8x_of_2_seconds": "<= 1.00"}
CONNECTIONS = 4
QUEUES = 64
PARTITIONS = 16
BATCH = 10
CALLERS = 512
OFFERING_CONNECTIONS = 4_096
PATIENCE_SECONDS = 2.0
"""How long an accepted call may take."""
DRAIN_SECONDS = 120
log = structlog.get_logger("bench")


class Scale(Struct, frozen=True, kw_only=True):
    """How much of everything."""

    rounds: int
    seconds: float
    factors: tuple[int, ...]


QUICK = Scale(rounds=3, seconds=6, factors=(1, 8))
FULL = Scale(rounds=3, seconds=30, factors=(1, 2, 4, 8))


class Loaded(Struct, frozen=True):
    """A server under test, and the database it has to itself."""

    name: str
    port: int
    dsn: str


async def run(quick: bool) -> Report:
    """Measure a server without admission beside one with it."""
    scale = QUICK if quick else FULL
    report = Report("overload", machine())
    report.notes["load"] = (
        f"PostgreSQL with {CONNECTIONS} connections and fsync on; pushes of {BATCH} messages of {SIZE} bytes to {QUEUES} queues "
        f"over {OFFERING_CONNECTIONS:,} connections, {scale.seconds:.0f} s each"
    )
    with (
        TemporaryDirectory(prefix="skep-bench-") as folder,
        running_postgres() as server,
        loaded("no_admission", server, Path(folder), enabled=False) as without,
        loaded("admission", server, Path(folder), enabled=True) as admitting,
    ):
        queues = [fresh() for _ in range(QUEUES)]
        requests = [pushing(queue, partition) for partition in range(PARTITIONS) for queue in queues]
        capacity = await measure_capacity(without, admitting, requests, scale, report)
        for factor in scale.factors:
            await measure((without, admitting), requests, factor, capacity, scale, report)
    return report


@contextmanager
def loaded(name: str, server: PostgresServer, folder: Path, *, enabled: bool) -> Iterator[Loaded]:
    """A server on a database of its own."""
    dsn = server.create_database()
    environment = {"SKEP_STORE_CONNECTIONS": str(CONNECTIONS), "SKEP_ADMISSION_ENABLED": str(enabled).lower()}
    with serving(dsn, folder, environment) as (port, _):
        yield Loaded(name, port, dsn)


async def measure_capacity(
    without: Loaded, admitting: Loaded, requests: list[bytes], scale: Scale, report: Report
) -> float:
    """Messages a second, when callers wait for their answers. Both servers are warm then: connections, plans and caches."""
    await asyncio.to_thread(offer, admitting.port, Offer(requests, scale.seconds / 2, CALLERS, admitting.dsn))
    closed = Offer(requests, scale.seconds, CALLERS, without.dsn)
    await asyncio.to_thread(offer, without.port, closed)
    answered = await asyncio.to_thread(offer, without.port, closed)
    report.notes["capacity"] = told(answered)
    report.rates["capacity"] = answered.stored / scale.seconds
    return report.rates["capacity"]


async def measure(
    servers: tuple[Loaded, Loaded], requests: list[bytes], factor: int, capacity: float, scale: Scale, report: Report
) -> None:
    """What the servers do under one load."""
    goodput: dict[str, list[float]] = {one.name: [] for one in servers}
    slowest: dict[str, list[float]] = {one.name: [] for one in servers}
    for _ in range(scale.rounds):
        for one in servers:
            wanted = Offer(requests, scale.seconds, OFFERING_CONNECTIONS, one.dsn, factor * capacity / BATCH)
            answered = await offered(one, wanted)
            goodput[one.name].append(answered.stored / scale.seconds)
            slowest[one.name].append(percentile(answered.accepted_seconds, 0.99))
            report.notes[f"{one.name}.{factor}x"] = told(answered)
            log.info("measured", server=one.name, factor=factor, answered=answered.statuses, unsent=answered.unsent)
    for name, found in goodput.items():
        report.rates[f"{name}.goodput_{factor}x"] = middle(found)
        report.rates[f"{name}.accepted_p99_ms_{factor}x"] = 1e3 * middle(slowest[name])
    without, admitting = goodput.values()
    ratio = middle([a / b for a, b in zip(admitting, without, strict=True)])
    report.ratios[f"goodput_{factor}x_of_no_admission"] = ratio
    report.ratios[f"accepted_p99_{factor}x_of_2_seconds"] = middle(slowest["admission"]) / PATIENCE_SECONDS


async def offered(server: Loaded, wanted: Offer) -> Answered:
    """Make an offer, and see that all that was accepted is there in the end."""
    database = await asyncpg.connect(server.dsn)
    try:
        before = await stored(database)
        answered = await asyncio.to_thread(offer, server.port, wanted)
        await drained(server.port)
        gained = await stored(database) - before
    finally:
        await database.close()
    if gained < BATCH * answered.accepted:
        raise RuntimeError(f"{BATCH * answered.accepted} messages were accepted, {gained} are there")
    return answered


def pushing(queue: str, partition: int) -> bytes:
    """A request that pushes a batch to one partition."""
    item = {"queue": queue, "partition": f"customer-{partition:06d}", "payload": msgspec.Raw(payload(SIZE))}
    return request("POST", "/api/v1/push", msgspec.json.encode({"items": [item] * BATCH}))


async def drained(port: int) -> None:
    """Wait until no operation is left."""
    deadline = time.monotonic() + DRAIN_SECONDS
    while (await asyncio.to_thread(get, port, "/api/v1/operations/stats"))["depth"]:
        if time.monotonic() > deadline:
            raise RuntimeError(f"operations were not done within {DRAIN_SECONDS} s")
        await asyncio.sleep(0.1)


def get(port: int, path: str) -> dict[str, Any]:
    """What a route answers."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=60) as answer:
        found: dict[str, Any] = msgspec.json.decode(answer.read())
    return found


def told(answered: Answered) -> str:
    """The shares of the answers, how long the accepted ones took, and how busy the loader was."""
    shares = [
        f"{100 * count / max(1, answered.offered):.1f}% {name}"
        for name, count in [
            *(((status or "unanswered"), n) for status, n in sorted(answered.statuses.items())),
            ("unsent", answered.unsent),
        ]
        if count
    ]
    p50, p99 = (1e3 * percentile(answered.accepted_seconds or [0.0], share) for share in (0.5, 0.99))
    return f"{', '.join(shares)}; accepted p50 {p50:,.0f} ms, p99 {p99:,.0f} ms; loader at {answered.cpu_share:.0%} of its core"
