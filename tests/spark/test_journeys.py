"""journeys on traces that can be followed with a finger."""

from __future__ import annotations

import pytest
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as everyone writes it

from skep.spark.pipelines.journeys import broken, by_queue, hops, journeys, slowest
from tests.spark.frames import at, kept, lease, leases_of, letter, letters_of, message, messages_of

SHOP = (
    message("orders", 1, 0, trace="t1"), message("payments", 1, 4, trace="t1"), message("shipments", 1, 20, trace="t1"),
    message("orders", 2, 1, trace="t2"), message("payments", 2, 5, trace="t2"),
    message("orders", 3, 2, trace="t3"),
)  # fmt: skip
"""t1: an order (billed and audited), paid at the second try, shipped. t2: an order whose payment died. t3: waits."""
SHOP_LEASES = (
    lease("orders", (1, 1), (3, 4), group="billing"), lease("orders", (2, 2), (3, 5), group="billing"),
    lease("orders", (1, 2), (3.5, 9), group="audit"),
    lease("payments", (1, 1), (6, 7), "retried", group="bank"),
    lease("payments", (1, 1), (15, 20), group="bank", attempt=2),
    lease("payments", (2, 2), (8, 9), "dead", group="bank"),
    lease("shipments", (1, 1), (21, 22), group="parcels"),
)  # fmt: skip

FEW = (
    message("repaid", 1, 0, trace="replayed"), message("repaid", 9, 100, trace="replayed"),
    message("unread", 1, 0, trace="unread"),
    *(message("leased", seq, 0, trace=f"order {seq}") for seq in (1, 2, 3)),
)  # fmt: skip
"""Three queues that have nothing to do with each other."""
FEW_LEASES = (
    lease("repaid", (1, 1), (1, 2), "dead"), lease("repaid", (9, 9), (101, 102)),
    lease("leased", (1, 1), (1, 31), "dead"), lease("leased", (2, 3), (1, 31), "expired"),
    lease("leased", (2, 2), (31, 32), attempt=2),
)  # fmt: skip

OLD = (
    message("old", 1, 0, trace="never"), message("old", 2, 1, trace="again"), message("old", 3, 2, trace="young"),
)  # fmt: skip
"""A queue whose messages grow too old."""
OLD_LEASES = (lease("old", (2, 2), (4, 5), "retried"),)
OLD_LETTERS = (
    letter(1, 60, None, queue="old", trace_id="never", reason="expired", attempts=0),
    letter(2, 61, "not now", queue="old", trace_id="again", reason="expired", attempts=1, created_at=at(1)),
    letter(2, 61, "not now", queue="old", trace_id="again", reason="expired", attempts=0, created_at=at(1), group="audit"),
    letter(9, 62, "no JSON", queue="old", trace_id="other", reason="expired", attempts=0, group=""),
)  # fmt: skip


@pytest.fixture(scope="module")
def travelled(spark: SparkSession) -> DataFrame:
    """The journeys of all these queues: to find them takes as long for all at once as for those of one."""
    messages, leases = messages_of(spark, *SHOP, *FEW, *OLD), leases_of(spark, *SHOP_LEASES, *FEW_LEASES, *OLD_LEASES)
    return kept(journeys(messages, leases, letters_of(spark, *OLD_LETTERS)))


@pytest.fixture(scope="module")
def by_trace(travelled: DataFrame) -> dict[str, Row]:
    return {row["trace_id"]: row for row in travelled.collect()}


def test_each_hop_has_its_wait_work_pause_and_state(by_trace: dict[str, Row]) -> None:
    all_hops = [hop for trace in ("t1", "t2", "t3") for hop in by_trace[trace]["hops"]]
    found = {(hop["queue"], hop["seq"], hop["group"]): hop for hop in all_hops}
    paid = found["payments", 1, "bank"]
    assert (paid["state"], paid["attempts"], paid["errors"]) == ("done", 2, 1)
    assert (paid["wait_seconds"], paid["work_seconds"], paid["pause_seconds"]) == (2.0, 6.0, 8.0)
    assert found["payments", 2, "bank"]["state"] == "dead"
    assert found["orders", 3, "audit"]["state"] == "waiting"
    assert found["orders", 3, "audit"]["wait_seconds"] is None
    assert len(found) == len(all_hops) == 9


def test_a_journey_is_followed_across_queues_along_its_critical_path(by_trace: dict[str, Row]) -> None:
    first = by_trace["t1"].asDict(recursive=True)
    assert [(hop["queue"], hop["group"]) for hop in first["hops"]] == [
        ("orders", "audit"), ("orders", "billing"), ("payments", "bank"), ("shipments", "parcels"),
    ]  # fmt: skip
    # Audit was at work on the order, too, when the payment was pushed; but the payment has the time of billing's ack.
    assert [(step["queue"], step["group"]) for step in first["critical_path"]] == [
        ("orders", "billing"), ("payments", "bank"), ("shipments", "parcels"),
    ]  # fmt: skip
    assert (first["state"], first["duration_seconds"], first["messages"], first["errors"]) == ("done", 22.0, 3, 1)
    assert (first["wait_seconds"], first["work_seconds"], first["pause_seconds"]) == (3 + 2 + 1, 1 + 6 + 1, 8)
    assert first["queues"] == ["orders", "payments", "shipments"]
    assert (by_trace["t2"]["state"], by_trace["t3"]["state"]) == ("broken", "open")


