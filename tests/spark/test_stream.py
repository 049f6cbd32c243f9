"""A queue as a stream: batches, restarts, limits, and what is said when it cannot go on."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame
from pyspark.sql.streaming.query import StreamingQuery

from skep.spark.offsets import parted
from tests.spark.conftest import Lake

WAIT_SECONDS = 600
"""For what would never end; only a busy machine needs a part of it."""


def start(frame: DataFrame, folder: Path, *, once: bool = True, **options: Any) -> StreamingQuery:
    """A query into Parquet files, over all there is or on and on."""
    writer = frame.writeStream.format("parquet").option("path", str(folder / "out"))
    writer = writer.option("checkpointLocation", str(folder / "checkpoint")).options(**options)
    return (writer.trigger(availableNow=True) if once else writer).start()


def finish(query: StreamingQuery) -> StreamingQuery:
    assert query.awaitTermination(WAIT_SECONDS)
    return query


def seqs(lake: Lake, folder: Path) -> list[int]:
    return sorted(row.seq for row in lake.spark.read.parquet(str(folder / "out")).select("seq").collect())


def batches(query: StreamingQuery) -> list[int]:
    """How many rows each batch had that had any."""
    return [progress.numInputRows for progress in query.recentProgress if progress.numInputRows]


def behind(query: StreamingQuery) -> list[tuple[str, ...]]:
    """How far each batch that had rows was behind: the least, the most and the average."""
    names = [f"{name}OffsetsBehindLatest" for name in ("min", "max", "avg")]
    told = [progress.sources[0].metrics for progress in query.recentProgress if progress.numInputRows]
    return [tuple(metrics[name] for name in names) for metrics in told]


def logged_offsets(folder: Path) -> list[dict[str, int]]:
    """The offsets of the batches as the checkpoint has them, but for the logs they are of."""
    files = sorted((folder / "checkpoint" / "offsets").glob("[0-9]*"), key=lambda file: int(file.name))
    return [parted(json.loads(file.read_text(encoding="utf-8").splitlines()[2]))[0] for file in files]


@pytest.mark.usefixtures("usual_settings")
def test_all_there_is_comes_once_over_several_runs(lake: Lake) -> None:
    for count in (10, 0, 5):
        if count:
            lake.client.push("orders", list(range(count)))
        finish(start(lake.stream("orders"), lake.folder))

    assert seqs(lake, lake.folder) == list(range(1, 16))
    assert logged_offsets(lake.folder) == [{"orders": 10}, {"orders": 15}]


@pytest.mark.slow
def test_a_batch_has_no_more_messages_than_allowed(lake: Lake) -> None:
    lake.client.push("orders", list(range(25)))

    query = finish(start(lake.stream("orders", maxOffsetsPerTrigger=10), lake.folder))

    assert batches(query) == [10, 10, 5]
    assert seqs(lake, lake.folder) == list(range(1, 26))


@pytest.mark.slow
def test_a_batch_has_no_more_bytes_than_allowed(lake: Lake) -> None:
    lake.client.push("orders", ["x" * 98] * 10)

    query = finish(start(lake.stream("orders", maxBytesPerTrigger=450), lake.folder))

    assert batches(query) == [4, 4, 2]


@pytest.mark.slow
def test_each_of_several_queues_has_its_share_of_a_batch(lake: Lake) -> None:
    lake.client.push("a", list(range(30)))
    lake.client.push("b", list(range(10)))

    query = finish(start(lake.stream("a,b", maxOffsetsPerTrigger=8), lake.folder))

    assert behind(query)[:2] == [("8", "24", "16.0"), ("6", "18", "12.0")]
    assert logged_offsets(lake.folder)[:2] == [{"a": 6, "b": 2}, {"a": 12, "b": 4}]
    assert logged_offsets(lake.folder)[-1] == {"a": 30, "b": 10}


def test_a_running_query_sees_what_is_pushed_and_says_how_far_it_is_behind(lake: Lake) -> None:
    for queue in ("orders", "others"):
        lake.client.push(queue, [1])
    frame = lake.stream("orders,others", startingOffsets="latest", maxOffsetsPerTrigger=2)
    query = start(frame, lake.folder, once=False)
    try:
        query.processAllAvailable()
        lake.client.push("orders", [2, 3])
        query.processAllAvailable()
        lake.client.push("orders", [4, 5, 6])
        query.processAllAvailable()
    finally:
        query.stop()

    assert seqs(lake, lake.folder) == [2, 3, 4, 5, 6]
    assert query.lastProgress is not None
    assert json.loads(query.lastProgress.sources[0].latestOffset) == {"orders": 6, "others": 1}
    assert behind(query) == [("0", "0", "0.0"), ("0", "1", "0.5"), ("0", "0", "0.0")]


@pytest.mark.slow
def test_new_queues_that_match_are_read_from_their_beginning(lake: Lake) -> None:
    lake.client.push("shop.a", [1, 2])
    frame = lake.spark.readStream.format("skep").options(**lake.connection, subscribePattern=r"shop\..*").load()
    finish(start(frame, lake.folder))
    lake.client.push("shop.b", [3])

    finish(start(frame, lake.folder))

    rows = lake.spark.read.parquet(str(lake.folder / "out")).select("queue", "payload").collect()
    assert sorted(rows) == [("shop.a", "1"), ("shop.a", "2"), ("shop.b", "3")]


@pytest.mark.slow
def test_a_checkpoint_of_another_queue_is_refused(lake: Lake) -> None:
    lake.client.push("orders", [1])
    lake.client.push("others", [1])
    finish(start(lake.stream("orders"), lake.folder))

    with pytest.raises(StreamingQueryException, match="the checkpoint of another query"):
        finish(start(lake.stream("others"), lake.folder))


@pytest.mark.slow
def test_a_queue_made_anew_is_noticed_however_long_it_has_become(lake: Lake) -> None:
    lake.client.push("orders", [1, 2, 3])
    finish(start(lake.stream("orders"), lake.folder))
    lake.client.delete_queue("orders")
    lake.client.push("orders", [4, 5, 6, 7])

    with pytest.raises(StreamingQueryException, match="deleted and made anew"):
        finish(start(lake.stream("orders"), lake.folder))
    finish(start(lake.stream("orders", failOnDataLoss="false"), lake.folder))

    rows = lake.spark.read.parquet(str(lake.folder / "out")).select("payload").collect()
    assert sorted(row.payload for row in rows) == ["1", "2", "3", "4", "5", "6", "7"]


@pytest.mark.slow
def test_messages_that_were_removed_before_they_were_read_are_noticed(lake: Lake) -> None:
    lake.client.push("orders", [1, 2, 3])
    finish(start(lake.stream("orders"), lake.folder))
    lake.client.push("orders", [4])
    lake.client.clear("orders", "all")
    lake.client.push("orders", [5])

    with pytest.raises(StreamingQueryException, match="the messages 4 to 4 of orders have been removed"):
        finish(start(lake.stream("orders"), lake.folder))
    finish(start(lake.stream("orders", failOnDataLoss="false"), lake.folder))

    assert seqs(lake, lake.folder) == [1, 2, 3, 5]


@pytest.mark.slow
def test_a_deleted_queue_is_said_to_be_gone(lake: Lake) -> None:
    lake.client.push("orders", [1])
    finish(start(lake.stream("orders"), lake.folder))
    lake.client.delete_queue("orders")

    with pytest.raises(StreamingQueryException, match="there is no queue 'orders'"):
        finish(start(lake.stream("orders"), lake.folder))


def test_options_of_a_table_are_refused_for_a_stream(lake: Lake) -> None:
    lake.client.push("orders", [1])

    with pytest.raises(StreamingQueryException, match=r"endingOffsets is for spark\.read"):
        finish(start(lake.stream("orders", endingOffsets="latest"), lake.folder))


def test_a_group_follows_the_query_to_its_last_batch(lake: Lake) -> None:
    lake.client.push("orders", list(range(10)))

    finish(start(lake.stream("orders", groupId="lake", maxOffsetsPerTrigger=4), lake.folder))
    lake.client.push("orders", [10, 11])

    [group] = lake.client.group("lake", "orders").queues
    assert (group.external, group.progress_seq, group.lag) == (True, 10, 2)
