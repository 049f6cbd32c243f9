"""`journeys` says when no message carries the trace of another, and how to get one."""

from __future__ import annotations

from pyspark.sql import SparkSession

from skep.spark.running.following import untraced
from tests.spark.conftest import Lake
from tests.spark.test_running import ran


def test_messages_without_a_trace_are_told_of_with_the_way_to_one(lake: Lake) -> None:
    lake.client.push("orders", [{"n": 1}, {"n": 2}])

    run = ran(lake, "journeys").run

    assert (run.error, run.stages[0].rows_out) == (None, 2)
    assert run.stages[0].note.startswith("2 journeys of one message each: no message carries the trace of another")
    assert "trace_id=message.trace_id" in run.stages[0].note


def test_a_journey_over_two_messages_is_trace_enough(spark: SparkSession) -> None:
    one, two = (spark.createDataFrame([(1,), (count,)], "messages int") for count in (1, 2))
    assert untraced(two, 2) == ""
    assert untraced(one, 2) != ""
    assert untraced(one.limit(0), 0) == ""
