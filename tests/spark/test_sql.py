"""A queue in SQL: a view works, a table is refused with the view that works."""

from __future__ import annotations

import pytest

from skep.spark.options import sink_options, source_options
from tests.spark.conftest import Lake


def test_a_view_reads_a_queue_and_a_table_is_refused_with_the_view_that_works(lake: Lake) -> None:
    lake.client.push("orders", [{"n": 1}, {"n": 2}])
    options = f"OPTIONS (url '{lake.url}', tenant '{lake.tenant}', subscribe 'orders')"

    lake.spark.sql(f"CREATE TEMPORARY VIEW seen_orders USING skep {options}")
    assert [row["seq"] for row in lake.spark.sql("SELECT seq FROM seen_orders ORDER BY seq").collect()] == [1, 2]
    lake.spark.sql("DROP VIEW seen_orders")

    with pytest.raises(Exception, match="make a view: CREATE TEMPORARY VIEW orders USING skep"):
        lake.spark.sql(f"CREATE TABLE orders_table USING skep {options}")


def test_a_table_whose_options_spark_forgot_is_told_of() -> None:
    with pytest.raises(Exception, match="CREATE TABLE Spark forgets the options: make a view"):
        source_options({}, {})


@pytest.mark.parametrize(
    ("option", "hint"),
    [
        ("maxOffsetPerTrigger", "did you mean maxOffsetsPerTrigger"),
        ("kafka.bootstrap.servers", "kafka.bootstrap.servers of the Kafka connector is url here"),
        ("bootstrap.servers", "is url here"),
        ("includeHeaders", "has no counterpart here: headers is always a column"),
        ("kafka.security.protocol", "settings of Kafka's consumers and producers mean nothing here"),
        ("queue", "it is one of a write"),
        ("timeout", "did you mean retrySeconds"),
        ("group", "did you mean groupId"),
    ],
)
def test_an_unknown_option_gets_a_hint_that_fits(option: str, hint: str) -> None:
    with pytest.raises(Exception, match=hint):
        source_options({"subscribe": "orders", option: "x"}, {})


def test_an_option_of_a_read_is_told_as_such_in_a_write() -> None:
    with pytest.raises(Exception, match="it is one of a read"):
        sink_options({"queue": "orders", "groupId": "x"}, {})
    with pytest.raises(Exception, match="topic of the Kafka connector is queue here"):
        sink_options({"topic": "orders"}, {})
