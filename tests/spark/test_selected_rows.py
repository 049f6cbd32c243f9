"""Only the wanted messages are sent to Spark: options of a read name them, and filters of a query are not pushed down."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource, DataSourceReader, EqualTo, Filter

from skep.spark.options import source_options
from skep.spark.schema import schema_of
from skep.spark.source import MessageReader
from tests.spark.conftest import Lake

PUSHES_FILTERS = "spark.sql.python.filterPushdown.enabled"
TRACE = "01a1de02-7b1f-7061-b55a-489bc83b0732"


@pytest.fixture
def filled(lake: Lake) -> Lake:
    """30 messages in three partitions; each third one has a transaction id, and two have one trace."""
    for number in range(30):
        lake.client.push(
            "orders",
            number,
            partition=f"p-{number % 3}",
            transaction_id=f"t-{number}" if number % 3 == 0 else None,
            trace_id=TRACE if number in (17, 18) else None,
        )
    return lake


def sent(lake: Lake, **options: str) -> list[int]:
    """The payloads of the rows that the server sends."""
    reader = MessageReader(
        source_options({**lake.connection, "subscribe": "orders", **options}), schema_of(("payload",))
    )
    batches = [batch for portion in reader.partitions() for batch in reader.read(portion)]
    return [int(text) for batch in batches for text in batch.column("payload").to_pylist()]


def test_messages_of_some_transaction_ids_and_traces_are_sent_and_no_others(filled: Lake) -> None:
    assert sent(filled) == list(range(30))
    assert sent(filled, transactionIds="t-27, t-3, t-4") == [3, 27]
    assert sent(filled, traceIds=TRACE) == [17, 18]
    assert sent(filled, traceIds=TRACE, transactionIds="t-18") == [18]
    assert sent(filled, traceIds=TRACE, partitions="p-2") == [17]
    assert sent(filled, transactionIds="t-3", fetchRows="2") == [3]
    assert sent(filled, transactionIds="none") == []


def test_a_query_has_the_rows_that_its_options_name(filled: Lake) -> None:
    assert sorted(row.seq for row in filled.read("orders", transactionIds="t-0,t-9").collect()) == [1, 10]


@pytest.mark.slow
def test_a_stream_has_the_rows_that_its_options_name(filled: Lake) -> None:
    stream = filled.stream("orders", traceIds=TRACE).writeStream.format("memory").queryName("traced")
    query = stream.option("checkpointLocation", str(filled.folder / "traced")).trigger(availableNow=True).start()
    query.awaitTermination()
    assert sorted(row.seq for row in filled.spark.table("traced").collect()) == [18, 19]


@pytest.mark.parametrize("pushes", ["true", pytest.param("false", marks=pytest.mark.slow)])
def test_a_frame_that_several_queries_filter_has_all_rows_for_each(filled: Lake, pushes: str) -> None:
    """With a reader that takes filters, Spark would give one query the rows of another (docs/adr/0054)."""
    spark = filled.spark
    before = spark.conf.get(PUSHES_FILTERS)
    spark.conf.set(PUSHES_FILTERS, pushes)
    try:
        frame = filled.read("orders")
        first, second = frame.where("seq = 3"), frame.where("seq = 4")
        assert [row.seq for row in first.collect()] == [3]
        assert sorted(row.seq for row in frame.where("seq = 1 or seq = 2").collect()) == [1, 2]
        assert frame.count() == 30
        assert sorted(row.seq for row in first.union(second).collect()) == [3, 4]
    finally:
        spark.conf.set(PUSHES_FILTERS, before or "false")


class Numbers(DataSource):
    """The numbers 0 to 9, by a reader that takes filters."""

    @classmethod
    def name(cls) -> str:
        return "numbers"

    def schema(self) -> str:
        return "number int"

    def reader(self, schema: Any) -> DataSourceReader:
        return NumberReader()


class NumberReader(DataSourceReader):
    """Applies `number = …` itself."""

    def __init__(self) -> None:
        self._wanted: set[int] = set()

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
        for one in filters:
            if isinstance(one, EqualTo):
                self._wanted.add(one.value)
            else:
                yield one

    def read(self, partition: object) -> Iterator[tuple[int]]:
        return iter([(number,) for number in range(10) if not self._wanted or number in self._wanted])


@pytest.mark.slow
def test_spark_still_mixes_up_queries_of_one_frame_when_their_filters_are_pushed_down(spark: SparkSession) -> None:
    """When this fails, Spark has been mended, and ADR 0054 can be decided anew."""
    before = spark.conf.get(PUSHES_FILTERS)
    spark.conf.set(PUSHES_FILTERS, "true")
    try:
        spark.dataSource.register(Numbers)
        frame = spark.read.format("numbers").load()
        first, second = frame.where("number = 3"), frame.where("number = 4")
        assert [row.number for row in first.union(second).collect()] == [4, 4]
    finally:
        spark.conf.set(PUSHES_FILTERS, before or "false")
