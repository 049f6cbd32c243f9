"""`skep bench engine` runs, measures what it says, and prints one object."""

from __future__ import annotations

import json
import subprocess
import sys

import msgspec
import pytest

from bench import engine as bench
from bench.report import Report, machine

RATIOS = (
    "push_of_ceiling_b100",
    "cycle_over_baseline_b100",
    "concurrent_over_single_commits",
    "wide_of_narrow_drain",
    "pop_p50_backlog_1m_over_1k",
)
TINY = msgspec.structs.replace(
    bench.QUICK, rounds=1, messages=400, cycle_messages=400, single_messages=300, drain_messages=200, pinned_seconds=1
)


async def test_every_step_reports_its_rates_and_ratios_on_sqlite() -> None:
    report = Report("engine", machine())

    async with bench.sqlite_subject() as subject:
        for step in bench.STEPS:
            if step is not bench.backlog:  # a million messages are for the slow test
                await step(subject, TINY, report)

    assert set(report.ratios) == {f"sqlite.{name}" for name in RATIOS if "backlog" not in name}
    assert all(value > 0 for value in [*report.ratios.values(), *report.rates.values()])
    assert {"sqlite.ceiling_b100", "sqlite.push_b100", "sqlite.b100.p1.256B.cycle"} <= set(report.rates)


async def test_the_steps_run_on_postgresql_too(postgres_dsn: str) -> None:
    report = Report("engine", machine())

    async with bench.postgres_subject(postgres_dsn) as subject:
        for step in (bench.push_of_ceiling, bench.cycle_over_baseline, bench.wide_of_narrow):
            await step(subject, TINY, report)
        await bench.pinned_snapshot(subject, postgres_dsn, TINY, report)

    assert "postgres.pinned_snapshot_last_of_first" in report.ratios
    assert all(value > 0 for value in report.ratios.values())


@pytest.mark.slow
def test_quick_json_is_one_object_with_every_ratio() -> None:
    command = [sys.executable, "-m", "bench", "engine", "--quick", "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=300)

    (line,) = done.stdout.splitlines()
    report = json.loads(line)
    assert {"bench", "machine", "rates", "ratios"} <= set(report)
    expected = {f"{store}.{name}" for store in ("sqlite", "postgres") for name in RATIOS}
    assert set(report["ratios"]) == expected | {"postgres.pinned_snapshot_last_of_first"}
