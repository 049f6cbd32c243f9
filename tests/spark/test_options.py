"""What options mean, and what is said of those that cannot be meant; without a Spark."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from pathlib import Path

import pytest
from pyspark.sql.types import LongType, MapType, StringType, StructField, StructType

from skep.errors import SkepError
from skep.spark.options import CONNECTION, SINK, SOURCE, TABLES, sink_options, source_options
from skep.spark.sink import checked

TEXT, NUMBER = StringType(), LongType()


def test_nothing_said_is_the_whole_queue_on_this_machine() -> None:
    options = source_options({"path": "orders"}, {})

    assert options.queues == ("orders",)
    assert (options.starting, options.ending, options.fail_on_data_loss) == ("earliest", "latest", True)
    assert options.connection.urls == ("http://127.0.0.1:6632",)


def test_the_environment_says_where_the_server_is_unless_an_option_does() -> None:
    environment = {"SKEP_URL": "http://a, http://b", "SKEP_TENANT": "t", "SKEP_TOKEN": "s"}

    connection = source_options({"subscribe": "q"}, environment).connection
    other = source_options({"subscribe": "q", "URL": "http://c"}, environment).connection

    assert (connection.urls, connection.tenant, connection.token) == (("http://a", "http://b"), "t", "s")
    assert (other.urls, other.tenant) == (("http://c",), "t")


@pytest.mark.parametrize("text", ["2026-01-31T12:00:00Z", "2026-01-31T13:00:00+01:00", "1769860800000"])
def test_a_time_is_written_in_either_way(text: str) -> None:
    options = source_options({"subscribe": "q", "startingTimestamp": text}, {})

    assert options.starting_at == datetime(2026, 1, 31, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"maxOffsetPerTrigger": "1"}, "did you mean maxOffsetsPerTrigger"),
        ({"startingOffsets": "{orders: 1}"}, "startingOffsets is not JSON"),
        ({"startingOffsets": '{"orders": "1"}'}, "the last seq that is behind it"),
        ({"startingOffsets": "group"}, "give groupId"),
        ({"endingOffsets": "group"}, "endingOffsets is latest"),
        ({"startingOffsets": "latest", "startingTimestamp": "1"}, "exclude each other"),
        ({"subscribePattern": "a"}, "exclude each other"),
        ({"compression": "gzip"}, "one of none, lz4, zstd"),
        ({"fetchRows": "0"}, "a whole number above 0"),
        ({"retrySeconds": "-1"}, "a number of seconds"),
        ({"failOnDataLoss": "no"}, "true or false"),
        ({"partitions": "[1]"}, "a JSON list of strings"),
        ({"startingTimestamp": "2026-01-31T12:00:00"}, "a time with its offset"),
        ({"table": "messages"}, "one of leases, dead_letters, queues, groups"),
    ],
)
def test_an_option_that_cannot_be_meant_is_refused_with_its_cure(options: dict[str, str], said: str) -> None:
    with pytest.raises(SkepError, match=said):
        source_options({"subscribe": "orders", **options}, {})


def test_a_read_of_nothing_and_a_pattern_that_is_none_are_refused() -> None:
    with pytest.raises(SkepError, match="say which queue to read"):
        source_options({}, {})
    with pytest.raises(SkepError, match="regular expression"):
        source_options({"subscribePattern": "("}, {})


@pytest.mark.parametrize(
    ("columns", "options", "said"),
    [
        ({"body": TEXT}, {"queue": "q"}, "there is no column payload among body"),
        ({"payload": TEXT, "colour": TEXT}, {"queue": "q"}, "a message has no colour"),
        ({"payload": NUMBER}, {"queue": "q"}, "the column payload is string or binary, not bigint"),
        ({"payload": TEXT, "headers": TEXT}, {"queue": "q"}, "the column headers is map<string,string>, not string"),
        ({"payload": TEXT, "headers": MapType(TEXT, NUMBER)}, {"queue": "q"}, "not map<string,bigint>"),
        ({"payload": TEXT}, {}, "say where to write"),
    ],
)
def test_rows_that_cannot_be_messages_are_refused_with_the_cure(
    columns: dict[str, StringType | LongType | MapType], options: dict[str, str], said: str
) -> None:
    schema = StructType([StructField(name, kind) for name, kind in columns.items()])

    with pytest.raises(SkepError, match=said):
        checked(schema, sink_options(options, {}), overwrite=False)


def test_a_delivery_that_is_not_there_is_refused() -> None:
    with pytest.raises(SkepError, match="one of exactly-once, at-least-once"):
        sink_options({"delivery": "often"}, {})


def test_more_rows_than_a_server_takes_at_once_are_refused() -> None:
    with pytest.raises(SkepError, match="the option stageRows is at most 100000"):
        sink_options({"stageRows": "100001"}, {})


def test_every_option_has_a_row_in_the_guide() -> None:
    guide = (Path(__file__).parents[2] / "docs" / "spark.md").read_text(encoding="utf-8")
    rows = set(re.findall(r"^\| `(\w+)` \|", guide, re.MULTILINE))

    assert {*CONNECTION, *SOURCE, *SINK} <= rows
    assert all(f"`{table}`" in guide for table in TABLES)
