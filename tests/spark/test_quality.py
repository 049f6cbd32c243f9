"""Checks of the spec on rows: what fails is noted with its reason, counted as it passes, and quarantined where the spec says so."""

from __future__ import annotations

import pytest
from pyspark.sql import Observation, SparkSession

from skep.errors import SkepError
from skep.spark.pipelines.quality import quality, results
from skep.spec import load

APP = load(
    """
app Shop {
  queue Orders {
    message_type {
      cents: int
      customer: string
      extra: json?
    }
    check Positive {
      holds: cents > 0
      on_fail: drop
    }
    check Named {
      holds: customer.matches("^[a-z]+$")
    }
    check Divides {
      holds: 100 / cents < 1000
      on_fail: fail
    }
    check Word {
      holds: customer.matches("(?i)ANN") || customer != ""
    }
  }
  queue Plain {}
}
""",
    "shop.skep",
)
PAYLOADS = [
    '{"cents": 5, "customer": "ann"}',
    '{"cents": -5, "customer": "bob"}',
    '{"cents": 0, "customer": ""}',
    '{"cents": 1, "customer": "Ann"}',
    '{"cents": "1", "customer": "cy"}',
    "no json",
]


def test_what_fails_is_noted_counted_and_quarantined(spark: SparkSession) -> None:
    rows = spark.createDataFrame(list(enumerate(PAYLOADS)), "seq bigint, payload string").coalesce(1)
    counting = Observation("quality")
    checked = quality(rows, APP, "Orders", observe=counting)
    found = {row.seq: {one.check: one.error for one in row.failed_checks} for row in checked.rows.collect()}
    assert {seq: sorted(failed) for seq, failed in found.items()} == {
        0: [],
        1: ["Positive"],
        2: ["Divides", "Named", "Positive", "Word"],
        3: ["Named"],
        4: ["Divides", "Named", "Positive", "Word"],
        5: ["Divides", "Named", "Positive", "Word"],
    }
    assert found[1]["Positive"] == "does not hold"
    assert "division by zero" in found[2]["Divides"]
    assert found[4]["Named"] == "field 'cents' does not fit: expected int, not \"1\""
    assert [(one.check, one.failed, one.status) for one in results(APP, "Orders", counting.get)] == [
        ("Positive", 4, "drop"),
        ("Named", 4, "warn"),
        ("Divides", 3, "fail"),
        ("Word", 3, "warn"),
    ]
    assert counting.get["rows"] == 6
    assert [row.seq for row in checked.kept.orderBy("seq").collect()] == [0, 3]
    assert [row.seq for row in checked.quarantined.orderBy("seq").collect()] == [1, 2, 4, 5]
    assert checked.kept.columns == ["seq", "payload"]
    assert list(checked.left_out) == ["Word"]


def test_a_queue_without_checks_is_told(spark: SparkSession) -> None:
    rows = spark.createDataFrame([("{}",)], "payload string")
    with pytest.raises(SkepError, match="has no checks"):
        quality(rows, APP, "Plain")
