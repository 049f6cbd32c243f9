"""What a query wants of a queue reaches the server: filters and columns. Rows are right whatever is pushed down; rows sent are counted."""

from __future__ import annotations

from datetime import UTC, datetime
from functools import reduce
from typing import Any

import pytest
from pyspark.sql import DataFrame, Row
from pyspark.sql import functions as F  # noqa: N812 - as everyone writes it

from tests.spark.conftest import Lake
from tests.spark.test_united import Both

TRACE = "01a1de02-7b1f-7061-b55a-489bc83b0732"
QUERIES = {
    "partition = 'p-1'": 10,
    "'p-1' = partition": 10,
    "partition <=> 'p-1'": 10,
    "partition IN ('p-1', 'p-2', 'nowhere')": 20,
    "partition IN ('p-1', null)": 10,
    "partition = 'p-1' OR partition = 'p-2'": 20,
    "partition = 'p-1' OR seq = 4": 30,
    "(partition = 'p-1' AND seq < 10) OR (partition = 'p-2' AND seq > 20)": 20,
    "NOT (partition = 'p-1')": 30,
    "NOT (partition = 'p-1' AND seq > 3)": 30,
    "partition > 'p-1'": 30,
    "partition LIKE 'p-1%'": 30,
    "upper(partition) = 'P-1'": 30,
    "partition COLLATE UTF8_LCASE = 'P-1'": 30,
    "partition = 'P-1'": 0,
    "partition = 'p-1' AND payload > '20'": 10,
    "seq = 4": 1,
    "seq > 25": 5,
    "25 < seq": 5,
    "seq >= 25 AND seq < 28": 3,
    "seq IN (3, 7)": 5,
    "seq BETWEEN 28 AND 900": 3,
    "seq < 1": 0,
    "seq > 9223372036854775806": 0,
    "seq = 4.0": 1,
    "cast(seq AS string) = '4'": 30,
    "seq % 2 = 0": 30,
    "transaction_id = 't-27'": 1,
    "transaction_id <=> null": 30,
    "transaction_id IS NULL": 30,
    "transaction_id IN ('t-3', 't-4') OR transaction_id IS NULL": 30,
    f"trace_id = '{TRACE}'": 2,
    f"trace_id = '{TRACE.upper()}'": 0,
    "trace_id = 'no id'": 0,
    "trace_id = message_id AND seq < 4": 3,
    "queue = 'orders'": 30,
    "queue = 'others'": 0,
    "created_at > '2020-01-01' AND created_at <= '2999-01-01'": 30,
    "created_at < timestamp_micros(-9000000000000000000)": 30,
}
"""Conditions, and how many of the 30 rows the server sends for each."""
FEW = (
    "partition IN ('p-1', null)", "partition = 'p-1' OR seq = 4", "(partition = 'p-1' AND seq < 10) OR (partition = 'p-2' AND seq > 20)",
    "NOT (partition = 'p-1' AND seq > 3)", "25 < seq", "transaction_id <=> null", "trace_id = 'no id'",
)  # fmt: skip
"""Those of the default run."""


@pytest.fixture
def filled(lake: Lake) -> Lake:
    """30 messages in three partitions; each third one has a transaction id, and two have one trace."""
    for number in range(30):
        lake.client.push(
            "orders", number, partition=f"p-{number % 3}", transaction_id=f"t-{number}" if number % 3 == 0 else None,
            trace_id=TRACE if number in (17, 18) else None,
        )  # fmt: skip
    return lake


def leaves(frame: DataFrame) -> list[Any]:
    """The scans of a query, in its order."""
    found = frame._jdf.queryExecution().executedPlan().collectLeaves()
    return [found.apply(place) for place in range(found.size())]


def sent(frame: DataFrame) -> tuple[list[Row], list[int]]:
    """The rows of a query, and how many rows each of its scans got from the server."""
    rows = frame.collect()
    return rows, [leaf.metrics().apply("numOutputRows").value() for leaf in leaves(frame)]


def explained(frame: DataFrame) -> str:
    return "\n".join(leaf.simpleString(1_000) for leaf in leaves(frame))


