"""The run: every system that is installed, in rounds that alternate between them, and the ratios of what ran side by side.

Each load of a round goes to all systems in turn before the next load begins, so a machine that grows slower takes from all alike.
The median round counts; a ratio is the median of the ratios of the rounds.
"""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Callable, Sequence
from contextlib import ExitStack, closing
from pathlib import Path
from tempfile import TemporaryDirectory

import structlog
from msgspec import Struct
from rich.table import Table

from bench.apart import Loader
from bench.load import fresh_queue
from bench.peers import loads, syncs
from bench.peers.disk import tell_disk
from bench.peers.lines import Way
from bench.peers.loads import Outcome
from bench.peers.systems import STARTERS, Missing, Running
from bench.report import Report, machine, middle, percentile, shown

SIZE = 300
BATCH = 100
SINGLE_CALLERS = 64
BATCH_CALLERS = 8
STEADY_PER_SECOND = 500
STEADY_PUSHERS = 16
STEADY_POPPERS = 4
BUSY_LOADER = 0.8
"""A loader that uses more of its core may be what was measured; the report says so."""
TARGETS = {
    "cycle_sqlite_over_redis": ">= 0.50",
    "cycle_postgres_over_pgmq": ">= 1.10",
    "cycle_32_postgres_over_pgmq": ">= 1.30",
    "cycle_32_two_workers_over_one": ">= 1.15",
    "cycle_32_two_workers_over_one_sqlite": ">= 1.15",
    "single_sqlite_over_rabbitmq": ">= 0.75",
    "single_postgres_over_pgmq": ">= 1.50",
    "batch_sqlite_over_rabbitmq": ">= 1.80",
}
COLUMNS = {
    "single": "single push/s, 64 callers",
    "batch": "push/s, batches of 100",
    "cycle": "push+pop+ack/s, 4+4",
    "cycle_32": "32+32",
    "latency_p50_ms": "at 500/s: p50 ms",
    "latency_p99_ms": "p99 ms",
    "cpu_percent_at_500": "CPU %",
    "cpu_s_per_100k": "CPU s per 100,000 cycles",
    "syncs_per_push": "syncs per push",
    "lost": "lost",
}
RATIOS = {
    "cycle_sqlite_over_redis": ("cycle", "sqlite", "redis"),
    "cycle_32_sqlite_over_redis": ("cycle_32", "sqlite", "redis"),
    "cycle_postgres_over_pgmq": ("cycle", "postgres", "pgmq"),
    "cycle_32_postgres_over_pgmq": ("cycle_32", "postgres", "pgmq"),
    "cycle_32_two_workers_over_one": ("cycle_32", "postgres_workers", "postgres"),
    "cycle_32_two_workers_over_one_sqlite": ("cycle_32", "sqlite_workers", "sqlite"),
    "single_sqlite_over_rabbitmq": ("single", "sqlite", "rabbitmq"),
    "single_postgres_over_pgmq": ("single", "postgres", "pgmq"),
    "batch_sqlite_over_rabbitmq": ("batch", "sqlite", "rabbitmq"),
}
log = structlog.get_logger("bench")


class Scale(Struct, frozen=True, kw_only=True):
    """How much of everything. A load ends after its seconds or its messages, whichever comes first."""

    rounds: int
    seconds: float
    messages: int
    steady_seconds: float
    synced_pushes: int


QUICK = Scale(rounds=2, seconds=1.5, messages=40_000, steady_seconds=3, synced_pushes=30)
FULL = Scale(rounds=5, seconds=5, messages=400_000, steady_seconds=10, synced_pushes=100)

Loads = dict[str, Callable[[Loader, Way, Scale], Outcome]]
LOADS: Loads = {
    "single": lambda loader, way, scale: loader.run(
        loads.push_only, way.with_batch(1), SINGLE_CALLERS, scale.seconds, scale.messages
    ),
    "batch": lambda loader, way, scale: loader.run(loads.push_only, way, BATCH_CALLERS, scale.seconds, scale.messages),
    "cycle": lambda loader, way, scale: loader.run(loads.cycle, way, 4, scale.seconds, scale.messages),
    "cycle_32": lambda loader, way, scale: loader.run(loads.cycle, way, 32, scale.seconds, scale.messages),
    "steady": lambda loader, way, scale: loader.run(
        loads.steady, way, STEADY_PUSHERS, STEADY_POPPERS, STEADY_PER_SECOND, scale.steady_seconds
    ),
}
Found = dict[tuple[str, str], list[Outcome]]


async def run(names: Sequence[str], quick: bool) -> Report:
    """Start what is installed of the named systems, and measure it."""
    return await asyncio.to_thread(measure, names or list(STARTERS), QUICK if quick else FULL)


