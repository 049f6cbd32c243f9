"""Running metrics, journeys and dead-letters: read, compute, keep as a table, and show."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812 - as everyone writes it

from skep.spark.pipelines import dead_letters as letters
from skep.spark.pipelines import journeys as travelled
from skep.spark.pipelines import metrics as measured
from skep.spark.running.context import Context, lake_dataset, server_dataset
from skep.spark.running.inputs import Activity
from skep.spark.running.lake import OWN, replace_folder
from skep.spark.running.record import Cell, Plot, Stage

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row

MOST_POINTS = 2_000
SLOWEST = 10
HEALTHY_MESSAGES = 100_000
"""So many of the newest messages of a queue are looked at, to know what is usual in it."""


def run_metrics(context: Context) -> None:
    """Counts and latencies per window, kept for good; windows that late data may reach are computed anew."""
    with context.stage("metrics") as stage:
        happened = _read(context, stage)
        both = measured.metrics(
            *happened, window=context.wishes.window, buckets=context.wishes.buckets, totals=True
        ).cache()
        windows = both.where(F.col("window_start").isNotNull())
        table = _keep(context, stage, "metrics", _with_final_windows(context, windows))
        _show_totals(context, both.where(F.col("window_start").isNull()).orderBy("queue", "bucket", "group").collect())
        _plot_windows(context, table)
        both.unpersist()


def run_journeys(context: Context) -> None:
    """What became of each trace; traces that the server has forgotten stay as they were last seen."""
    with context.stage("journeys") as stage:
        happened = _read(context, stage)
        fresh = travelled.journeys(happened.messages, happened.leases)
        before = _before(context, "journeys", fresh)
        if before is not None:
            fresh = fresh.unionByName(before.join(fresh.select("trace_id"), "trace_id", "leftanti"))
        table = _keep(context, stage, "journeys", fresh)
        _show_journeys(context, table)


def run_dead_letters(context: Context) -> None:
    """Why messages were given up on, as it is now."""
    with context.stage("dead-letters") as stage:
        dead = context.inputs.activity().dead_letters
        died = {row["source_queue"]: row["count"] for row in dead.groupBy("source_queue").count().collect()}
        stage.rows_in = sum(died.values())
        context.read(server_dataset(context, "dead_letters", stage.rows_in))
        found = letters.dead_letter_groups(dead, _healthy(context, list(died)))
        table = _keep(context, stage, "dead_letters", found)
        _show_dead_letters(context, stage, table.orderBy(F.desc("letters"), "fingerprint").collect())


def _healthy(context: Context, queues: Sequence[str]) -> DataFrame:
    """What letters are compared with: the newest messages of the queues they come from, as far as these are still there."""
    bounds = {
        queue: held for queue, held in context.inputs.bounds().items() if queue in queues and held.last >= held.first
    }
    start = {queue: max(held.first - 1, held.last - HEALTHY_MESSAGES) for queue, held in bounds.items()}
    end = {queue: held.last for queue, held in bounds.items()}
    if not end:
        return context.spark.createDataFrame([], "queue string, seq bigint, payload string")
    return context.inputs.messages(("queue", "seq", "payload"), start, end)


def _read(context: Context, stage: Stage) -> Activity:
    happened = context.inputs.activity()
    counts = {"messages": happened.messages.count(), "leases": happened.leases.count()}
    stage.rows_in = sum(counts.values())
    context.watcher.stage(stage)
    for name, count in counts.items():
        context.read(server_dataset(context, name, count))
    return happened


def _keep(context: Context, stage: Stage, name: str, frame: DataFrame) -> DataFrame:
    """Write a table whole, beside the one that is there, then put it in its place."""
    fresh = context.tables / OWN / f"fresh-{name}"
    shutil.rmtree(fresh, ignore_errors=True)
    frame.coalesce(1).write.parquet(str(fresh))
    replace_folder(fresh, context.tables / name)
    table = context.spark.read.parquet(str(context.tables / name))
    stage.rows_out = table.count()
    stage.batches += 1
    context.wrote(lake_dataset(context, name, table, stage.rows_out))
    return table


def _before(context: Context, name: str, like: DataFrame) -> DataFrame | None:
    """The table as the run before left it, if it is of the same form."""
    folder = context.tables / name
    if not any(folder.glob("*.parquet")):
        return None
    table = context.spark.read.parquet(str(folder))
    return table if table.dtypes == like.dtypes else None


def _with_final_windows(context: Context, fresh: DataFrame) -> DataFrame:
    """The windows of earlier runs that nothing can change any more, and the fresh ones after them."""
    before = _before(context, "metrics", fresh)
    newest = None if before is None else before.agg(F.max("window_end")).collect()[0][0]
    if before is None or newest is None:
        return fresh
    width = before.agg(F.max(F.unix_seconds("window_end") - F.unix_seconds("window_start"))).collect()[0][0]
    since = measured.late_since(newest.astimezone(UTC), float(width), context.wishes.late_seconds)
    return before.where(F.col("window_start") < F.lit(since)).unionByName(
        fresh.where(F.col("window_start") >= F.lit(since))
    )


def _show_totals(context: Context, rows: list[Row]) -> None:
    columns = ["queue", "group", *measured.COUNTS, "wait p50", "wait p95", "work p95", "total p95"]
    fields = ["wait_p50_seconds", "wait_p95_seconds", "work_p95_seconds", "total_p95_seconds"]
    shown = [
        (
            row["queue"],
            row["group"],
            *(row[name] for name in measured.COUNTS),
            *(_seconds(row[name]) for name in fields),
        )
        for row in rows
    ]
    context.show("Queues and groups", None, columns, shown)


def _plot_windows(context: Context, table: DataFrame) -> None:
    """Messages per second and latencies over time."""
    width = F.unix_seconds("window_end") - F.unix_seconds("window_start")
    rows = (
        table.groupBy("window_start", "queue")
        .agg(
            (F.max("pushed") / F.max(width)).alias("pushed"),
            (F.sum("settled") / F.max(width)).alias("settled"),
            F.max("total_p95_seconds").alias("latency"),
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
                series.setdefault(row["queue"], []).append((_instant(row["window_start"]), float(row[column])))
        kept = [one for one in context.run.plots if one.title != title]
        context.run.plots = [*kept, Plot(title=title, kind="lines", unit=unit, series=dict(series))]


def _show_journeys(context: Context, table: DataFrame) -> None:
    states = table.groupBy("state").agg(
        F.count(F.lit(1)).alias("journeys"),
        F.percentile_approx("duration_seconds", [0.5, 0.95, 0.99]).alias("durations"),
        F.sum("errors").alias("errors"),
    )
    rows = [
        (row["state"], row["journeys"], row["errors"], *map(_seconds, row["durations"]))
        for row in states.orderBy("state").collect()
    ]
    context.show("Journeys", None, ("state", "journeys", "errors", "p50", "p95", "p99"), rows)
    slow = [
        (row["trace_id"], row["state"], _seconds(row["duration_seconds"]), row["messages"], row["errors"], _way(row))
        for row in travelled.slowest(table, SLOWEST).collect()
    ]
    context.show("The slowest journeys", None, ("trace", "state", "took", "messages", "errors", "critical path"), slow)
    spent = travelled.by_queue(table).collect()
    bars = [
        (f"{row['queue']} {part}", float(row[f"{part}_seconds"] or 0))
        for row in spent
        for part in ("wait", "work", "pause")
    ]
    kept = [one for one in context.run.plots if one.title != "Where journeys spend their time"]
    plot = Plot(
        title="Where journeys spend their time", kind="bars", unit="s", bars=[bar for bar in bars if bar[1] > 0]
    )
    context.run.plots = [*kept, plot]
    lost = [
        (row["trace_id"], row["broken_at"], row["errors"], _way(row))
        for row in travelled.broken(table).limit(SLOWEST).collect()
    ]
    if lost:
        context.show("Broken journeys", None, ("trace", "broken at", "errors", "critical path"), lost)


def _show_dead_letters(context: Context, stage: Stage, rows: list[Row]) -> None:
    shown: list[Sequence[Cell]] = []
    for row in rows[:SLOWEST]:
        apart = "; ".join(_apart(field) for field in row["fields"][:3])
        shown.append(
            (row["source_queue"], row["group"], row["letters"], row["pattern"], _sparkline(row["trend"]), apart)
        )
    context.show("Dead letters", None, ("queue", "group", "letters", "error", "trend", "what sets them apart"), shown)
    total = sum(row["letters"] for row in rows)
    context.check(stage, "no message was given up on", total == 0, f"{total} dead letters", "warn")


def _apart(field: Row) -> str:
    match field["kind"]:
        case "presence":
            what = f"has {field['field']}"
        case "shape":
            what = f"{field['field']} looks like {field['value']}"
        case _:
            what = f"{field['field']} is {field['value']}"
    return f"{what} ({field['dead_share']:.0%} of them, {field['healthy_share']:.0%} of healthy ones)"


def _way(row: Row) -> str:
    return " → ".join(
        f"{step['queue']} {_seconds((step['wait_seconds'] or 0) + (step['work_seconds'] or 0) + (step['pause_seconds'] or 0))}"
        for step in row["critical_path"]
    )


def _sparkline(trend: Sequence[int]) -> str:
    marks = " ▁▂▃▄▅▆▇█"
    most = max(trend, default=0) or 1
    return "".join(marks[round(one / most * (len(marks) - 1))] for one in trend)


def _seconds(value: float | None) -> str | None:
    if value is None:
        return None
    if value < 1:
        return f"{value * 1000:.0f} ms"
    return f"{value:.1f} s" if value < 120 else f"{value / 60:.1f} min"


def _instant(value: datetime) -> float:
    return value.timestamp()