@pytest.mark.parametrize("queries", [FEW, pytest.param(tuple(QUERIES), marks=pytest.mark.slow)])
def test_rows_are_right_and_few_are_sent_whatever_the_condition(filled: Lake, queries: tuple[str, ...]) -> None:
    frame = filled.read("orders")
    kept = filled.spark.createDataFrame(frame.collect(), frame.schema)

    filtered = [frame.where(query).select(F.lit(place).alias("query"), "seq") for place, query in enumerate(queries)]
    rows, counts = sent(reduce(DataFrame.union, filtered))

    judged = kept.selectExpr("seq", *(f"{query} AS q{place}" for place, query in enumerate(queries))).collect()
    wanted = [(place, row.seq) for place in range(len(queries)) for row in judged if row[f"q{place}"]]
    assert sorted(map(tuple, rows)) == wanted
    assert dict(zip(queries, counts, strict=True)) == {query: QUERIES[query] for query in queries}


def test_conditions_and_columns_are_shown_by_explain(filled: Lake) -> None:
    frame = filled.read("orders")

    told = explained(frame.where("partition IN ('p-1', 'p-2') AND seq > 3 AND payload <> 'x'").select("seq"))

    assert "PushedFilters: [partition IN ('p-1', 'p-2'), seq >= 4], " in told
    assert "ReadSchema: struct<partition:string,seq:bigint,payload:string> " in told
    at = explained(frame.where("created_at >= '2026-01-31T12:00:00Z'").select("seq"))
    assert "PushedFilters: [created_at >= 2026-01-31T12:00:00Z], " in at
    assert "PushedFilters: [], ReadSchema: struct<seq:bigint> " in explained(frame.groupBy().count())


def test_times_are_found_by_the_server(lake: Lake) -> None:
    times = []
    for _ in range(3):
        times.append(datetime.now(UTC))
        lake.client.push("orders", list(range(400)))
    frame = lake.read("orders").select("seq", "created_at")
    stamps = sorted({row.created_at.astimezone(UTC) for row in frame.collect()})

    def of(condition: str) -> tuple[int, int]:
        rows, [count] = sent(frame.where(condition))
        return len(rows), count

    assert len(stamps) == 3
    assert of(f"created_at >= '{times[1].isoformat()}'") == (800, 800)
    # The bounds are exact to the microsecond.
    assert of(f"created_at > '{stamps[0].isoformat()}' AND created_at <= '{stamps[1].isoformat()}'") == (400, 400)
    assert of(f"created_at = '{stamps[2].isoformat()}' OR created_at = '{stamps[1].isoformat()}'") == (800, 800)


def test_all_scans_of_a_frame_have_the_same_range(filled: Lake) -> None:
    frame = filled.read("orders").select("seq", "partition")
    assert frame.where("partition = 'p-0'").count() == 10

    filled.client.push("orders", [30, 31, 32], partition="p-0")

    third = frame.where("partition = 'p-0'").select("seq")
    rows, counts = sent(third.union(frame.where("seq > 29").select("seq")))
    assert (len(rows), counts) == (11, [10, 1])
    assert filled.read("orders").select("seq").where("seq > 29").count() == 4


@pytest.mark.slow
def test_a_join_with_itself_and_the_place_of_a_group_are_of_one_range(filled: Lake) -> None:
    frame = filled.read("orders")
    grouped = filled.read("orders", startingOffsets="group", groupId="workers")
    assert (frame.count(), grouped.count()) == (30, 30)

    filled.client.push("orders", [30, 31, 32], partition="p-0")
    filled.client.ack(*filled.client.pop("orders", group="workers", batch=5))

    joined = frame.alias("a").join(frame.alias("b"), F.expr("a.seq = b.seq + 3 AND b.partition = 'p-0'"))
    assert (joined.count(), grouped.where("seq < 4").count()) == (9, 3)