def measure(names: Sequence[str], scale: Scale) -> Report:
    """Start, measure, and end the systems."""
    report = Report("peers", machine())
    report.notes["load"] = (
        f"messages of {SIZE} bytes; every push is answered when it is on disk; one loader process on one core; "
        f"{scale.rounds} rounds that alternate between the systems, the median counts"
    )
    with TemporaryDirectory(prefix="skep-bench-") as name, ExitStack() as running, closing(Loader()) as loader:
        tell_disk(Path(name), report)
        systems = start(names, Path(name), running, report)
        for system in systems:
            check_syncs(system, loader, Path(name), scale, report)
        found: Found = {}
        for number in range(scale.rounds):
            for load, drive in LOADS.items():
                for system in systems:
                    way = Way(system.protocol, system.address, fresh_queue().name, BATCH, SIZE, system.pids)
                    found.setdefault((load, system.name), []).append(drive(loader, way, scale))
                    log.info("measured", load=load, system=system.name, round=number + 1)
    tell(systems, found, report)
    return report


def start(names: Sequence[str], folder: Path, running: ExitStack, report: Report) -> list[Running]:
    """The systems that are installed, running; of the others the report says how to install them."""
    systems = []
    for name in names:
        own = folder / name
        own.mkdir()
        try:
            systems.append(running.enter_context(STARTERS[name](own)))
        except Missing as missing:
            report.notes[f"missing.{name}"] = f"not installed, left out; install it with: {missing}"
            shutil.rmtree(own)
    return systems


def check_syncs(system: Running, loader: Loader, folder: Path, scale: Scale, report: Report) -> None:
    """Count the syncs of the disk under pushes that wait for each other: each needs one of its own."""
    way = Way(system.protocol, system.address, fresh_queue().name, 1, SIZE, system.pids)
    loader.run(loads.one_by_one, way, 1)  # connections and tables are made before anything is counted
    with syncs.counted(system.pids, folder) as count:
        way = Way(system.protocol, system.address, fresh_queue().name, 1, SIZE, system.pids)
        pushed = loader.run(loads.one_by_one, way, scale.synced_pushes).pushed
    told = count.why_not
    if count.syncs is not None:
        report.rates[f"syncs_per_push.{system.name}"] = count.syncs / pushed
        told = f"{count.syncs} syncs of the disk for {pushed} pushes, one after the other (strace)"
        if count.syncs < pushed:
            told += ": NOT DURABLE"
    report.notes[f"durable.{system.name}"] = f"{system.version}; {system.durable}; {told}"


def tell(systems: list[Running], found: Found, report: Report) -> None:
    """Rates of the median rounds, ratios, and what was lost."""
    for system in systems:
        name = system.name
        for load in ("single", "batch"):
            report.rates[f"{load}.{name}"] = middle([one.pushed / one.seconds for one in found[load, name]])
        for load in ("cycle", "cycle_32"):
            report.rates[f"{load}.{name}"] = middle([one.popped / one.seconds for one in found[load, name]])
        steady = found["steady", name]
        for label, share in (("p50", 0.5), ("p99", 0.99)):
            value = middle([percentile(one.latencies, share) * 1e3 for one in steady])
            report.rates[f"latency_{label}_ms.{name}"] = value
        report.rates[f"cpu_s_per_100k.{name}"] = middle(
            [one.system_cpu / one.popped * 1e5 for one in found["cycle", name]]
        )
        report.rates[f"cpu_percent_at_500.{name}"] = middle([one.system_cpu / one.seconds * 100 for one in steady])
        tell_loader(name, found, report)
        tell_loss(name, found, report)
    for ratio, (load, ours, theirs) in RATIOS.items():
        if (load, ours) in found and (load, theirs) in found:
            report.ratios[ratio] = middle(
                [rate(a) / rate(b) for a, b in zip(found[load, ours], found[load, theirs], strict=True)]
            )


def rate(outcome: Outcome) -> float:
    """Messages a second."""
    return outcome.pushed / outcome.seconds


def tell_loader(name: str, found: Found, report: Report) -> None:
    """The loader's share of its core under each load."""
    shares = {load: middle([one.loader_share for one in found[load, name]]) for load in LOADS}
    text = ", ".join(f"{load} {share:.0%}" for load, share in shares.items())
    busy = [load for load, share in shares.items() if share > BUSY_LOADER]
    report.notes[f"loader.{name}"] = text + (f"; the loader was the limit of {', '.join(busy)}" if busy else "")


def tell_loss(name: str, found: Found, report: Report) -> None:
    """What was pushed and did not come back, or came twice."""
    outcomes = [one for load in LOADS for one in found[load, name]]
    pushed, lost, repeated = (sum(getattr(one, field) for one in outcomes) for field in ("pushed", "lost", "repeated"))
    report.rates[f"lost.{name}"] = lost
    report.notes[f"loss.{name}"] = f"{pushed:,} pushed, {lost:,} lost, {repeated:,} came more than once"


def table_of_systems(report: Report) -> Table:
    """A line for each system, a column for each figure."""
    table = Table(title="skep bench peers", title_justify="left")
    table.add_column("system")
    for column in COLUMNS.values():
        table.add_column(column, justify="right")
    for system in STARTERS:
        if f"cycle.{system}" in report.rates:
            figures = [report.rates.get(f"{name}.{system}") for name in COLUMNS]
            table.add_row(system, *("?" if figure is None else shown(figure) for figure in figures))
    return table
