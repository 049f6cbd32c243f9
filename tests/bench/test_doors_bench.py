"""`skep bench doors` runs, and measures what it says."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench import doors as bench
from bench import http
from bench.report import Report, machine


@pytest.mark.slow
async def test_sqs_is_measured_beside_the_native_interface(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench, "QUICK_ROUNDS", 1)
    monkeypatch.setattr(bench, "QUICK_MESSAGES", 2_000)
    monkeypatch.setattr(bench, "CONNECTIONS", 4)
    report = Report("doors", machine())
    with http.serving(str(tmp_path / "served.db"), tmp_path, http.ALL_IT_CAN) as (port, pid):
        await bench.measure(http.Subject("sqlite", port, pid, ""), True, report)
    assert set(report.ratios) == {"sqlite.sqs_send_of_native", "sqlite.sqs_cycle_of_native"}
    assert all(value > 0 for value in [*report.ratios.values(), *report.rates.values()])
