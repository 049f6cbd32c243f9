"""Running `archive`: what the lake does not have yet goes into it, batch by batch, each once."""

from __future__ import annotations

from collections.abc import Mapping
from functools import reduce
from operator import or_

from pyspark.sql import functions as F  # noqa: N812 - as everyone writes it

from skep.errors import Code, SkepError
from skep.spark.running.context import Context, lake_dataset, server_dataset
from skep.spark.running.inputs import Bounds
from skep.spark.running.record import Stage

COMPARED = ("queue", "seq", "message_id")


def run_archive(context: Context) -> None:
    """Everything up to where the logs go now, then compaction and a look whether all of it is there."""
    with context.stage("archive") as stage:
        bounds = context.inputs.bounds()
        start = starting(context, stage, bounds)
        before = {} if context.wishes.every_seconds is None else dict(start)
        while end := _cut(context, start, next_end(start, bounds, context.wishes.max_rows)):
            began = {queue: start[queue] for queue in end}
            logs = {queue: bounds[queue].log for queue in end}
            rows = context.lake.append(context.inputs.messages(start=began, end=end), end, logs)
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
        if context.wishes.verify:
            verify(context, stage, before, bounds)


def starting(context: Context, stage: Stage, bounds: Mapping[str, Bounds]) -> dict[str, int]:
    """After which seq of each queue the lake goes on."""
    start = {}
    for queue, held in bounds.items():
        through = context.lake.through(queue)
        if context.lake.log_of(queue) not in (None, held.log):
            raise SkepError(
                Code.INVALID_REQUEST,
                f"the lake {context.run.lake} has another log of {queue}: the queue was deleted and made anew, and its seqs begin at 1 "
                "again, or it is the lake of another server; name another --lake",
            )
        if through is not None and through > held.last:
            raise SkepError(
                Code.INVALID_REQUEST,
                f"the lake {context.run.lake} has {queue} up to seq {through}, but the server's log ends at {held.last}: it was restored "
                "from a backup; name another --lake",
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


def _cut(context: Context, start: Mapping[str, int], end: dict[str, int]) -> dict[str, int]:
    """No more of a batch than the lake takes in bytes: of each queue its share, and at least one message."""
    if context.lake.batch_bytes is None or not end:
        return end
    share = max(1, context.lake.batch_bytes // len(end))
    link = context.inputs.link
    return {queue: min(seq, link.last_seq_within(queue, start[queue] + 1, share)) for queue, seq in end.items()}


def verify(context: Context, stage: Stage, start: Mapping[str, int], bounds: Mapping[str, Bounds]) -> None:
    """Whether the lake has every message of the logs after some seqs, once."""
    start = {queue: max(start.get(queue, 0), held.first - 1) for queue, held in bounds.items()}
    end = {queue: held.last for queue, held in bounds.items() if held.last > start[queue]}
    if not end:
        return
    start = {queue: start[queue] for queue in end}
    # What retention takes away meanwhile need not be compared.
    logged = context.inputs.messages(COMPARED, start, end, fails=False)
    here = context.lake.read(context.spark).select(*COMPARED)
    later = reduce(or_, ((F.col("queue") == queue) & (F.col("seq") > seq) for queue, seq in start.items()))
    sides = logged.select(*COMPARED, F.lit(1).alias("log"), F.lit(0).alias("lake")).unionByName(
        here.where(later).select(*COMPARED, F.lit(0).alias("log"), F.lit(1).alias("lake"))
    )
    each = sides.groupBy(*COMPARED).agg(F.sum("log").alias("log"), F.sum("lake").alias("lake"))
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
    wrong = {check.name for check in context.run.failed_checks()}
    for row in rows:
        name = f"{row['queue']}: every message is in the lake, once"
        if name in wrong:  # found by an earlier pass
            continue
        context.check(
            stage, name, row["missing"] == 0 and row["doubled"] == 0,
            f"{row['log']} in the log, {row['lake']} in the lake, {row['missing']} missing, {row['doubled']} doubled",
        )  # fmt: skip


def _report_progress(context: Context, end: Mapping[str, int]) -> None:
    """Let the group on the server follow, which retention waits for."""
    if context.wishes.group is not None:
        for queue, seq in end.items():
            context.inputs.link.report_progress(queue, context.wishes.group, seq)
