"""The demo from start to end, on the Spark of all tests: its story adds up, and it leaves nothing behind."""

from __future__ import annotations

import tempfile
from pathlib import Path

import psutil
import pytest
from pyspark.sql import SparkSession

from skep.cli.demo.command import demo
from tests.support.demo import check_lake, check_story, serving


@pytest.mark.slow  # tests/cli/test_demo.py has the story without Spark, and the other tests here each of its pipelines
def test_the_story_adds_up_and_leaves_nothing_behind(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setenv("SKEP_STORE", "postgresql://nobody@127.0.0.1:1/none")  # which must not reach the demo's server

    code = demo(once=True)

    printed, complaints = capsys.readouterr()
    assert (code, complaints) == (0, ""), printed
    check_story(printed)
    check_lake(printed)
    assert not psutil.pid_exists(serving(printed))
    assert list(tmp_path.iterdir()) == []
    assert SparkSession.getActiveSession() is spark, "it is not the demo's to stop"
