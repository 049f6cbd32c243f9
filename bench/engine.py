"""`skep bench engine`: push, pop and ack through the engine on both stores, beside their ceilings and baselines.

Everything runs in this process and on this machine, with fsync on. Rounds of what is compared alternate, and the median
round counts, so that a noisy machine moves both sides of a ratio alike.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import asyncpg
import structlog
from msgspec import Struct

from bench import baselines, load
from bench.report import Report, machine, middle, percentile
from skep.engine import Engine
from skep.model import NewMessage, PopRequest, QueueKey
from skep.server.compose import open_engine
from skep.testing.postgres import running_postgres

TARGETS = {
    "push_of_ceiling_b100": ">= 0.60",
    "cycle_over_baseline_b100": ">= 2.50 on PostgreSQL",
    "concurrent_over_single_commits": ">= 3.00",
    "wide_of_narrow_drain": ">= 0.33",
    "pop_p50_backlog_1m_over_1k": "<= 1.30",
    "pinned_snapshot_last_of_first": ">= 0.90",
}
CALLERS = 8
SINGLE_CALLERS = 256
BACKLOGS = (1_000, 1_000_000)
log = structlog.get_logger("bench")


class Scale(Struct, frozen=True, kw_only=True):
    """How much of everything."""

    rounds: int
    messages: int
    cycle_messages: int
    single_messages: int
    drain_messages: int
    pinned_seconds: float
    matrix: list[tuple[int, int, int]]


QUICK = Scale(
    rounds=3, messages=20_000, cycle_messages=20_000, single_messages=1_500, drain_messages=10_000, pinned_seconds=9,
    matrix=[(100, 1, 256)],
)  # fmt: skip
FULL = Scale(
    rounds=5, messages=100_000, cycle_messages=50_000, single_messages=5_000, drain_messages=10_000, pinned_seconds=60,
    matrix=[(batch, partitions, size) for size in (256, 1024) for partitions in (1, 10_000) for batch in (1, 10, 100, 1000)],
)  # fmt: skip


class Subject(Struct, frozen=True):
    """A store under test: its engine, its ceiling and its baseline."""

    name: str
    engine: Engine
    ceiling: Callable[[list[NewMessage], int], Awaitable[float]]
    baseline: Callable[[list[NewMessage], int], Awaitable[float]]


async def run(stores: list[str], quick: bool) -> Report:
    """Measure the stores one after the other."""
    scale = QUICK if quick else FULL
    report = Report("engine", machine())
    report.notes["durability"] = "fsync on: SQLite WAL with synchronous=FULL, PostgreSQL with synchronous_commit=on"
    report.notes["load"] = (
        f"{CALLERS} callers in one process, each waiting for its answer; median of {scale.rounds} rounds"
    )
    if "sqlite" in stores:
        async with sqlite_subject() as subject:
            await measure(subject, scale, report)
    if "postgres" in stores:
        with running_postgres() as server:
            dsn = server.create_database()
            async with postgres_subject(dsn) as subject:
                await measure(subject, scale, report)
                await pinned_snapshot(subject, dsn, scale, report)
    return report


@asynccontextmanager
async def sqlite_subject() -> AsyncIterator[Subject]:
    """The engine on a SQLite file."""
    with TemporaryDirectory(prefix="skep-bench-") as name:
        folder = Path(name)
        async with open_engine(str(folder / "skep.db")) as engine:

            async def ceiling(items: list[NewMessage], batch: int) -> float:
                return await asyncio.to_thread(baselines.sqlite_ceiling, folder, items, batch)

            async def baseline(items: list[NewMessage], batch: int) -> float:
                return await asyncio.to_thread(baselines.sqlite_baseline, folder, items, batch)

            yield Subject("sqlite", engine, ceiling, baseline)


@asynccontextmanager
async def postgres_subject(dsn: str) -> AsyncIterator[Subject]:
    """The engine on a PostgreSQL of this run."""
    async with open_engine(dsn) as engine:
        yield Subject(
            "postgres",
            engine,
            lambda items, batch: baselines.postgres_ceiling(dsn, items, batch),
            lambda items, batch: baselines.postgres_baseline(dsn, items, batch, CALLERS),
        )


async def measure(subject: Subject, scale: Scale, report: Report) -> None:
    """All that is measured of one store."""
    for step in STEPS:
        started = time.perf_counter()
        await step(subject, scale, report)
        log.info("measured", store=subject.name, step=step.__name__, seconds=round(time.perf_counter() - started, 1))


async def warm_up(subject: Subject, scale: Scale, report: Report) -> None:  # noqa: ARG001 - a step like the others
    """Connections, plans and caches, before anything is timed."""
    items = load.messages(load.fresh_queue(), 2_000, 10, 256)
    await load.cycle(subject.engine, items, 100, CALLERS)
    await subject.ceiling(items, 100)
    await subject.baseline(items, 100)


async def push_of_ceiling(subject: Subject, scale: Scale, report: Report) -> None:
    """Pushing in batches of 100 beside the bare table, one partition and many."""
    pushed, wide, bare = [], [], []
    for _ in range(scale.rounds):
        items = load.messages(load.fresh_queue(), scale.messages, 1, 256)
        bare.append(scale.messages / await subject.ceiling(items, 100))
        pushed.append(scale.messages / await load.push_all(subject.engine, items, 100, CALLERS))
        items = load.messages(load.fresh_queue(), scale.messages, 10_000, 256)
        wide.append(scale.messages / await load.push_all(subject.engine, items, 100, CALLERS))
    name = subject.name
    report.rates[f"{name}.ceiling_b100"] = middle(bare)
    report.rates[f"{name}.push_b100"] = middle(pushed)
    report.rates[f"{name}.push_b100_10k_partitions"] = middle(wide)
    report.ratios[f"{name}.push_of_ceiling_b100"] = middle([p / b for p, b in zip(pushed, bare, strict=True)])


async def cycle_over_baseline(subject: Subject, scale: Scale, report: Report) -> None:
    """Pushing, popping and acking at once in batches of 100, beside a row per message."""
    ours, theirs = [], []
    for _ in range(scale.rounds):
        items = load.messages(load.fresh_queue(), scale.cycle_messages, 16, 256)
        theirs.append(len(items) / await subject.baseline(items, 100))
        ours.append(len(items) / await load.cycle(subject.engine, items, 100, CALLERS))
    report.rates[f"{subject.name}.baseline_cycle_b100"] = middle(theirs)
    report.rates[f"{subject.name}.cycle_b100"] = middle(ours)
    report.ratios[f"{subject.name}.cycle_over_baseline_b100"] = middle(
        [a / b for a, b in zip(ours, theirs, strict=True)]
    )


async def concurrent_over_single(subject: Subject, scale: Scale, report: Report) -> None:
    """Single pushes by 256 callers at once, beside one caller that waits for each commit."""
    together, alone = [], []
    for _ in range(scale.rounds):
        items = load.messages(load.fresh_queue(), scale.single_messages, 1, 256)
        few = items[: max(200, len(items) // 8)]
        alone.append(len(few) / await load.push_all(subject.engine, few, 1, 1))
        together.append(len(items) / await load.push_all(subject.engine, items, 1, SINGLE_CALLERS))
    report.rates[f"{subject.name}.single_pushes_1_caller"] = middle(alone)
    report.rates[f"{subject.name}.single_pushes_{SINGLE_CALLERS}_callers"] = middle(together)
    ratio = middle([a / b for a, b in zip(together, alone, strict=True)])
    report.ratios[f"{subject.name}.concurrent_over_single_commits"] = ratio


async def wide_of_narrow(subject: Subject, scale: Scale, report: Report) -> None:
    """Draining partitions of one message each, beside one partition of all of them."""
    rates: dict[int, list[float]] = {1: [], scale.drain_messages: []}
    for _ in range(scale.rounds):
        for partitions, found in rates.items():
            key = load.fresh_queue()
            items = load.messages(key, scale.drain_messages, partitions, 256)
            await load.push_all(subject.engine, items, 1_000, 2)
            found.append(len(items) / await load.drain(subject.engine, key, len(items), 100, CALLERS))
    narrow, wide = rates.values()
    report.rates[f"{subject.name}.drain_1_partition"] = middle(narrow)
    report.rates[f"{subject.name}.drain_10k_partitions_of_1"] = middle(wide)
    report.ratios[f"{subject.name}.wide_of_narrow_drain"] = middle([w / n for w, n in zip(wide, narrow, strict=True)])


async def backlog(subject: Subject, scale: Scale, report: Report) -> None:
    """How long a pop takes with little and with much waiting."""
    keys = {}
    for size in BACKLOGS:
        keys[size] = load.fresh_queue()
        await load.push_all(subject.engine, load.messages(keys[size], size, 1, 24), 10_000, 2)
    taken: dict[int, list[float]] = {size: [] for size in BACKLOGS}
    for _ in range(scale.rounds):
        for size in BACKLOGS:
            taken[size] += await load.pop_latencies(subject.engine, keys[size], 30, 1)
    medians = [middle(taken[size]) for size in BACKLOGS]
    for size, value in zip(BACKLOGS, medians, strict=True):
        p99 = percentile(taken[size], 0.99)
        report.notes[f"{subject.name}.pop_backlog_{size}"] = f"p50 {value * 1e3:.2f} ms, p99 {p99 * 1e3:.2f} ms"
    report.ratios[f"{subject.name}.pop_p50_backlog_1m_over_1k"] = medians[1] / medians[0]


async def matrix(subject: Subject, scale: Scale, report: Report) -> None:
    """Push, pop+ack, and all three together, by batch, partitions and payload."""
    for batch, partitions, size in scale.matrix:
        count = min(scale.messages, max(2_000, batch * 200))
        key = load.fresh_queue()
        items = load.messages(key, count, partitions, size)
        label = f"{subject.name}.b{batch}.p{partitions}.{size}B"
        report.rates[f"{label}.ceiling"] = count / await subject.ceiling(items, batch)
        report.rates[f"{label}.push"] = count / await load.push_all(subject.engine, items, batch, CALLERS)
        report.rates[f"{label}.pop_ack"] = count / await load.drain(subject.engine, key, count, batch, CALLERS)
        items = load.messages(load.fresh_queue(), count, partitions, size)
        report.rates[f"{label}.cycle"] = count / await load.cycle(subject.engine, items, batch, CALLERS)


STEPS = (warm_up, push_of_ceiling, cycle_over_baseline, concurrent_over_single, wide_of_narrow, backlog, matrix)


async def pinned_snapshot(subject: Subject, dsn: str, scale: Scale, report: Report) -> None:
    """The cycle while a snapshot elsewhere in the database is held open: its last stretch beside its first."""
    connection = await asyncpg.connect(dsn)
    key = QueueKey("pinned")
    await subject.engine.create_queue(key)
    stretch = scale.pinned_seconds / 6
    moved: list[tuple[float, int]] = []
    transaction = connection.transaction(isolation="repeatable_read")
    await transaction.start()
    await connection.fetchval("SELECT count(*) FROM pg_class")

    async def worker() -> None:
        async def step() -> int:
            await subject.engine.push(load.messages(key, 100, 16, 256), json_checked=True)
            popped = await subject.engine.pop(PopRequest(key, batch=100))
            await subject.engine.settle(load.acks(popped.deliveries)) if popped.deliveries else None
            return len(popped.deliveries)

        moved.extend(await load.steady(scale.pinned_seconds, step))

    await asyncio.gather(*(worker() for _ in range(2)))
    await transaction.rollback()
    await connection.close()
    per_stretch = [sum(n for at, n in moved if k * stretch <= at < (k + 1) * stretch) / stretch for k in range(6)]
    first = sum(n for at, n in moved if at < stretch) / stretch
    last = sum(n for at, n in moved if at >= scale.pinned_seconds - stretch) / stretch
    report.rates["postgres.pinned_first"] = first
    report.rates["postgres.pinned_last"] = last
    report.notes["postgres.pinned_by_stretch"] = ", ".join(f"{rate:,.0f}" for rate in per_stretch)
    report.notes["postgres.pinned"] = f"snapshot held for {scale.pinned_seconds:.0f} s, stretches of {stretch:.1f} s"
    report.ratios["postgres.pinned_snapshot_last_of_first"] = last / first
