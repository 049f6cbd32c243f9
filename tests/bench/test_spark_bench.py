"""`skep bench spark` runs, measures what it says, and finds its driver."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from bench import jdbc
from bench import spark as bench
from bench.report import Report

PROGRAM = """
import msgspec
from bench import spark

if __name__ == "__main__":
    tiny = msgspec.structs.replace(spark.QUICK, rows=50_000, filtered_rows=50_000, mapped_rows=5_000, written_rows=50_000, warm_rounds=1, rounds=1, small_batches=3)
    print(spark.measure(["sqlite", "postgres"], tiny).json())
"""


def test_a_named_driver_is_taken(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("SKEP_JDBC_JAR", str(tmp_path / "driver.jar"))

    assert jdbc.driver_jar() == tmp_path / "driver.jar"


def test_messages_all_differ_and_have_their_size() -> None:
    import pyarrow as pa

    [payload] = pa.ipc.open_stream(bench.stream()).read_all().column("payload").chunks

    assert len(payload.unique()) == bench.STREAM_MESSAGES
    assert len(payload[0].as_py()) == bench.PAYLOAD_BYTES


@pytest.mark.slow
def test_every_step_reports_its_rates_and_ratios() -> None:
    # In a process of its own: it ends the Spark that it started, and must not end that of other tests.
    run = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=600, check=True)
    *_, last = run.stdout.splitlines()  # what is logged of each step comes before it, where nobody said where to
    report = msgspec.json.decode(last, type=Report)

    assert {"sqlite.source_of_parquet", "sqlite.sink_of_arrow_push", "column_over_python_mapping"} <= set(report.ratios)
    assert all(value > 0 for value in [*report.ratios.values(), *report.rates.values()])