def test_a_replayed_message_makes_good_what_died(by_trace: dict[str, Row]) -> None:
    row = by_trace["replayed"]
    assert (row["state"], row["errors"]) == ("done", 1)


def test_a_hop_whose_last_lease_ran_out_breaks_its_journey_and_not_those_of_its_neighbours(
    by_trace: dict[str, Row],
) -> None:
    assert [by_trace[f"order {seq}"]["state"] for seq in (1, 2, 3)] == ["broken", "done", "open"]


def test_a_message_that_grew_too_old_breaks_its_journey(
    spark: SparkSession, travelled: DataFrame, by_trace: dict[str, Row]
) -> None:
    rows = {trace: by_trace[trace] for trace in ("never", "again", "young")}
    states = {trace: {hop["group"]: hop["state"] for hop in row["hops"]} for trace, row in rows.items()}
    assert states == {
        "never": {"g": "dead", "audit": "waiting"},
        "again": {"g": "dead", "audit": "dead"},
        "young": {"g": "waiting", "audit": "waiting"},
    }
    assert [row["state"] for row in rows.values()] == ["broken", "broken", "open"]
    assert "other" not in by_trace
    [never] = [hop for hop in rows["never"]["hops"] if hop["group"] == "g"]
    assert (never["attempts"], never["errors"], never["leased_at"]) == (0, 1, None)
    assert never["ended_at"].timestamp() == at(60).timestamp()
    assert (never["wait_seconds"], never["work_seconds"], never["pause_seconds"]) == (60.0, 0.0, 0.0)
    [again] = [hop for hop in rows["again"]["hops"] if hop["group"] == "g"]
    assert (again["attempts"], again["errors"], again["ended_at"].timestamp()) == (1, 2, at(61).timestamp())
    assert (again["wait_seconds"], again["work_seconds"], again["pause_seconds"]) == (3.0, 1.0, 56.0)

    # It is known from then on, also when the letter was purged.
    old = travelled.where(F.col("trace_id").isin(*rows))
    later = journeys(messages_of(spark), leases_of(spark), known=old, groups=_groups(spark))
    assert {row["trace_id"]: row for row in later.collect()} == rows


def _groups(spark: SparkSession) -> DataFrame:
    return spark.createDataFrame([("old", "g"), ("old", "audit")], "queue string, group string")


def test_a_queue_that_nobody_reads_ends_a_journey(by_trace: dict[str, Row]) -> None:
    row = by_trace["unread"]
    assert (row["state"], row["duration_seconds"], row["started_at"].timestamp()) == ("done", 0.0, at(0).timestamp())


def test_a_group_that_was_not_meant_has_no_hop(spark: SparkSession) -> None:
    messages = messages_of(spark, message("payments", 1, 0), message("payments", 2, 100), message("payments", 3, 101))
    leases = leases_of(
        spark,
        lease("payments", (1, 3), (101, 102)),
        lease("payments", (1, 1), (1, 2), group="audit"),
        lease("payments", (3, 3), (101, 102), group="audit"),
    )
    found = {(row["seq"], row["group"]) for row in hops(messages, leases).collect()}
    assert found == {(1, "g"), (2, "g"), (3, "g"), (1, "audit"), (3, "audit")}


@pytest.mark.slow
def test_journeys_are_gone_on_with_from_where_they_were(spark: SparkSession) -> None:
    first, second = message("payments", 1, 0), message("payments", 2, 1)
    retried = lease("payments", (1, 1), (1, 2), "retried")
    known = kept(journeys(messages_of(spark, first, second), leases_of(spark, retried)))
    assert [[hop["state"] for hop in row["hops"]] for row in known.collect()] == [["open", "waiting"]]

    # The retried delivery is read again; the messages are known by now, and a third one is not.
    leases = leases_of(spark, retried, lease("payments", (1, 1), (5, 7)), lease("payments", (2, 2), (8, 9)))
    messages = messages_of(spark, first, second, message("payments", 3, 10)).withColumn("seen", F.col("seq") < 3)
    [row] = journeys(messages, leases, known=known).collect()
    [at_once] = journeys(messages.drop("seen"), leases).collect()
    assert row == at_once
    assert [(hop["state"], hop["attempts"], hop["errors"], hop["work_seconds"]) for hop in row["hops"]] == [
        ("done", 2, 1, 3.0), ("done", 1, 0, 1.0), ("waiting", 0, 0, None),
    ]  # fmt: skip


def test_the_slowest_the_broken_and_the_costly_are_picked_out(travelled: DataFrame) -> None:
    followed = travelled.where(F.col("trace_id").isin("t1", "t2", "t3"))
    assert [row["trace_id"] for row in slowest(followed, 2).collect()] == ["t1", "t2"]
    assert [(row["trace_id"], row["broken_at"]) for row in broken(followed).collect()] == [("t2", "payments")]
    first = by_queue(followed).first()
    assert first is not None
    # t2: 3 of wait and 1 of work; the path of t2 ends where audit ended, at the same time as the payment.
    assert (first["queue"], first["group"]) == ("payments", "bank")
