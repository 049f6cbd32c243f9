"""metrics on frames small enough to count by hand."""

from __future__ import annotations

from datetime import UTC
from typing import Any
from zlib import crc32

from pyspark.sql import DataFrame, SparkSession

from skep.spark.pipelines.attempts import attempts
from skep.spark.pipelines.metrics import late_since, metrics, with_groups
from tests.spark.frames import at, dicts, kept, lease, leases_of, letter, letters_of, message, messages_of


def counted(frame: DataFrame) -> dict[tuple[Any, ...], dict[str, Any]]:
    rows = dicts(frame.collect())
    for row in rows:
        row["window_start"] = row["window_start"] and row["window_start"].astimezone(UTC)
    return {(row["window_start"], row["queue"], row["bucket"], row["group"]): row for row in rows}


def test_a_lease_is_spread_over_its_messages_the_completed_ones_first(spark: SparkSession) -> None:
    messages = messages_of(spark, *(message("orders", seq, seq, partition="ab"[seq % 2]) for seq in range(1, 7)))
    leases = leases_of(
        spark,
        lease("orders", (2, 6), (10, 12), "retried", partition="a", messages=3, completed=1),
        lease("orders", (1, 3), (10, 11), "released", partition="b", messages=2),
    )
    found = attempts(messages, leases).orderBy("seq").collect()
    assert [(row["seq"], row["outcome"]) for row in found] == [(2, "completed"), (4, "retried"), (6, "retried")]


def test_what_retention_took_from_the_head_of_a_lease_is_not_made_up_for_by_its_neighbours(spark: SparkSession) -> None:
    # The first two were completed, and the first is gone; of the second lease the third is, which no retention takes alone.
    messages = messages_of(spark, *(message("orders", seq, seq) for seq in (2, 3, 4, 5, 6, 8)))
    leases = leases_of(
        spark,
        lease("orders", (1, 4), (10, 12), "retried", completed=2),
        lease("orders", (5, 8), (10, 12), "dead", completed=2),
    )
    found = attempts(messages, leases).orderBy("seq").collect()
    assert [(row["seq"], row["outcome"]) for row in found] == [
        (2, "completed"), (3, "retried"), (4, "retried"), (5, "completed"), (6, "completed"), (8, "dead"),
    ]  # fmt: skip


def test_counts_and_latencies_of_each_window_are_those_worked_out_by_hand(spark: SparkSession) -> None:
    messages = messages_of(
        spark, message("orders", 1, 0), message("orders", 2, 10), message("orders", 3, 20), message("orders", 4, 61),
        message("unread", 1, 0),
    )  # fmt: skip
    leases = leases_of(
        spark,
        lease("orders", (1, 2), (12, 14)),
        lease("orders", (3, 3), (30, 31), "retried"),
        lease("orders", (3, 3), (62, 65), "dead", attempt=2),
        lease("orders", (4, 4), (66, 70)),
        lease("orders", (1, 4), (62, 63), group="audit"),
    )
    found = counted(metrics(messages, leases))

    first = found[at(0), "orders", 0, "g"]
    assert [first[name] for name in ("pushed", "delivered", "settled", "retried", "dead")] == [3, 3, 2, 1, 0]
    assert (first["wait_p50_seconds"], first["wait_p99_seconds"]) == (10.0, 12.0)  # 12 - 0, 12 - 10, 30 - 20
    assert (first["work_p50_seconds"], first["work_p95_seconds"]) == (2.0, 2.0)  # 2, 2, 1
    assert (first["total_p50_seconds"], first["total_p99_seconds"]) == (4.0, 14.0)  # 14 - 10, 14 - 0

    second = found[at(60), "orders", 0, "g"]
    assert [second[name] for name in ("pushed", "delivered", "settled", "retried", "dead")] == [1, 2, 1, 0, 1]
    assert (second["wait_p50_seconds"], second["total_p50_seconds"]) == (5.0, 9.0)  # a second try does not wait

    audit = found[at(0), "orders", 0, "audit"]
    assert (audit["pushed"], audit["delivered"], audit["wait_p50_seconds"]) == (3, 0, None)
    assert found[at(60), "orders", 0, "audit"]["settled"] == 4
    unread = found[at(0), "unread", 0, None]
    assert (unread["pushed"], unread["delivered"]) == (1, 0)
    assert len(found) == 5


def test_all_of_a_time_counts_by_partition_and_letters_tell_the_dead_of_a_lease_that_ended_in_both_ways(
    spark: SparkSession,
) -> None:
    names = ["a", "b", "c", "ü"]
    parted = [message("parted", seq, 0, partition=name) for seq, name in enumerate(names, 1)]
    leased = [message("leased", seq, 0) for seq in (1, 2, 3)]
    messages = messages_of(spark, *parted, *leased, message("orders", 1, 0), message("orders", 2, 0))
    leases = leases_of(
        spark, lease("orders", (1, 2), (1, 2), "retried"), lease("leased", (1, 1), (1, 31), "dead"),
        lease("leased", (2, 3), (1, 31), "expired"), lease("leased", (2, 2), (31, 32), attempt=2),
    )  # fmt: skip
    found = counted(metrics(messages, leases, letters_of(spark, letter(1, 2, "no")), window=None, buckets=4))

    row = found[None, "orders", crc32(b"p") % 4, "g"]
    assert (row["delivered"], row["settled"], row["retried"], row["dead"]) == (2, 0, 1, 1)
    row = found[None, "leased", crc32(b"p") % 4, "g"]
    assert (row["delivered"], row["settled"], row["retried"], row["dead"]) == (4, 1, 2, 1)
    expected: dict[int, int] = {}
    for name in names:
        expected[crc32(name.encode()) % 4] = expected.get(crc32(name.encode()) % 4, 0) + 1
    pushed = {bucket: row["pushed"] for (_, queue, bucket, _), row in found.items() if queue == "parted"}
    assert pushed == expected
    assert len(found) == 2 + len(expected)


def test_a_group_that_is_new_counts_what_was_pushed_before(spark: SparkSession) -> None:
    messages = messages_of(spark, message("orders", 1, 0), message("unread", 1, 0))
    alone = kept(metrics(messages, leases_of(spark)))
    groups = spark.createDataFrame([("orders", "a"), ("orders", "b")], "queue string, group string")
    expected = kept(metrics(messages, leases_of(spark), groups=groups))
    rows = sorted(expected.collect(), key=str)
    assert sorted(with_groups(alone, groups).collect(), key=str) == rows
    assert sorted(with_groups(expected, groups).collect(), key=str) == rows
    assert {(row["queue"], row["group"], row["pushed"]) for row in rows} == {
        ("orders", "a", 1), ("orders", "b", 1), ("unread", None, 1),
    }  # fmt: skip


def test_windows_that_late_data_may_reach_are_computed_anew() -> None:
    assert late_since(at(330), 60, 120) == at(180)
    assert late_since(at(300), 60, 0) == at(300)


def test_totals_come_beside_the_windows(spark: SparkSession) -> None:
    messages = messages_of(spark, message("orders", 1, 0), message("orders", 2, 100))
    leases = leases_of(spark, lease("orders", (1, 2), (101, 103)))
    found = counted(metrics(messages, leases, totals=True))
    assert {key[0]: row["pushed"] for key, row in found.items()} == {None: 2, at(0): 1, at(60): 1}
    assert found[None, "orders", 0, "g"]["total_p99_seconds"] == 103.0
