"""Run `journeys`: a pass continues the journeys with new messages or deliveries, and leaves the others as they are.

A journey keeps its hops, and a hop keeps its deliveries by their positions in the lease history. So a delivery that is read twice
counts once, and one that the server has deleted since is still there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812 - as everyone writes it

from skep.spark.pipelines import journeys as travelled
from skep.spark.pipelines.archive import by_queue
from skep.spark.running.context import Context, lake_dataset
from skep.spark.running.figures import seconds_text
from skep.spark.running.inputs import TRACED, Activity
from skep.spark.running.keeping import KeptTable, TableReach
from skep.spark.running.measuring import groups_frame, note_read, since_of
from skep.spark.running.past import SEQS, PastTime, journeys_in, past_time
from skep.spark.running.record import Plot, Stage

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import Column, DataFrame, Row

SLOWEST = 10
MOST_BARS = 24
UNTRACED = (
    "no message carries the trace of another. Pass it on: push(…, trace_id=message.trace_id), see docs/tracing.md"
)
MADE_WITH = "2"
SHOWN_HOURS = 24
"""In repeated passes, the report shows the journeys that began in so many last hours."""


def run_journeys(context: Context) -> None:
    """Compute the outcome of each trace. A trace whose messages the server has deleted keeps its last known outcome."""
    with context.stage("journeys") as stage:
        table = KeptTable(context.spark, context.root, "journeys", "hour")
        before, past = table.reach(), past_time(context)
        if past is not None:
            _compute_again(context, stage, table, past)
            return
        happened, reach, through = _look(context, before)
        note_read(context, stage, happened)
        groups = groups_frame(context, reach)
        like = _timed(travelled.journeys(happened.messages, happened.leases))
        old = table.rows(like)
        messages = happened.messages.withColumn("seen", _is_seen(through))
        concerned = (
            messages.select("trace_id")
            .unionByName(_awaiting(old, happened.leases))
            .unionByName(travelled.expired(happened.dead_letters).select("trace_id"))
            .distinct()
        )
        known = old.join(concerned, "trace_id", "left_semi").cache()
        # Messages that retention has removed since are known from their hops.
        remembered = travelled.hops_of(known).select(*TRACED).distinct().withColumn("seen", F.lit(True))
        if through is not None:
            messages = messages.unionByName(remembered.join(messages, ["queue", "seq", "trace_id"], "left_anti"))
        found = _timed(
            travelled.journeys(messages, happened.leases, happened.dead_letters, known=known, groups=groups)
        ).cache()
        changed = {row[0] for row in found.select("hour").union(known.select("hour")).distinct().collect()}
        others = old.where(F.col("hour").isin(sorted(changed))).join(known.select("trace_id"), "trace_id", "left_anti")
        table.replace(found.unionByName(others), changed, reach)
        known.unpersist()
        found.unpersist()
        _tell(context, stage, table.rows(like))


def _compute_again(context: Context, stage: Stage, table: KeptTable, past: PastTime) -> None:
    """Compute the journeys that began in a past time again, from the lake."""
    happened = journeys_in(context, past)
    note_read(context, stage, happened)
    reach = (table.reach() or TableReach(made_with=MADE_WITH)).with_groups(happened)
    groups = groups_frame(context, reach)
    found = travelled.journeys(happened.messages, happened.leases, happened.dead_letters, groups=groups)
    found = _timed(found.withColumns({name: _own_seqs(name) for name in ("hops", "critical_path")})).cache()
    old = table.rows(found)
    changed = {
        row[0] for row in found.unionByName(old.where(past.has("started_at"))).select("hour").distinct().collect()
    }
    others = old.where(F.col("hour").isin(sorted(changed)) & ~past.has("started_at"))
    table.replace(found.unionByName(others.join(found.select("trace_id"), "trace_id", "left_anti")), changed, reach)
    found.unpersist()
    _tell(context, stage, table.rows(found))


def _own_seqs(steps: str) -> Column:
    """Hops with the seqs of their own generation."""
    return F.transform(steps, lambda step: step.withField("seq", F.pmod(step["seq"], F.lit(SEQS))))


def _tell(context: Context, stage: Stage, done: DataFrame) -> None:
    stage.rows_out = done.count()
    stage.batches += 1
    stage.note = untraced(done, stage.rows_out)
    context.wrote(lake_dataset(context, "journeys", done, stage.rows_out))
    _show_journeys(context, _newest(done) if context.wishes.every_seconds is not None else done)


def untraced(journeys: DataFrame, count: int) -> str:
    """The hint for traces that each have only one message; empty when a trace has more."""
    if not count or not journeys.where(F.col("messages") > 1).isEmpty():
        return ""
    return f"{count:,} journeys of one message each: {UNTRACED}"


def _look(context: Context, before: TableReach | None) -> tuple[Activity, TableReach, Mapping[str, int] | None]:
    """The activity since the previous pass, and the seqs that it had seen; all activity when groups or queues are new."""
    queues = context.inputs.queues
    since = since_of(before, context, MADE_WITH)
    if before is not None and since is not None:
        happened = context.inputs.activity(since, before.through)
        reach = before.grown(queues, happened, MADE_WITH)
        # A new group may get every message. A log that is shorter than before is another log.
        same = all(happened.through.get(queue, 0) >= before.through[queue] for queue in queues)
        same = same and before.is_of(happened.logs)
        if reach.known_groups == before.known_groups and same:
            return happened, reach, before.through
    happened = context.inputs.activity()
    return happened, (before or TableReach(made_with=MADE_WITH)).grown(queues, happened, MADE_WITH), None


def _awaiting(old: DataFrame, leases: DataFrame) -> DataFrame:
    """The traces of unfinished journeys that leases may have changed: a lease covers one of their messages, or has passed a waiting one."""
    reached = leases.groupBy("queue", "partition").agg(F.min("first_seq").alias("from"), F.max("last_seq").alias("to"))
    hops = travelled.hops_of(old.where(F.col("state") != "done")).select(
        "trace_id", "queue", "partition", "seq", "state"
    )
    waits = F.col("state").isin("open", "waiting")
    met = (F.col("seq") <= F.col("to")) & (waits | (F.col("seq") >= F.col("from")))
    return hops.join(reached, ["queue", "partition"]).where(met).select("trace_id")


def _is_seen(through: Mapping[str, int] | None) -> Column:
    """Whether an earlier pass has seen a message."""
    if not through:
        return F.lit(False)
    return F.coalesce(F.col("seq") <= by_queue(through, "bigint"), F.lit(False))


def _timed(found: DataFrame) -> DataFrame:
    return found.withColumn("hour", F.date_format("started_at", "yyyy-MM-dd-HH"))


def _newest(table: DataFrame) -> DataFrame:
    hours = sorted(row[0] for row in table.select("hour").distinct().collect())
    return table.where(F.col("hour").isin(hours[-SHOWN_HOURS:]))


def _show_journeys(context: Context, table: DataFrame) -> None:
    states = table.groupBy("state").agg(
        F.count(F.lit(1)).alias("journeys"),
        F.percentile_approx("duration_seconds", [0.5, 0.95, 0.99]).alias("durations"),
        F.sum("errors").alias("errors"),
    )
    rows = [
        (row["state"], row["journeys"], row["errors"], *map(seconds_text, row["durations"]))
        for row in states.orderBy("state").collect()
    ]
    context.show("Journeys", ("state", "journeys", "errors", "p50", "p95", "p99"), rows)
    slow = [
        (
            row["trace_id"],
            row["state"],
            seconds_text(row["duration_seconds"]),
            row["messages"],
            row["errors"],
            _way(row),
        )
        for row in travelled.slowest(table, SLOWEST).collect()
    ]
    context.show("The slowest journeys", ("trace", "state", "took", "messages", "errors", "critical path"), slow)
    spent = travelled.by_queue(table).collect()
    bars = [
        (f"{row['queue']} {part}", float(row[f"{part}_seconds"] or 0))
        for row in spent
        for part in ("wait", "work", "pause")
    ]
    kept = [one for one in context.run.plots if one.title != "Where journeys spend their time"]
    there = [bar for bar in bars if bar[1] > 0]
    shown = sorted(sorted(there, key=lambda bar: -bar[1])[:MOST_BARS], key=there.index)
    plot = Plot(
        title="Where journeys spend their time",
        kind="bars",
        unit="s",
        bars=shown,
        note=f"the {MOST_BARS} greatest of {len(there):,}" if len(shown) < len(there) else "",
    )
    context.run.plots = [*kept, plot]
    lost = [
        (row["trace_id"], row["broken_at"], row["errors"], _way(row))
        for row in travelled.broken(table).limit(SLOWEST).collect()
    ]
    if lost:
        context.show("Broken journeys", ("trace", "broken at", "errors", "critical path"), lost)


def _way(row: Row) -> str:
    return " → ".join(
        f"{step['queue']} {seconds_text((step['wait_seconds'] or 0) + (step['work_seconds'] or 0) + (step['pause_seconds'] or 0))}"
        for step in row["critical_path"]
    )
