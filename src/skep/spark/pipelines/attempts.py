"""Which delivery each message had: the lease history, which has a row per call, spread over the messages it speaks of.

A row names the first and last seq, how many messages and how many of them were completed. In an ordered queue these are the
messages of that partition from the first to the last, the completed ones before the others. Where messages of a lease were
settled out of order, or the queue is unordered, a row may cover a message that another row speaks of, too; a message counts
as completed when the first row says so. Retention takes messages away from the head of a log: when the first of a row is gone,
so are those that were before the others that are left.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812 - as everyone writes it

BIN_SEQS = 1024
"""Rows and messages meet in bins of so many seqs, since a join by range alone compares everything with everything."""

RELEASED = "released"
"""A delivery that reached nobody: it counts nowhere."""


def attempts(messages: DataFrame, leases: DataFrame) -> DataFrame:
    """One row per message and delivery: where it is, whose it was, `attempt, leased_at, settled_at, outcome` and `position`.

    ``outcome`` is what became of this message: `completed`, `retried`, `expired` or `dead`.
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
    """How long it is from one time to another; never below 0, though clocks may disagree."""
    return F.greatest(F.lit(0.0), F.unix_micros(F.col(later)) / 1e6 - F.unix_micros(F.col(earlier)) / 1e6)


def _bin(seq: Column) -> Column:
    return F.floor(seq / BIN_SEQS)
