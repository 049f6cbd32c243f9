"""A queue as a table."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import functions
from pyspark.sql.types import StructType

from skep.spark.schema import MESSAGES
from skep.testing.postgres import free_port
from tests.spark.conftest import Lake

TRACE = "01a1de02-7b1f-7061-b55a-489bc83b0732"


@pytest.mark.usefixtures("usual_settings")
def test_a_message_is_a_row_with_all_that_was_pushed(lake: Lake) -> None:
    before = datetime.now(UTC)
    [pushed] = lake.client.push(
        "orders", {"n": 1}, partition="c-1", transaction_id="t-1", trace_id=TRACE, headers={"a": "1", "b": "2"}
    ).stored

    [row] = lake.read("orders").collect()

    assert row.asDict() == {
        "queue": "orders", "partition": "c-1", "seq": 1, "message_id": pushed.message_id, "transaction_id": "t-1",
        "trace_id": TRACE, "payload": '{"n":1}', "headers": {"a": "1", "b": "2"}, "created_at": row.created_at,
    }  # fmt: skip
    assert before.replace(tzinfo=None) <= row.created_at


def test_the_schema_is_the_documented_one(lake: Lake) -> None:
    lake.client.push("orders", 1)

    schema = lake.read("orders").schema

    assert schema.simpleString() == (
        "struct<queue:string,partition:string,seq:bigint,message_id:string,transaction_id:string,trace_id:string,"
        "payload:string,headers:map<string,string>,created_at:timestamp>"
    )


def test_a_message_that_nobody_traces_is_its_own_trace(lake: Lake) -> None:
    lake.client.push("orders", [1, 2])

    rows = lake.read("orders").collect()

    assert [row.trace_id for row in rows] == [row.message_id for row in rows]
    assert [row.headers for row in rows] == [None, None]


@pytest.mark.parametrize("parts", [1, 3])
def test_a_range_is_split_evenly_and_every_message_is_read_once(lake: Lake, parts: int) -> None:
    lake.client.push("orders", list(range(50)))

    frame = lake.read("orders", minPartitions=parts)
    rows = frame.select("seq", functions.spark_partition_id().alias("task")).collect()

    assert sorted(row.seq for row in rows) == list(range(1, 51))
    sizes = [sum(row.task == task for row in rows) for task in {row.task for row in rows}]
    assert len(sizes) == min(parts, 50)
    assert max(sizes) - min(sizes) <= 1
    assert [row.seq for row in frame.collect()] == list(range(1, 51))  # in the order of the log, task by task


def test_reading_again_gives_the_same_rows_whatever_is_pushed_meanwhile(lake: Lake) -> None:
    lake.client.push("orders", list(range(20)))
    frame = lake.read("orders", startingOffsets='{"orders": 5}', endingOffsets='{"orders": 15}')

    first = frame.collect()
    lake.client.push("orders", list(range(20)))

    assert [row.seq for row in first] == list(range(6, 16))
    assert frame.collect() == first


def test_several_queues_are_read_together(lake: Lake) -> None:
    lake.client.push("a,b", [1, 2])
    lake.client.push("c", [3])
    lake.client.push("other", [4])

    named = lake.read('["a,b", "c"]').select("queue", "payload").collect()
    matching = lake.spark.read.format("skep").options(**lake.connection, subscribePattern="a.*|c").load()

    assert sorted(named) == [("a,b", "1"), ("a,b", "2"), ("c", "3")]
    assert sorted(matching.select("queue", "payload").collect()) == sorted(named)


def test_only_some_columns_can_be_asked_for(lake: Lake) -> None:
    lake.client.push("orders", {"n": 1})

    by_option = lake.read("orders", columns="payload,seq,content_type")
    by_schema = lake.spark.read.schema("seq bigint, queue string").format("skep").options(**lake.connection)

    assert [tuple(row) for row in by_option.collect()] == [('{"n":1}', 1, None)]
    assert [tuple(row) for row in by_schema.load("orders").collect()] == [(1, "orders")]


def test_only_some_partitions_can_be_asked_for(lake: Lake) -> None:
    for key in ("a", "b", "c,d"):
        lake.client.push("orders", [key], partition=key)

    rows = lake.read("orders", partitions='["a", "c,d"]').collect()

    assert [row.partition for row in rows] == ["a", "c,d"]


@pytest.mark.parametrize("compression", ["lz4", "zstd"])
def test_a_stream_may_be_compressed(lake: Lake, compression: str) -> None:
    lake.client.push("orders", list(range(100)))

    assert lake.read("orders", compression=compression, fetchRows=7).count() == 100


def test_an_empty_queue_is_an_empty_table(lake: Lake) -> None:
    lake.client.configure("orders")

    assert lake.read("orders").collect() == []


def test_a_payload_is_the_same_to_the_last_byte(lake: Lake) -> None:
    texts = ['{"b": 1.0,  "a":"é\\u00e9 \\/"}', "[1e2, 0.10]", '"\\ud83d\\ude00 😀"']
    for text in texts:
        lake.client.request("POST", "/api/v1/push", body={"items": [{"queue": "orders", "payload": _raw(text)}]})

    assert [row.payload for row in lake.read("orders").collect()] == texts


def _raw(text: str) -> Any:
    import msgspec

    return msgspec.Raw(text.encode())


def test_reading_begins_and_ends_at_times(lake: Lake) -> None:
    lake.client.push("orders", [1, 2])
    between = datetime.now(UTC)
    lake.client.push("orders", [3])

    before = lake.read("orders", endingTimestamp=between.isoformat()).collect()
    after = lake.read("orders", startingTimestamp=between.isoformat()).collect()

    assert [row.payload for row in before] == ["1", "2"]
    assert [row.payload for row in after] == ["3"]


def test_reading_begins_where_a_group_is(lake: Lake) -> None:
    lake.client.push("orders", [1, 2, 3])
    lake.client.ack(*lake.client.pop("orders", group="workers", batch=2))

    rows = lake.read("orders", startingOffsets="group", groupId="workers").collect()

    assert [row.payload for row in rows] == ["3"]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"startingOffsets": '{"others": 1}'}, "not subscribed to"),
        ({"startingOffsets": '{"orders": 7}'}, "whose last seq is 1"),
        ({"columns": "seq,body"}, "no column 'body' here"),
    ],
)
def test_an_option_that_cannot_be_meant_is_refused_with_its_cure(
    lake: Lake, options: dict[str, str], said: str
) -> None:
    lake.client.push("orders", 1)

    with pytest.raises(PySparkException, match=said):
        lake.read("orders", **options).collect()


def test_a_queue_that_is_not_there_is_said_to_be_missing(lake: Lake) -> None:
    with pytest.raises(PySparkException, match=r"there is no queue 'nowhere'\. Make it first"):
        lake.read("nowhere").collect()


def test_a_server_that_is_away_is_waited_for_and_then_said_to_be(lake: Lake) -> None:
    away = {**lake.connection, "url": f"http://127.0.0.1:{free_port()}", "retrySeconds": "1"}

    with pytest.raises(PySparkException, match=r"This went on for 1 s\. Is the server running"):
        lake.spark.read.format("skep").options(**away).load("orders").collect()


def test_the_next_server_is_asked_when_one_is_away(lake: Lake) -> None:
    lake.client.push("orders", [1, 2])
    urls = f"http://127.0.0.1:{free_port()}, {lake.url}"

    rows = lake.spark.read.format("skep").options(**{**lake.connection, "url": urls}).load("orders").collect()

    assert [row.payload for row in rows] == ["1", "2"]


def test_a_schema_that_does_not_fit_is_refused(lake: Lake) -> None:
    lake.client.push("orders", 1)

    with pytest.raises(PySparkException, match="the column seq is bigint, not string"):
        lake.spark.read.schema("seq string").format("skep").options(**lake.connection).load("orders").collect()


def test_spark_expects_exactly_the_arrow_schema_that_comes() -> None:
    from pyspark.sql.pandas.types import to_arrow_schema

    from skep.spark.schema import ddl

    schema = StructType.fromDDL(ddl(MESSAGES))
    assert isinstance(schema, StructType)
    assert to_arrow_schema(schema, timezone="UTC").equals(MESSAGES)
