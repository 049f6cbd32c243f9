"""`skep bench http` runs, measures what it says, and prints one object."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from bench import http as bench
from bench.report import Report, machine

RATIOS = ("http_of_engine_push_b100", "single_push_64_of_null_route", "arrow_over_json_push")
TINY = msgspec.structs.replace(bench.QUICK, rounds=1, seconds=0.2, messages=400, arrow_messages=1_000, connections=(2,))


@pytest.mark.slow
async def test_every_step_reports_its_rates_and_ratios(tmp_path: Path) -> None:
    report = Report("http", machine())

    with bench.serving(str(tmp_path / "served.db"), tmp_path) as (port, pid):
        await bench.measure(bench.Subject("sqlite", port, pid, str(tmp_path / "engine.db")), TINY, report)

    assert set(report.ratios) == {f"sqlite.{name}" for name in RATIOS}
    assert all(value > 0 for value in [*report.ratios.values(), *report.rates.values()])
    assert {"sqlite.idle_memory_mib", "sqlite.b100.c2.cycle"} <= set(report.rates)
    assert "p99" in report.notes["sqlite.b100.c2.push"]


@pytest.mark.slow
def test_quick_json_is_one_object_with_every_ratio() -> None:
    command = [sys.executable, "-m", "bench", "http", "--quick", "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=300)

    (line,) = done.stdout.splitlines()
    assert set(json.loads(line)["ratios"]) == {f"{store}.{name}" for store in ("sqlite", "postgres") for name in RATIOS}