@pytest.mark.slow
def test_a_cached_frame_keeps_its_rows(filled: Lake) -> None:
    cached = filled.read("orders").where("partition = 'p-1'").cache()
    assert cached.count() == 10
    filled.client.push("orders", 30, partition="p-1")

    assert cached.where("seq > 15").count() == 5
    assert filled.read("orders").where("partition = 'p-1'").count() == 11
    cached.unpersist()


def test_filters_narrow_what_options_say(filled: Lake) -> None:
    frame = filled.read("orders", partitions="p-0,p-1", traceIds=TRACE.upper(), startingOffsets='{"orders": 18}')

    assert sent(frame.where("partition <> 'x'").select("seq"))[1] == [1]
    assert [row.seq for row in frame.where(f"trace_id = '{TRACE}' AND seq > 1").collect()] == [19]
    assert sent(frame.where("partition IN ('p-1', 'p-2')").select("seq"))[1] == [0]


@pytest.mark.slow
def test_values_that_fit_no_request_are_left_to_spark(filled: Lake) -> None:
    values = ", ".join(f"'p-{number}'" for number in range(1, 2_000))
    rows, counts = sent(filled.read("orders").where(f"partition IN ({values})").select("seq"))
    assert (len(rows), counts) == (20, [30])


@pytest.mark.slow
def test_leases_and_dead_letters_are_read_from_a_time_on_and_of_some_queues(filled: Lake) -> None:
    filled.client.push("others", [1])
    for queue in ("orders", "others"):
        filled.client.ack(*filled.client.pop(queue, group="workers", batch=2))
        filled.client.push(queue, "bad", partition="bad")
        filled.client.reject(*filled.client.pop(queue, partition="bad", group="bad", batch=1), error="bad")

    def table(name: str) -> DataFrame:
        return filled.spark.read.format("skep").options(**filled.connection, table=name).load()

    leases, letters = table("leases"), table("dead_letters")
    assert sorted(row.queue for row in letters.collect()) == ["orders.dead", "others.dead"]
    assert sent(letters.where("queue = 'others.dead'"))[1] == [1]
    ended = sorted(row.settled_at.astimezone(UTC) for row in leases.collect())
    rows, counts = sent(leases.where(f"settled_at >= '{ended[-1].isoformat()}' AND queue = 'others'"))
    assert (len(rows), counts) == (1, [1])
    assert sent(leases.where("queue = 'nowhere'"))[1] == [0]
    assert table("queues").where("queue = 'orders'").count() == 1


@pytest.mark.slow
def test_a_queue_that_was_made_anew_is_not_taken_for_the_one_before(filled: Lake) -> None:
    frame = filled.read("orders")
    assert frame.count() == 30
    filled.client.delete_queue("orders")
    filled.client.push("orders", list(range(40)))

    with pytest.raises(Exception, match="was deleted and made anew"):
        frame.where("seq > 3").count()
    assert filled.read("orders").count() == 40


def test_lake_and_log_are_filtered_alike(filled: Lake) -> None:
    """The first 20 messages come from the lake, the others from the log; each condition is pushed down to both."""
    both = Both(filled.client, filled.url, filled.tenant, filled.folder / "lake")
    both.archive(20)
    frame = filled.read("orders", lake=str(both.root))
    kept = filled.spark.createDataFrame(frame.collect(), frame.schema)

    filtered = [frame.where(query).select(F.lit(place).alias("query"), "seq") for place, query in enumerate(FEW)]
    rows, counts = sent(reduce(DataFrame.union, filtered))

    judged = kept.selectExpr("seq", *(f"{query} AS q{place}" for place, query in enumerate(FEW))).collect()
    assert sorted(map(tuple, rows)) == [
        (place, row.seq) for place in range(len(FEW)) for row in judged if row[f"q{place}"]
    ]
    assert dict(zip(FEW, counts, strict=True)) == {query: QUERIES[query] for query in FEW}
    told = explained(frame.where("partition IN ('p-1', 'p-2') AND seq > 3 AND payload <> 'x'").select("seq"))
    assert "PushedFilters: [partition IN ('p-1', 'p-2'), seq >= 4], " in told
    assert "ReadSchema: struct<partition:string,seq:bigint,payload:string> " in told
