"""Run `metrics`: a pass reads the input of the windows that are not final yet, and computes these windows again.

A window is final once nothing can be added to it. The seqs of the logs tell which messages are new since the previous pass. For leases
it is the time, minus the allowance of `--late`: the lease history is only roughly in the order of commits.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812 - as everyone writes it

from skep.spark.pipelines import metrics as measured
from skep.spark.running.context import MOST_ROWS_SHOWN, Context, lake_dataset, server_dataset
from skep.spark.running.figures import seconds_text
from skep.spark.running.inputs import Activity
from skep.spark.running.keeping import KeptTable, TableReach
from skep.spark.running.past import PastTime, activity_in, past_time
from skep.spark.running.record import Plot, Stage

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

MOST_POINTS = 2_000
MOST_LINES = 8
"""The most queues in a plot: one for each colour."""
LEAST_LATE_SECONDS = 60.0
"""How long after its end the server may commit a lease."""
FORMAT = 1


def since_of(reach: TableReach | None, context: Context, made_with: str) -> datetime | None:
    """The time from which a pass reads leases; None when it must read all of them."""
    queues = context.inputs.queues
    if reach is None or not reach.covers(queues, made_with):
        return None
    newest = min(reach.as_of[queue] for queue in queues)
    return measured.late_since(newest, _width(context), _late_seconds(context))


def note_read(context: Context, stage: Stage, happened: Activity) -> None:
    """Count the rows that were read from the server."""
    stage.rows_in += sum(happened.rows.values())
    context.tell(stage)
    for name, count in happened.rows.items():
        context.read(server_dataset(context, name, count))


def groups_frame(context: Context, reach: TableReach) -> DataFrame:
    """The known groups of all queues."""
    return context.spark.createDataFrame(reach.known_groups, "queue string, group string")


def run_metrics(context: Context) -> None:
    """Compute counts and latencies per window, and keep them for good. Windows that late data may reach are computed again."""
    with context.stage("metrics") as stage:
        wishes, queues = context.wishes, context.inputs.queues
        table = KeptTable(context.spark, context.root, "metrics", "date")
        made_with = f"{FORMAT}/{wishes.window}/{wishes.buckets}"
        before, past = table.reach(), _past_windows(context)
        since = since_of(before, context, made_with)
        if past is None:
            happened = context.inputs.activity(since, {} if before is None or since is None else before.through)
        else:
            happened = activity_in(context, past)
        note_read(context, stage, happened)
        reach = before or TableReach(made_with=made_with)
        reach = reach.with_groups(happened) if past else reach.grown(queues, happened, made_with)
        groups = groups_frame(context, reach)
        both = measured.metrics(
            happened.messages, happened.leases, happened.dead_letters, window=wishes.window, buckets=wishes.buckets,
            totals=True, groups=groups,
        ).cache()  # fmt: skip
        windows = _dated(both.where(F.col("window_start").isNotNull()))
        is_fresh = _is_fresh(context, since, before) if past is None else past.has("window_start")
        rows = windows.where(is_fresh)
        changed = _dates(rows)
        if table.has_rows():
            if past is not None:
                is_fresh = is_fresh & F.col("queue").isin(queues)
                changed |= _dates(table.rows(windows).where(is_fresh))
            kept = table.rows(windows).where(~is_fresh)
            if before is None or reach.known_groups != before.known_groups:
                kept = measured.with_groups(kept.drop("date"), groups).transform(_dated)
                changed |= _dates(kept)
            rows = kept.where(F.col("date").isin(sorted(changed))).unionByName(rows)
        table.replace(rows, changed, reach)
        done = table.rows(windows)
        stage.rows_out = done.count()
        stage.batches += 1
        context.wrote(lake_dataset(context, "metrics", done, stage.rows_out))
        _show_totals(context, done, both.where(F.col("window_start").isNull()))
        _plot_windows(context, done)
        both.unpersist()


def _past_windows(context: Context) -> PastTime | None:
    """The windows of a past time that the user wants to be computed again."""
    past = past_time(context)
    return None if past is None else past.widened(_width(context))


def _late_seconds(context: Context) -> float:
    return max(context.wishes.late_seconds, LEAST_LATE_SECONDS)


def _is_fresh(context: Context, since: datetime | None, before: TableReach | None) -> Column:
    """The rows that this pass computes: all rows of new queues, and the rows of known queues that are not final."""
    queues = context.inputs.queues
    mine = F.col("queue").isin(queues)
    if since is not None:
        return mine & (F.col("window_start") >= F.lit(since))
    seen = [] if before is None else [queue for queue in queues if queue in before.as_of]
    if before is None or not seen:
        return mine
    # Everything was read, because a queue or an option is new. Final rows stay: the server may have deleted their input.
    final = min(before.as_of[queue] for queue in seen) - timedelta(seconds=_late_seconds(context))
    # With another width, old and new windows meet where both have a border.
    step = math.lcm(round(_width(context)), round(_width(context, before.made_with.split("/")[1])))
    border = datetime.fromtimestamp(final.timestamp() // step * step, UTC)
    return mine & (~F.col("queue").isin(seen) | (F.col("window_start") >= F.lit(border)))


def _dated(windows: DataFrame) -> DataFrame:
    return windows.withColumn("date", F.date_format("window_start", "yyyy-MM-dd"))


def _dates(rows: DataFrame) -> set[str]:
    return {row[0] for row in rows.select("date").distinct().collect()}


def _width(context: Context, window: str | None = None) -> float:
    """The seconds of a window."""
    return _seconds_of(context.spark, window or context.wishes.window)


@lru_cache(maxsize=8)
def _seconds_of(spark: SparkSession, window: str) -> float:
    """The seconds of a window's width in Spark's words; asking Spark takes a query."""
    found = F.window(F.timestamp_seconds(F.lit(0)), window)
    one = spark.range(1).select(F.unix_seconds(found["end"]) - F.unix_seconds(found["start"]))
    return float(one.collect()[0][0])


def _show_totals(context: Context, table: DataFrame, fresh: DataFrame) -> None:
    """Show the counts of all time, and the latencies of this pass, of the queues and groups with most messages."""
    keys = ("queue", "bucket", "group")
    divided = ["bucket"] if context.wishes.buckets > 1 else []
    columns = ["queue", *divided, "group", *measured.COUNTS, "wait p50", "wait p95", "work p95", "total p95"]
    fields = ["wait_p50_seconds", "wait_p95_seconds", "work_p95_seconds", "total_p95_seconds"]
    counted = table.groupBy(*keys).agg(*[F.sum(name).alias(name) for name in measured.COUNTS])
    # Only these come to the driver, however many queues and groups there are.
    found = counted.orderBy(F.desc("pushed"), *keys).limit(MOST_ROWS_SHOWN + 1).collect()
    most = sorted(found[:MOST_ROWS_SHOWN], key=lambda row: (row["queue"], row["bucket"], row["group"] or ""))
    mine = fresh.where(F.col("queue").isin([row["queue"] for row in most])).collect()
    latencies = {tuple(row[name] for name in keys): row for row in mine}
    shown = []
    for row in most:
        latency = latencies.get(tuple(row[name] for name in keys))
        times = [None if latency is None else seconds_text(latency[name]) for name in fields]
        shown.append(
            (
                row["queue"],
                *(row[name] for name in divided),
                row["group"],
                *(row[name] for name in measured.COUNTS),
                *times,
            )
        )
    note = f"the {len(most)} with most messages; the table metrics has them all"
    context.show("Queues and groups", columns, shown, note if len(found) > len(most) else "")


def _plot_windows(context: Context, table: DataFrame) -> None:
    """Plot messages per second and latencies over time."""
    width = F.unix_seconds("window_end") - F.unix_seconds("window_start")
    # Each group of a bucket counts all messages that were pushed to the bucket.
    buckets = table.groupBy("window_start", "queue", "bucket").agg(
        F.max("pushed").alias("pushed"),
        F.sum("settled").alias("settled"),
        F.max("total_p95_seconds").alias("latency"),
        F.max(width).alias("width"),
    )
    rows = (
        buckets.groupBy("window_start", "queue")
        .agg(
            (F.sum("pushed") / F.max("width")).alias("pushed"),
            (F.sum("settled") / F.max("width")).alias("settled"),
            F.max("latency").alias("latency"),
        )
        .orderBy(F.desc("window_start"))
        .limit(MOST_POINTS)
        .collect()
    )
    rows.sort(key=lambda row: row["window_start"])
    for title, column, unit in (
        ("Pushed", "pushed", "messages/s"), ("Settled", "settled", "messages/s"), ("End to end, p95", "latency", "s"),
    ):  # fmt: skip
        series: dict[str, list[tuple[float, float]]] = {}
        for row in rows:
            if row[column] is not None:
                series.setdefault(row["queue"], []).append((row["window_start"].timestamp(), float(row[column])))
        largest = sorted(series, key=lambda queue: -max(value for _, value in series[queue]))[:MOST_LINES]
        note = f"the {MOST_LINES} greatest of {len(series):,} queues" if len(largest) < len(series) else ""
        drawn: dict[str, Sequence[tuple[float, float]]] = {
            queue: points for queue, points in series.items() if queue in largest
        }
        kept = [one for one in context.run.plots if one.title != title]
        plot = Plot(title=title, kind="lines", unit=unit, series=drawn, step=_width(context), note=note)
        context.run.plots = [*kept, plot]
