"""`skep bench webhooks` runs, measures what it says, and prints one object."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from bench import http
from bench import webhooks as bench
from bench.report import Report, machine


@pytest.mark.slow
async def test_every_step_reports_its_rates_and_ratios(tmp_path: Path) -> None:
    report = Report("webhooks", machine())
    scale = bench.Scale(rounds=2, seconds=0.2, command_rounds=2, commands=300)

    with http.serving(str(tmp_path / "served.db"), tmp_path, bench.ENVIRONMENT) as (port, pid):
        await bench.measure(http.Subject("sqlite", port, pid, ""), scale, report)

    assert "sqlite.hook_of_push" in report.ratios
    assert {"sqlite.hook", "sqlite.push", "sqlite.commands"} <= set(report.rates)
    assert all(value > 0 for value in [*report.ratios.values(), *report.rates.values()])
    assert "p99" in report.notes["sqlite.hook"]
    assert "us of the server" in report.notes["sqlite.cpu"]
    assert "us of the worker" in report.notes["sqlite.commands"]


@pytest.mark.slow
def test_quick_json_is_one_object_with_every_ratio() -> None:
    command = [sys.executable, "-m", "bench", "webhooks", "--quick", "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=300)

    (line,) = done.stdout.splitlines()
    assert {"sqlite.hook_of_push", "postgres.hook_of_push"} <= set(json.loads(line)["ratios"])
