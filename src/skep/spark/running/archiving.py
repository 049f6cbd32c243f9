"""Running `archive`: what the lake does not have yet goes into it, batch by batch, each once."""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql import functions as F  # noqa: N812 - as everyone writes it

from skep.errors import Code, SkepError
from skep.spark.running.context import Context, lake_dataset, server_dataset
from skep.spark.running.inputs import Bounds
from skep.spark.running.record import Stage


def run_archive(context: Context) -> None:
    """Everything up to where the logs go now, then compaction and a look whether all of it is there."""
    with context.stage("archive") as stage:
        bounds = context.inputs.bounds()
        start = starting(context, stage, bounds)
        while end := next_end(start, bounds, context.wishes.max_rows):
            began = {queue: start[queue] for queue in end}
            rows = context.lake.append(context.inputs.messages(start=began, end=end), end)
            stage.rows_in += rows
            stage.rows_out += rows
            stage.batches += 1
            start |= end
            _report_progress(context, end)
            context.run.lag = {queue: max(0, one.last - start[queue]) for queue, one in bounds.items()}
            stage.lag = sum(context.run.lag.values())
            context.watcher.stage(stage)
        stage.lag = stage.lag or 0
        if context.wishes.compact and stage.batches:
            fewer = context.lake.compact(context.spark)
            stage.note = f"{fewer} small files fewer" if fewer else ""
        for queue in context.inputs.queues:
            context.read(server_dataset(context, queue))
        context.wrote(lake_dataset(context, "messages", rows=stage.rows_out))
        if context.wishes.verify and any(one.last for one in bounds.values()):
            verify(context, stage, bounds)


def starting(context: Context, stage: Stage, bounds: Mapping[str, Bounds]) -> dict[str, int]:
    """After which seq of each queue the lake goes on."""
    start = {}
    for queue, held in bounds.items():
        through = context.lake.through(queue)
        if through is not None and through > held.last:
            raise SkepError(
                Code.INVALID_REQUEST,
                f"the lake {context.run.lake} has {queue} up to seq {through}, but the server's log ends at {held.last}: it is the "
                "lake of another server, or this one was restored from a backup; name another --lake",
            )
        oldest = held.first - 1
        if through is not None and through < oldest:
            lost = oldest - through
            context.check(
                stage, f"{queue}: nothing was deleted before it was archived", False,
                f"seqs {through + 1} to {oldest} are gone by retention; let it wait with --group", "warn",
            )  # fmt: skip
            if not context.wishes.allow_loss:
                raise SkepError(
                    Code.INVALID_REQUEST,
                    f"{lost} messages of {queue} (seqs {through + 1} to {oldest}) were deleted by retention before they were "
                    "archived; go on without them with --allow-loss, and let retention wait from now on with --group archive",
                )
        start[queue] = oldest if through is None else max(through, oldest)
    return start


def next_end(start: Mapping[str, int], bounds: Mapping[str, Bounds], most: int) -> dict[str, int]:
    """Up to which seq the next batch goes; only queues that have something are in it."""
    left, end = most, {}
    for queue, held in bounds.items():
        count = min(left, held.last - start[queue])
        if count > 0:
            end[queue] = start[queue] + count
            left -= count
    return end


def verify(context: Context, stage: Stage, bounds: Mapping[str, Bounds]) -> None:
    """Whether the lake has every message of the logs, once."""
    here = context.lake.read(context.spark).select("queue", "seq")
    reached = {queue: held.last for queue, held in bounds.items() if held.last >= held.first}
    if not reached:
        return
    logged = context.inputs.messages(("queue", "seq"), end=reached)
    sides = logged.select("queue", "seq", F.lit(1).alias("log"), F.lit(0).alias("lake")).unionByName(
        here.select("queue", "seq", F.lit(0).alias("log"), F.lit(1).alias("lake"))
    )
    each = sides.groupBy("queue", "seq").agg(F.sum("log").alias("log"), F.sum("lake").alias("lake"))
    counted = each.groupBy("queue").agg(
        F.sum("log").alias("log"),
        F.sum("lake").alias("lake"),
        F.sum(((F.col("log") == 1) & (F.col("lake") == 0)).cast("int")).alias("missing"),
        F.sum((F.col("lake") > 1).cast("int")).alias("doubled"),
    )
    rows = counted.orderBy("queue").collect()
    context.show(
        "The lake", None, ("queue", "in the log", "in the lake", "missing", "doubled"), [tuple(row) for row in rows]
    )
    for row in rows:
        context.check(
            stage, f"{row['queue']}: every message is in the lake, once", row["missing"] == 0 and row["doubled"] == 0,
            f"{row['log']} in the log, {row['lake']} in the lake, {row['missing']} missing, {row['doubled']} doubled",
        )  # fmt: skip


def _report_progress(context: Context, end: Mapping[str, int]) -> None:
    """Let the group on the server follow, which retention waits for."""
    if context.wishes.group is not None:
        for queue, seq in end.items():
            context.inputs.link.report_progress(queue, context.wishes.group, seq)
