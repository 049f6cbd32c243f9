"""The run: each case with little of something and with much of it, each on a server of its own with a fresh store.

The ratio is what the bystander felt with much over what it felt with little. Both are measured in one run, one after the other;
with several rounds they alternate, and the median counts.
"""

from __future__ import annotations

import asyncio
import resource
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, closing, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import structlog
from msgspec import Struct

from bench.apart import Loader
from bench.http import ALL_IT_CAN, serving
from bench.report import Report, machine, middle
from bench.size import bystander
from bench.size.bystander import Felt
from bench.size.cases import CASES, Case
from bench.size.crowd import Crowd
from skep.client import AsyncClient
from skep.testing.postgres import PostgresServer, running_postgres

P50_TARGET, P99_TARGET = "<= 1.30", "<= 3.00"
LONGEST_MS = 50.0
TARGETS = {f"bystander_p99_{name}": P99_TARGET for name in CASES} | {
    f"bystander_p50_{name}": P50_TARGET for name in CASES
}
CALL_SECONDS = 120.0
WARM_UP_SECONDS = 0.2
Fresh = Callable[[], AbstractContextManager[str]]
log = structlog.get_logger("bench")


class Scale(Struct, frozen=True, kw_only=True):
    """How long the bystander pushes, and how often. ``part`` makes all sizes smaller, for tests."""

    rounds: int
    per_second: float
    seconds: float
    sampled_seconds: float
    slack_seconds: float = 3.0
    part: float = 1.0


QUICK = Scale(rounds=1, per_second=200, seconds=5, sampled_seconds=12)
FULL = Scale(rounds=3, per_second=200, seconds=10, sampled_seconds=65)


async def run(stores: Sequence[str], quick: bool, names: Sequence[str] = ()) -> Report:
    """Measure the cases on each of the stores."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))  # a file for each waiter, on both sides
    scale = QUICK if quick else FULL
    report = Report("size", machine())
    report.notes["load"] = (
        f"a bystander pushes {scale.per_second:g} single messages a second to a queue of its own, {scale.seconds:g} s each; "
        "ratios are what it felt with much over what it felt with little; admission off"
    )
    with closing(Loader()) as loader:
        if "sqlite" in stores:
            await measure("sqlite", fresh_file, names, scale, loader, report)
        if "postgres" in stores:
            with running_postgres() as server:
                await measure("postgres", lambda: fresh_database(server), names, scale, loader, report)
    return report


@contextmanager
def fresh_file() -> Iterator[str]:
    """A store in a file, which may grow large, and is removed."""
    with TemporaryDirectory(prefix="skep-bench-") as folder:
        yield f"{folder}/skep.db"


@contextmanager
def fresh_database(server: PostgresServer) -> Iterator[str]:
    """A store in a database, which is dropped: its chores would fall into the next case."""
    dsn = server.create_database()
    try:
        yield dsn
    finally:
        server.drop_database(dsn)


async def measure(store: str, fresh: Fresh, names: Sequence[str], scale: Scale, loader: Loader, report: Report) -> None:
    """Each case in turn: little, much, little, much …"""
    for name in names or CASES:
        case = CASES[name]
        little: list[Felt] = []
        much: list[Felt] = []
        for _ in range(scale.rounds):
            for size, felt in ((case.small, little), (case.large, much)):
                with fresh() as address:
                    felt.append(await one_server(case, max(1, round(size * scale.part)), address, scale, loader))
        tell(f"{store}.", name, case, little, much, report)
        log.info("measured", store=store, case=name, p99=report.ratios[f"{store}.bystander_p99_{name}"])


async def one_server(case: Case, size: int, store: str, scale: Scale, loader: Loader) -> Felt:
    """Start a server, fill it, and let the bystander push while the case goes on."""
    environment = {**ALL_IT_CAN, **case.environment}
    with TemporaryDirectory(prefix="skep-bench-") as folder, serving(store, Path(folder), environment) as (port, _):
        address = f"127.0.0.1:{port}"
        async with AsyncClient(f"http://{address}", timeout_seconds=CALL_SECONDS) as client:
            await asyncio.to_thread(loader.run, bystander.pushes, address, scale.per_second, WARM_UP_SECONDS)
            event = asyncio.create_task(await case.prepare(Crowd(address, client, scale.slack_seconds), size))
            seconds = scale.sampled_seconds if case.sampled else scale.seconds
            try:
                return await asyncio.to_thread(loader.run, bystander.pushes, address, scale.per_second, seconds)
            finally:
                await ended(event)


async def ended(event: asyncio.Task[None]) -> None:
    """Send the crowd home; what went wrong there is raised."""
    event.cancel()
    await asyncio.wait([event])
    if not event.cancelled():
        event.result()


def tell(prefix: str, name: str, case: Case, little: list[Felt], much: list[Felt], report: Report) -> None:
    """The ratios, and what they are ratios of."""
    for label, felt in (("small", little), ("large", much)):
        for figure in ("p50", "p99", "longest"):
            value = middle([getattr(one, figure) for one in felt])
            report.rates[f"{prefix}{name}.{figure}_ms.{label}"] = value
    for figure in ("p50", "p99"):
        pairs = zip(little, much, strict=True)
        ratio = middle([getattr(large, figure) / getattr(small, figure) for small, large in pairs])
        report.ratios[f"{prefix}bystander_{figure}_{name}"] = ratio
    longest = max(one.longest for one in much)
    stalled = f": a stall over {LONGEST_MS:g} ms" if longest > LONGEST_MS else ""
    report.notes[f"{prefix}{name}"] = (
        f"{case.small:,} / {case.large:,}; the longest push took {max(one.longest for one in little):.1f} / {longest:.1f} ms{stalled}"
    )
