"""The example runs as it stands, cell by cell, in the session of the tests."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

EXAMPLE = Path(__file__).parents[2] / "examples" / "pipelines.py"


@pytest.mark.slow
def test_the_example_runs_from_its_first_cell_to_its_last(
    spark: SparkSession, capsys: pytest.CaptureFixture[str]
) -> None:
    assert spark is not None
    runpy.run_path(str(EXAMPLE))
    printed = capsys.readouterr().out
    assert (
        "sum of numbers 210; journeys [('broken', 4), ('done', 16)]; 4 letters whose amount looks like 9,9\n" in printed
    )
