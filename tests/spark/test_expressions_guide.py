"""The guide to expressions on Spark: its samples print what it says, in the session of the tests."""

from __future__ import annotations

import contextlib
import io
import re
from pathlib import Path

from pyspark.sql import SparkSession

GUIDE = Path(__file__).resolve().parents[2] / "docs" / "expressions-on-spark.md"
_SAMPLE = re.compile(r"^```py\n(.*?)^```$\n\n```text\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def test_the_samples_print_what_the_guide_says(spark: SparkSession) -> None:
    samples = _SAMPLE.findall(GUIDE.read_text(encoding="utf-8"))
    assert len(samples) == 2
    names: dict[str, object] = {}
    for text, printed in samples:
        output = io.StringIO()
        with contextlib.redirect_stdout(output):
            exec(text, names)
        assert output.getvalue() == printed
