"""Rows as messages: what becomes of their columns, and that each is there once."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, functions

from tests.spark.conftest import Lake

TRACE = "01a1de02-7b1f-7061-b55a-489bc83b0732"
DELIVERIES = ["exactly-once", "at-least-once"]


def write(lake: Lake, frame: DataFrame, **options: Any) -> None:
    frame.write.format("skep").options(**lake.connection, **options).mode("append").save()


def payloads(lake: Lake, queue: str) -> list[str]:
    return [row.payload for row in lake.read(queue).collect()]


@pytest.mark.parametrize("delivery", DELIVERIES)
def test_rows_become_messages_in_their_order(lake: Lake, delivery: str) -> None:
    frame = lake.spark.range(0, 30, 1, 3).select(functions.to_json(functions.struct("id")).alias("payload"))

    write(lake, frame, queue="orders", delivery=delivery)

    found = payloads(lake, "orders")
    assert sorted(found) == sorted(f'{{"id":{n}}}' for n in range(30))
    if delivery == "exactly-once":
        assert found == [f'{{"id":{n}}}' for n in range(30)]


@pytest.mark.parametrize("delivery", DELIVERIES)
def test_all_columns_of_a_message_are_taken_over(lake: Lake, delivery: str) -> None:
    rows = [("orders", "p", '{"n":1}', {"a": "b"}, TRACE, "t-1"), ("others", None, "2", None, None, None)]
    frame = lake.spark.createDataFrame(
        rows,
        "queue string, partition string, payload string, headers map<string,string>, trace_id string, "
        "transaction_id string",
    )

    write(lake, frame, delivery=delivery)

    [first] = lake.read("orders").collect()
    [second] = lake.read("others").collect()
    assert (first.partition, first.payload, first.headers) == ("p", '{"n":1}', {"a": "b"})
    assert (first.trace_id, first.transaction_id) == (TRACE, "t-1")
    assert (second.partition, second.payload, second.headers) == ("Default", "2", None)


@pytest.mark.parametrize("delivery", DELIVERIES)
def test_a_message_for_later_waits(lake: Lake, delivery: str) -> None:
    later = datetime.now(UTC) + timedelta(hours=1)
    frame = lake.spark.createDataFrame([("1", later), ("2", None)], "payload string, deliver_at timestamp")

    write(lake, frame, queue="orders", delivery=delivery)

    assert payloads(lake, "orders") == ["2"]
    assert lake.client.stats("orders").stats.scheduled == 1


@pytest.mark.parametrize("delivery", DELIVERIES)
def test_a_transaction_id_that_is_there_already_is_stored_once(lake: Lake, delivery: str) -> None:
    lake.client.push("orders", 1, transaction_id="t-1")
    frame = lake.spark.createDataFrame([("2", "t-1"), ("3", "t-3")], "payload string, transaction_id string")

    write(lake, frame, queue="orders", delivery=delivery)

    assert payloads(lake, "orders") == ["1", "3"]


def test_a_write_with_the_id_of_an_earlier_one_changes_nothing(lake: Lake) -> None:
    frame = lake.spark.range(3).select(functions.col("id").cast("string").alias("payload"))

    for _ in range(2):
        write(lake, frame, queue="orders", writeId="day-1")
    write(lake, frame, queue="orders", writeId="day-2")

    assert payloads(lake, "orders") == ["0", "1", "2", "0", "1", "2"]


def test_nothing_is_there_of_a_write_that_failed(lake: Lake) -> None:
    lake.client.configure("orders")
    bad = functions.when(functions.col("id") == 900, functions.raise_error(functions.lit("no"))).otherwise("1")
    frame = lake.spark.range(0, 1000, 1, 2).select(bad.cast("string").alias("payload"))

    with pytest.raises(PySparkException):
        write(lake, frame, queue="orders", stageRows=10)

    assert payloads(lake, "orders") == []


def test_a_queue_cannot_be_overwritten(lake: Lake) -> None:
    frame = lake.spark.createDataFrame([("1",)], "payload string")

    with pytest.raises(PySparkException, match="cannot be overwritten"):
        frame.write.format("skep").options(**lake.connection, queue="q").mode("overwrite").save()


def test_a_payload_that_is_no_json_is_refused(lake: Lake) -> None:
    lake.client.configure("orders")
    frame = lake.spark.createDataFrame([("{",)], "payload string")

    with pytest.raises(PySparkException, match="INVALID_PAYLOAD"):
        write(lake, frame, queue="orders")

    assert payloads(lake, "orders") == []


def dying(marker: str) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """What passes rows on and kills its Python worker once, after some of them."""

    def pass_on(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            yield batch.slice(0, 1)
            try:
                os.close(os.open(marker, os.O_CREAT | os.O_EXCL))
            except FileExistsError:
                yield batch.slice(1)
            else:
                os.kill(os.getpid(), signal.SIGKILL)

    return pass_on


def test_a_stream_goes_from_queue_to_queue_once_over_killed_workers_and_restarts(lake: Lake) -> None:
    def run() -> None:
        frame = lake.stream("orders", maxOffsetsPerTrigger=4).select("partition", "payload")
        frame = frame.mapInArrow(dying(str(lake.folder / "killed")), frame.schema)
        writer = frame.writeStream.format("skep").options(**lake.connection, queue="copies")
        query = writer.option("checkpointLocation", str(lake.folder / "cp")).trigger(availableNow=True).start()
        assert query.awaitTermination(60)

    lake.client.push("orders", list(range(10)), partition="p")
    run()
    # As if the driver had been killed after the sink's commit and before Spark wrote down its own.
    last = max((lake.folder / "cp" / "commits").glob("[0-9]*"), key=lambda file: int(file.name))
    last.unlink()
    (last.parent / f".{last.name}.crc").unlink()
    lake.client.push("orders", [10])
    run()

    assert payloads(lake, "copies") == [str(n) for n in range(11)]
    assert (lake.folder / "killed").exists()
