"""The deliveries of each message: the lease history has a row per settling call, which is spread over its messages here.

A row has the first and last seq, the number of messages, and how many of them were completed. In an ordered queue these are the
messages of the partition from the first seq to the last, the completed ones first. Where messages of a lease were settled out of
order, or the queue is unordered, several rows may cover a message; it counts as completed from the first row that says so. Retention
removes messages from the head of a log. So when the first message of a row is gone, the missing ones were all before those that are left.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812 - as everyone writes it

BIN_SEQS = 1024
"""Leases and messages are joined by bins of so many seqs: a join by range alone compares everything with everything."""

RELEASED = "released"
"""The outcome of a delivery that reached nobody. It is not counted."""


def attempts(messages: DataFrame, leases: DataFrame) -> DataFrame:
    """One row per message and delivery: the message, the group, and `attempt, leased_at, settled_at, outcome` and `position`.

    ``outcome`` is the outcome of this message: `completed`, `retried`, `expired` or `dead`.
    """
    spread = in_bins(leases.where(F.col("outcome") != RELEASED))
    logged = messages.select("queue", "partition", "seq", "trace_id", "created_at").withColumn(
        "bin", _bin(F.col("seq"))
    )
    met = logged.join(spread, ["queue", "partition", "bin"]).where(
        F.col("seq").between(F.col("first_seq"), F.col("last_seq"))
    )
    lease = Window.partitionBy("queue", "position")
    missing = F.greatest(F.lit(0), F.col("messages") - F.count(F.lit(1)).over(lease))
    gone = F.when(F.min("seq").over(lease) > F.col("first_seq"), missing).otherwise(0)
    place = F.row_number().over(lease.orderBy("seq")) + gone
    outcome = F.when(place <= F.col("completed"), "completed").otherwise(F.col("outcome"))
    return met.select(
        "queue",
        "partition",
        "seq",
        "trace_id",
        "group",
        "created_at",
        "position",
        "attempt",
        "leased_at",
        "settled_at",
        outcome.alias("outcome"),
    )


def in_bins(leases: DataFrame) -> DataFrame:
    """Each lease once for each bin of seqs that it reaches into."""
    return leases.withColumn("bin", F.explode(F.sequence(_bin(F.col("first_seq")), _bin(F.col("last_seq")))))


def seconds_between(earlier: str, later: str) -> Column:
    """The seconds from one time to another; 0 where clocks disagree."""
    return F.greatest(F.lit(0.0), F.unix_micros(F.col(later)) / 1e6 - F.unix_micros(F.col(earlier)) / 1e6)


def _bin(seq: Column) -> Column:
    return F.floor(seq / BIN_SEQS)
