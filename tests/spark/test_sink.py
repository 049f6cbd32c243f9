"""Rows as messages: what becomes of their columns, and that each is there once."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pytest
from msgspec import Struct
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, functions

import skep
from skep.errors import SkepError
from skep.spark.options import SinkOptions, sink_options
from skep.spark.sink import OneAhead, StreamWriter, TableWriter, Writing
from skep.testing.server import RunningServer
from tests.spark.conftest import TENANTS, Lake
from tests.spark.test_stream import WAIT_SECONDS

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


@pytest.mark.usefixtures("usual_settings")
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
def test_a_partition_that_is_null_is_the_default_one(lake: Lake, delivery: str) -> None:
    frame = lake.spark.createDataFrame([("p", "1"), (None, "2")], "partition string, payload string").coalesce(1)

    write(lake, frame, queue="orders", delivery=delivery)

    assert [(row.partition, row.payload) for row in lake.read("orders").collect()] == [("p", "1"), ("Default", "2")]


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
    writer = TableWriter(sink_options({**lake.connection, "queue": "orders"}))  # Spark would try it four times

    with pytest.raises(SkepError, match="INVALID_PAYLOAD"):
        writer.write(iter([pa.record_batch({"payload": ["{"]})]))

    assert not list(lake.client.messages("orders"))


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
        assert query.awaitTermination(WAIT_SECONDS)

    lake.client.push("orders", list(range(6)), partition="p")
    run()
    # As if the driver had been killed after the sink's commit and before Spark wrote down its own.
    last = max((lake.folder / "cp" / "commits").glob("[0-9]*"), key=lambda file: int(file.name))
    last.unlink()
    (last.parent / f".{last.name}.crc").unlink()
    lake.client.push("orders", [6])
    run()

    assert payloads(lake, "copies") == [str(n) for n in range(7)]
    assert (lake.folder / "killed").exists()


class Target(Struct, frozen=True):
    """A server to write to as tasks and drivers do, without a Spark."""

    client: skep.Client
    url: str

    def options(self, **given: str) -> SinkOptions:
        return sink_options({"url": self.url, "tenant": self.client.settings.tenant, "queue": "q", **given}, {})


@pytest.fixture
def target(spark_server: RunningServer) -> Iterator[Target]:
    with skep.Client(spark_server.url, tenant=next(TENANTS)) as client:
        yield Target(client, spark_server.url)


def rows(*payloads: str) -> Iterator[pa.RecordBatch]:
    return iter([pa.record_batch({"payload": list(payloads)})])


@pytest.mark.parametrize(("payloads", "queue"), [("12", "other"), ("123", "q"), ("1", "q"), ("", "q")])
def test_other_rows_under_the_id_of_an_earlier_write_are_refused(target: Target, payloads: str, queue: str) -> None:
    first = TableWriter(target.options(writeId="day-1"))
    first.commit([first.write(rows("1", "2"))])

    again, other = (TableWriter(target.options(writeId="day-1", queue=name)) for name in ("q", queue))
    again.commit([again.write(rows("3")), again.write(rows("4"))])
    with pytest.raises(SkepError, match=r"was written before, as 2 rows for q, and now .* a writeId is for one write"):
        other.commit([other.write(rows(*payloads))])

    assert target.client.log_bounds("q").last_seq == 2
    assert [queue.name for queue in target.client.queues()] == ["q"]


@pytest.mark.parametrize("passed_over", [True, False])
def test_rows_of_a_checkpoint_that_was_put_back_are_not_taken_for_written(target: Target, passed_over: bool) -> None:
    """Whether a task sees that the epoch is published, or another driver publishes it only after that."""
    writing, stream = Writing(target.options()), StreamWriter(target.options())
    early = writing.written(rows("1", "2"), "query", 7)
    stream.commit([writing.written(rows("1"), "query", 7)], 7)
    told = writing.written(rows("1", "2"), "query", 7) if passed_over else early

    with pytest.raises(
        SkepError, match=r"as 1 row for q, and now it is 2 rows for q.* a checkpointLocation of its own"
    ):
        stream.commit([told], 7)


def test_rows_are_counted_when_the_epoch_is_published_while_a_task_stages_them(target: Target) -> None:
    writing, stream = Writing(target.options(stageRows="1")), StreamWriter(target.options())
    early = writing.written(rows("1", "2", "3"), "query", 7)

    def published_meanwhile() -> Iterator[pa.RecordBatch]:
        yield from rows("1")
        stream.commit([early], 7)
        yield from rows("2", "3")

    told = writing.written(published_meanwhile(), "query", 7)
    stream.commit([told], 7)

    assert (told.rows, told.passed_over) == (3, True)
    assert target.client.log_bounds("q").last_seq == 3


def test_rows_of_an_attempt_that_died_are_not_those_of_the_next(target: Target) -> None:
    """Spark numbers attempts anew when a driver is restarted, and what was staged before is still there."""
    writing, stream = Writing(target.options(stageRows="1")), StreamWriter(target.options())
    writing.written(rows("1", "2"), "query", 7)

    stream.commit([writing.written(rows("3"), "query", 7)], 7)

    assert [bytes(one.payload) for one in target.client.messages("q")] == [b"3"]


def test_the_next_portion_is_gathered_while_one_is_sent() -> None:
    gathered = threading.Event()
    sent: list[Any] = []

    with OneAhead() as sender:
        sender.send(lambda: sent.append(gathered.wait(30)))
        gathered.set()
        sender.send(lambda: sent.append("next"))

    assert sent == [True, "next"]


@pytest.mark.parametrize("delivery", DELIVERIES)
def test_portions_of_a_task_keep_their_order(target: Target, delivery: str) -> None:
    payloads = [str(number) for number in range(40)]
    writer = TableWriter(target.options(stageRows="1", delivery=delivery))

    writer.commit([writer.write(rows(*payloads))])

    assert [bytes(one.payload).decode() for one in target.client.messages("q")] == payloads


@pytest.mark.parametrize("delivery", DELIVERIES)
@pytest.mark.parametrize("payloads", ["{12", "1{2", "12{"])
def test_a_portion_that_is_refused_fails_its_task(target: Target, payloads: str, delivery: str) -> None:
    writer = TableWriter(target.options(stageRows="1", delivery=delivery))

    with pytest.raises(SkepError, match="INVALID_PAYLOAD"):
        writer.write(rows(*payloads))


def test_rows_that_are_scheduled_or_there_already_count_as_written(target: Target) -> None:
    target.client.push("q", 1, transaction_id="t")
    later = datetime.now(UTC) + timedelta(hours=1)
    batch = pa.record_batch(
        {
            "payload": ["1", "2", "3"],
            "transaction_id": ["t", None, None],
            "deliver_at": pa.array([None, later, None], pa.timestamp("us", "UTC")),
            "queue": [None, "r", "r"],
        }
    )
    for _ in range(2):
        writer = TableWriter(target.options(writeId="day-1"))
        writer.commit([writer.write(iter([batch]))])

    assert [target.client.log_bounds(queue).last_seq for queue in ("q", "r")] == [1, 1]


LONG = '"' + "x" * 1_000_000 + '"'


@pytest.mark.parametrize(
    "columns",
    [
        {"payload": ["1"] * 25_000},
        {"payload": [f'"{"x" * 1000}"'] * 10_000, "headers": [[("a", "b")]] * 10_000},
        {"payload": [LONG] * 80},
        {"payload": [LONG] * 20 + ["1"] * 9_980, "headers": [None] * 10_000},
        {"payload": ["1", "2"], "queue": ["q", None], "partition": [None, "p"]},
    ],
    ids=["many", "long together", "long without more", "long side by side", "some of two queues"],
)
def test_pushes_are_cut_to_what_a_server_takes(target: Target, columns: dict[str, list[Any]]) -> None:
    kinds = {"headers": pa.map_(pa.string(), pa.string())}
    batch = pa.record_batch({name: pa.array(of, kinds.get(name, pa.string())) for name, of in columns.items()})

    told = Writing(target.options(delivery="at-least-once")).written(iter([batch, batch.slice(0, 0)]), "query", 0)

    assert told.rows == target.client.log_bounds("q").last_seq == batch.num_rows
    assert told.queues == {"q"}
