"""`skep bench qos` runs, measures what it says, and prints one object."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from bench import http
from bench import qos as bench
from bench.report import Report, machine


@pytest.mark.slow
async def test_both_kinds_are_measured_from_one_connection_and_from_many(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bench, "QUICK_SECONDS", 0.2)
    report = Report("qos", machine())
    with http.serving(str(tmp_path / "served.db"), tmp_path) as (port, pid):
        await bench.measure(http.Subject("sqlite", port, pid, ""), True, report)
    assert set(report.ratios) == {"sqlite.qos0_over_qos1_single", "sqlite.qos0_over_qos1_c64"}
    assert {"sqlite.qos0_single", "sqlite.qos1_single"} <= set(report.rates)
    assert all(value > 0 for value in [*report.ratios.values(), *report.rates.values()])
    assert "p99" in report.notes["sqlite.c1.qos0"]


@pytest.mark.slow
def test_quick_json_is_one_object_with_every_ratio() -> None:
    command = [sys.executable, "-m", "bench", "qos", "--quick", "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=300)
    (line,) = done.stdout.splitlines()
    assert {"sqlite.qos0_over_qos1_single", "postgres.qos0_over_qos1_single"} <= set(json.loads(line)["ratios"])
