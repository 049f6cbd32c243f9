"""`skep bench size` fills a server, measures a bystander, and tells what it felt with little and with much."""

from __future__ import annotations

from contextlib import closing, nullcontext

import msgspec
import pytest

from bench.apart import Loader
from bench.report import Report, machine
from bench.size import run as bench
from bench.size.bystander import Felt
from bench.size.cases import CASES

TINY = msgspec.structs.replace(
    bench.QUICK, seconds=0.2, sampled_seconds=0.2, per_second=100, slack_seconds=0.2, part=0.002
)
FIGURES = {f"{figure}_ms.{label}" for figure in ("p50", "p99", "longest") for label in ("small", "large")}


async def measured(store: str, fresh: bench.Fresh, names: list[str]) -> Report:
    report = Report("size", machine())
    with closing(Loader()) as loader:
        await bench.measure(store, fresh, names, TINY, loader, report)
    return report


def holds_all(report: Report, store: str, names: list[str]) -> bool:
    assert set(report.rates) == {f"{store}.{name}.{figure}" for name in names for figure in FIGURES}
    assert set(report.ratios) == {f"{store}.bystander_{figure}_{name}" for name in names for figure in ("p50", "p99")}
    return all(value > 0 for value in [*report.rates.values(), *report.ratios.values()])


async def test_a_case_tells_what_the_bystander_felt_with_little_and_with_much() -> None:
    report = await measured("sqlite", bench.fresh_file, ["waiters"])

    assert holds_all(report, "sqlite", ["waiters"])


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(CASES))
async def test_every_case_runs_on_sqlite(name: str) -> None:
    assert holds_all(await measured("sqlite", bench.fresh_file, [name]), "sqlite", [name])


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(CASES))
async def test_every_case_runs_on_postgresql(name: str, postgres_dsn: str) -> None:
    small_and_large = iter([postgres_dsn, postgres_dsn])
    report = await measured("postgres", lambda: nullcontext(next(small_and_large)), [name])

    assert holds_all(report, "postgres", [name])


def test_a_stall_and_the_medians_of_the_rounds_are_told() -> None:
    report = Report("size", {})
    little = [Felt(1, 2, 3), Felt(1, 4, 5), Felt(1, 3, 4)]
    much = [Felt(2, 8, 40), Felt(2, 8, 60), Felt(2, 6, 10)]

    bench.tell("sqlite.", "queues", CASES["queues"], little, much, report)

    assert report.ratios == {"sqlite.bystander_p50_queues": 2, "sqlite.bystander_p99_queues": 2}
    assert report.rates["sqlite.queues.p99_ms.small"] == 3
    assert "stall over 50 ms" in report.notes["sqlite.queues"]
