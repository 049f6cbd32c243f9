"""metrics: what happened per window of time, queue, partition bucket and group, and how long it took.

Everything is counted at the time when it happened: a push at its time, a delivery at its end. So a window can be computed again
at any time from the same rows, and late data goes into the right window. `late_since` tells from where windows have to be
computed again.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from functools import reduce

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - as everyone writes it

from skep.spark.pipelines.attempts import RELEASED, attempts, seconds_between

KEYS = ("window_start", "window_end", "queue", "bucket", "group")
COUNTS = ("pushed", "delivered", "settled", "retried", "dead")
LATENCIES = {
    "wait": "from the push to the first delivery",
    "work": "of a delivery",
    "total": "from the push to the ack",
}
QUANTILES = {"p50": 0.5, "p95": 0.95, "p99": 0.99}
ACCURACY = 10_000
FACTS = {
    "window_start": "timestamp", "window_end": "timestamp", "queue": "string", "bucket": "int", "group": "string",
    "pushed": "bigint", "delivered": "bigint", "settled": "bigint", "open": "bigint", "buried": "bigint",
    "letters": "bigint", "wait": "double", "work": "double", "total": "double",
}  # fmt: skip


def metrics(
    messages: DataFrame,
    leases: DataFrame,
    dead_letters: DataFrame | None = None,
    *,
    window: str | None = "1 minute",
    buckets: int = 1,
    totals: bool = False,
    groups: DataFrame | None = None,
) -> DataFrame:
    """One row per window, queue, bucket and group, with counts and latencies in seconds.

    ``window`` is a duration in Spark's words, or None for one row over all time. A message counts as pushed once for every
    group of its queue (and once without a group when there is none), so that the figures of a row can be compared.
    ``groups`` (`queue, group`) are all groups, where these leases do not name them all. ``buckets`` divides the partitions of a
    queue by the CRC-32 of their names. ``totals`` adds rows over all time, which have no window.
    """
    ended = leases.where(F.col("outcome") != RELEASED)
    facts = [
        _pushed(messages, leases if groups is None else groups, window, buckets),
        _delivered(ended, window, buckets),
        _latencies(attempts(messages, leases), window, buckets),
    ]
    if dead_letters is not None:
        facts.append(_letters(dead_letters, window, buckets))
    every = reduce(DataFrame.unionByName, facts)
    by_window = [F.col(name) for name in KEYS]
    grouped = every.groupingSets([by_window, by_window[2:]], *by_window) if totals else every.groupBy(*by_window)
    together = grouped.agg(*_sums(), *_sketches())
    # A lease with one message retried and another buried is `retried` in the history; the dead letters correct that.
    dead = F.greatest("buried", "letters")
    retried = F.greatest(F.lit(0), F.col("open") - (dead - F.col("buried")))
    counts = [F.col(name) for name in ("pushed", "delivered", "settled")]
    return together.select(*KEYS, *counts, retried.alias("retried"), dead.alias("dead"), *_quantiles())


def late_since(newest: datetime, window_seconds: float, late_seconds: float) -> datetime:
    """The first window that is not final, when the previous run saw times up to ``newest``."""
    reach = newest - timedelta(seconds=late_seconds)
    return reach - timedelta(seconds=reach.timestamp() % window_seconds)


def with_groups(found: DataFrame, groups: DataFrame) -> DataFrame:
    """The metrics after these groups (`queue, group`) have appeared: pushes count for each of them.

    So final windows need not be computed again when a new group begins to read.
    """
    pushes = found.where(F.col("pushed") > 0).select(*KEYS[:4], "pushed").distinct()
    there = found.select("queue", "bucket", "group", "window_start")
    zeros = {name: F.lit(0) for name in COUNTS if name != "pushed"}
    added = (
        pushes.join(F.broadcast(groups), "queue")
        .join(there, ["queue", "bucket", "group", "window_start"], "left_anti")
        .withColumns(zeros)
    )
    read = F.broadcast(groups.select("queue").distinct())
    unread = found.where(F.col("group").isNull()).join(read, "queue", "left_anti")
    kept = found.where(F.col("group").isNotNull()).unionByName(unread)
    missing = {name: F.lit(None) for name in found.columns if name not in added.columns}
    added = added.withColumns(missing)
    return kept.unionByName(added.select(*[F.col(name).cast(kind).alias(name) for name, kind in found.dtypes]))


def _pushed(messages: DataFrame, named: DataFrame, window: str | None, buckets: int) -> DataFrame:
    groups = F.broadcast(named.select("queue", "group").distinct())
    counted = messages.select("queue", *_windowed("created_at", window), _bucket(buckets))
    counted = counted.groupBy("window_start", "window_end", "queue", "bucket").agg(F.count(F.lit(1)).alias("pushed"))
    return _facts(counted.join(groups, "queue", "left"))


def _delivered(ended: DataFrame, window: str | None, buckets: int) -> DataFrame:
    left = F.col("messages") - F.col("completed")
    return _facts(
        ended.select(
            "queue", "group", *_windowed("settled_at", window), _bucket(buckets),
            F.col("messages").alias("delivered"), F.col("completed").alias("settled"),
            F.when(F.col("outcome").isin("retried", "expired"), left).alias("open"),
            F.when(F.col("outcome") == "dead", left).alias("buried"),
        )
    )  # fmt: skip


def _latencies(tried: DataFrame, window: str | None, buckets: int) -> DataFrame:
    done = F.col("outcome") == "completed"
    return _facts(
        tried.select(
            "queue", "group", *_windowed("settled_at", window), _bucket(buckets),
            F.when(F.col("attempt") == 1, seconds_between("created_at", "leased_at")).alias("wait"),
            seconds_between("leased_at", "settled_at").alias("work"),
            F.when(done, seconds_between("created_at", "settled_at")).alias("total"),
        )
    )  # fmt: skip


def _letters(dead_letters: DataFrame, window: str | None, buckets: int) -> DataFrame:
    counted = dead_letters.where(F.col("group").isNotNull() & (F.col("group") != "")).select(
        F.col("source_queue").alias("queue"), "group", *_windowed("failed_at", window), _bucket(buckets)
    )
    return _facts(counted.withColumn("letters", F.lit(1)))


def _windowed(column: str, window: str | None) -> Sequence[Column]:
    """Begin and end of the window that a time is in; null without windows."""
    if window is None:
        return F.lit(None).cast("timestamp").alias("window_start"), F.lit(None).cast("timestamp").alias("window_end")
    found = F.window(column, window)
    return found["start"].alias("window_start"), found["end"].alias("window_end")


def _bucket(buckets: int) -> Column:
    return (F.crc32(F.encode(F.col("partition"), "UTF-8")) % buckets).cast("int").alias("bucket")


def _facts(frame: DataFrame) -> DataFrame:
    """The common columns of all facts; the missing ones are null."""
    return frame.select(
        *[
            (F.col(name) if name in frame.columns else F.lit(None)).cast(kind).alias(name)
            for name, kind in FACTS.items()
        ]
    )


def _sums() -> list[Column]:
    names = ("pushed", "delivered", "settled", "open", "buried", "letters")
    return [F.coalesce(F.sum(name), F.lit(0)).alias(name) for name in names]


def _sketches() -> list[Column]:
    """All quantiles of a latency at once: each of them alone would take as long."""
    shares = F.array(*map(F.lit, QUANTILES.values()))
    return [F.percentile_approx(name, shares, ACCURACY).alias(name) for name in LATENCIES]


def _quantiles() -> list[Column]:
    return [
        F.col(name)[place].alias(f"{name}_{label}_seconds")
        for name in LATENCIES
        for place, label in enumerate(QUANTILES)
    ]
