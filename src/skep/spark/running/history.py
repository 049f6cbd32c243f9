"""Run `history`: the lease history and the dead letters of the server go into the lake, so that a past day can be computed again when the
server has long forgotten it.

A pass reads what ended since shortly before the previous pass, and writes the hours anew in which something ended. A row that is read
twice is the same row. The tables have no payload, no error and no partition's name: a lease has a number made of its partition's name, which
finds its messages in the lake, and nothing once they are forgotten.
"""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812 - as everyone writes it

from skep.spark.lake.rows import FIRST
from skep.spark.pipelines.archive import by_queue
from skep.spark.running.context import Context, lake_dataset, server_dataset
from skep.spark.running.keeping import TableReach
from skep.spark.running.measuring import since_of
from skep.spark.running.past import ENDED, LEASES, LETTERS, history_table
from skep.spark.running.record import Stage

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pyspark.sql import DataFrame

MADE_WITH = "1"
IDENTITY = {LEASES: ("queue", "generation", "position"), LETTERS: ("dead_letter_queue", "dead_letter_seq", "failed_at")}
LEASE_COLUMNS = (
    "queue", "generation", "position", "group", "partition_hash", "first_seq", "last_seq", "messages", "completed", "attempt", "leased_at",
    "settled_at", "outcome",
)  # fmt: skip
LETTER_COLUMNS = (
    "queue", "generation", "seq", "group", "partition_hash", "reason", "attempts", "created_at", "failed_at", "dead_letter_queue",
    "dead_letter_seq",
)  # fmt: skip
"""The first three name the message that died."""


def run_history(context: Context) -> None:
    """Bring leases and dead letters that ended since the previous pass into the lake."""
    with context.stage("history") as stage:
        generations = _generations(context)
        for name in (LEASES, LETTERS):
            _bring(context, stage, name, generations)
        stage.batches += 1
        context.read(server_dataset(context, "leases"), server_dataset(context, "dead_letters"))


def _generations(context: Context) -> dict[str, int]:
    """The generation of each queue's present log, as the lake counts them."""
    lake, found = context.lake, {}
    for queue, held in context.inputs.bounds().items():
        is_new = lake.log_of(queue) not in (None, held.log)
        found[queue] = lake.generation_of(queue) + is_new
    return found


def _bring(context: Context, stage: Stage, name: str, generations: Mapping[str, int]) -> None:
    table, queues = history_table(context, name), context.inputs.queues
    before, began = table.reach(), time.monotonic()
    since = since_of(before, context, MADE_WITH)
    rows = _leases(context, since) if name == LEASES else _letters(context, since)
    number = F.coalesce(by_queue(generations, "int"), F.lit(FIRST))
    columns = LEASE_COLUMNS if name == LEASES else LETTER_COLUMNS
    fresh = rows.withColumn("generation", number).select(*columns)
    fresh = fresh.withColumn("hour", F.date_format(ENDED[name], "yyyy-MM-dd-HH")).cache()
    hours = {row["hour"]: row["rows"] for row in fresh.groupBy("hour").agg(F.count("queue").alias("rows")).collect()}
    newest = fresh.agg(F.max(ENDED[name])).collect()[0][0]
    took = timedelta(seconds=time.monotonic() - began)
    reach = _reach(before, queues, generations, None if newest is None else newest.astimezone(UTC) - took)
    if hours:
        kept = table.rows(fresh).where(F.col("hour").isin(sorted(hours)))
        table.replace(kept.unionByName(fresh).dropDuplicates(list(IDENTITY[name])), hours, reach)
    elif before is None:
        table.replace(fresh, (), reach)
    fresh.unpersist()
    stage.rows_in += sum(hours.values())
    stage.rows_out += sum(hours.values())
    context.wrote(lake_dataset(context, name))


def _reach(
    before: TableReach | None, queues: Sequence[str], generations: Mapping[str, int], newest: datetime | None
) -> TableReach:
    known = TableReach(made_with=MADE_WITH) if before is None else before
    instants = {} if newest is None else dict.fromkeys(queues, newest)
    return TableReach(
        made_with=MADE_WITH, through=known.through | dict.fromkeys(generations, 0),
        as_of=known.as_of | {queue: max(at, known.as_of.get(queue, at)) for queue, at in instants.items()},
    )  # fmt: skip


def _leases(context: Context, since: datetime | None) -> DataFrame:
    return context.inputs.leases(since).withColumn("partition_hash", F.xxhash64("partition"))


def _letters(context: Context, since: datetime | None) -> DataFrame:
    letters = context.inputs.dead_letters(since).withColumnsRenamed({
        "queue": "dead_letter_queue", "seq": "dead_letter_seq", "source_queue": "queue", "source_seq": "seq",
    })  # fmt: skip
    return letters.withColumn("partition_hash", F.xxhash64("partition"))
