"""Run `dead-letters`: read the letters, group them, keep the groups as a table, and show them."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812 - as everyone writes it

from skep.spark.lake.frames import read_table, replace_rows
from skep.spark.lake.place import OWN
from skep.spark.pipelines import dead_letters as letters
from skep.spark.running.context import Context, lake_dataset, server_dataset
from skep.spark.running.record import Cell, Stage

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row

MOST_SHOWN = 10
HEALTHY_MESSAGES = 100_000
"""How many of the newest messages of a queue are read to find its usual values."""


def run_dead_letters(context: Context) -> None:
    """Group the present dead letters by their errors."""
    with context.stage("dead-letters") as stage:
        hidden = context.hidden()
        dead = _without_payloads(context.inputs.dead_letters(), hidden).cache()
        died = {row["source_queue"]: row["count"] for row in dead.groupBy("source_queue").count().collect()}
        stage.rows_in = sum(died.values())
        context.read(server_dataset(context, "dead_letters", stage.rows_in))
        found = letters.dead_letter_groups(dead, _healthy(context, [queue for queue in died if queue not in hidden]))
        table = _keep(context, stage, "dead_letters", found)
        # There may be as many groups as letters: the table has all of them, and only the first ones come to the driver.
        _show_dead_letters(context, letters.most_frequent(table, MOST_SHOWN).collect())
        more = stage.rows_out > MOST_SHOWN
        stage.note = f"the {MOST_SHOWN} most frequent of {stage.rows_out} errors are shown" if more else ""
        died_in_all = f"{stage.rows_in} dead letters"
        context.check(stage, "no message was given up on", stage.rows_in == 0, died_in_all, "warn")
        dead.unpersist()


def _without_payloads(dead: DataFrame, hidden: Collection[str]) -> DataFrame:
    """The letters without the payloads of encrypted queues, which must not be compared or shown."""
    if not hidden:
        return dead
    return dead.withColumn("payload", F.when(~F.col("source_queue").isin(sorted(hidden)), F.col("payload")))


def _healthy(context: Context, queues: Sequence[str]) -> DataFrame | None:
    """The messages to compare the letters with: the newest ones of the queues that they come from; None where there are none."""
    bounds = {queue: held for queue, held in context.inputs.bounds().items() if queue in queues}
    end = {queue: held.last_seq for queue, held in bounds.items() if held.last_seq >= held.first_seq}
    start = {queue: max(bounds[queue].first_seq - 1, last - HEALTHY_MESSAGES) for queue, last in end.items()}
    if not end:
        return None
    return context.inputs.messages(("queue", "seq", "payload"), start, end)


def _keep(context: Context, stage: Stage, name: str, frame: DataFrame) -> DataFrame:
    """Replace a table of the lake, and return it."""
    stage.rows_out = replace_rows(frame.coalesce(1), context.root / name, context.root / OWN)
    table = read_table(context.spark, context.root / name, frame.schema)
    stage.batches += 1
    context.wrote(lake_dataset(context, name, table, stage.rows_out))
    return table


def _show_dead_letters(context: Context, rows: list[Row]) -> None:
    shown: list[Sequence[Cell]] = []
    for row in rows:
        apart = "; ".join(_apart(field) for field in row["fields"][:3])
        shown.append(
            (row["source_queue"], row["group"], row["letters"], row["pattern"], _sparkline(row["trend"]), apart)
        )
    context.show("Dead letters", ("queue", "group", "letters", "error", "trend", "what sets them apart"), shown)


def _apart(field: Row) -> str:
    match field["kind"]:
        case "presence":
            what = f"has {field['field']}"
        case "shape":
            what = f"{field['field']} looks like {field['value']}"
        case _:
            what = f"{field['field']} is {field['value']}"
    return f"{what} ({field['dead_share']:.0%} of them, {field['healthy_share']:.0%} of healthy ones)"


def _sparkline(trend: Sequence[int]) -> str:
    marks = " ▁▂▃▄▅▆▇█"
    most = max(trend, default=0) or 1
    return "".join(marks[round(one / most * (len(marks) - 1))] for one in trend)
