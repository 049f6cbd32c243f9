"""Running `replay`: rows of the lake that an expression chooses are pushed again, in the order of their log.

The rows come to the driver in order and are pushed from there: one sender is what keeps every partition in order and the rate even.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from functools import partial
from itertools import groupby, islice
from typing import TYPE_CHECKING, Any

import msgspec
import pyarrow as pa
from pyspark.sql import functions as F  # noqa: N812 - as everyone writes it
from pyspark.sql.types import StringType, StructField, StructType

from skep.client import Client, NewMessage
from skep.spark.pipelines.replay import replay
from skep.spark.running.context import Context, lake_dataset, server_dataset
from skep.spark.running.record import Stage
from skep.spec import Expression, ExpressionError, compile_expression, evaluate, evaluate_json
from skep.spec.types import BOOL, INT, JSON, STRING, TIME, Type, map_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row

VARIABLES: dict[str, Type] = {
    "message": JSON, "queue": STRING, "partition": STRING, "seq": INT, "headers": map_of(STRING, STRING), "created_at": TIME,
}  # fmt: skip
"""What an expression can read of a row."""
PUSH_ROWS = 500
KEPT, LEFT, FAILED = "kept", "left", "failed"


def run_replay(context: Context) -> None:
    """Choose, map, and push; with a dry run only count."""
    wishes = context.wishes
    with context.stage("replay") as stage:
        rows = context.lake.read(context.spark).where(F.col("queue").isin(context.inputs.queues))
        if wishes.since is not None:
            rows = rows.where(F.col("created_at") >= F.lit(wishes.since).cast("timestamp"))
        if wishes.until is not None:
            rows = rows.where(F.col("created_at") < F.lit(wishes.until).cast("timestamp"))
        judged = judge(rows.drop("body", "date"), wishes.where, wishes.mapping).cache()
        counts = {row["verdict"]: row["count"] for row in judged.groupBy("verdict").count().collect()}
        stage.rows_in, stage.rejected = sum(counts.values()), counts.get(FAILED, 0)
        _show_failures(context, stage, judged)
        chosen = replay(
            judged.where(F.col("verdict") == KEPT), payload=F.col("mapped"), to=wishes.to, label=wishes.label
        )
        context.read(lake_dataset(context, "messages", rows=stage.rows_in))
        if wishes.dry_run:
            stage.note = f"a dry run: {counts.get(KEPT, 0):,} would be pushed"
            columns = ("source_queue", "source_seq", "queue", "partition", "payload")
            context.show("What would be replayed", chosen, columns)
        else:
            _push_all(context, stage, chosen)
        judged.unpersist()


def judge(rows: DataFrame, where: str | None, mapping: str | None) -> DataFrame:
    """The rows with what became of each: `verdict` (kept, left or failed), `mapped` (its new payload) and `problem`."""
    if where is None and mapping is None:
        return rows.withColumns(
            {"verdict": F.lit(KEPT), "mapped": F.col("payload"), "problem": F.lit(None).cast("string")}
        )
    # Errors of the expressions themselves are told here, not by every task.
    compiled = _compiled(where, mapping)
    del compiled
    added = [StructField(name, StringType()) for name in ("verdict", "mapped", "problem")]

    def judged(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        choose, make = _compiled(where, mapping)
        for batch in batches:
            found = [_judge(row, choose, make) for row in batch.to_pylist()]
            columns = [pa.array([one[place] for one in found], pa.string()) for place in range(3)]
            fields = [pa.field(field.name, pa.string()) for field in added]
            yield pa.RecordBatch.from_arrays([*batch.columns, *columns], schema=pa.schema([*batch.schema, *fields]))

    return rows.mapInArrow(judged, StructType([*rows.schema.fields, *added]))


def _compiled(where: str | None, mapping: str | None) -> tuple[Expression | None, Expression | None]:
    return (
        None if where is None else compile_expression(where, VARIABLES, BOOL),
        None if mapping is None else compile_expression(mapping, VARIABLES),
    )


def _judge(
    row: dict[str, Any], choose: Expression | None, make: Expression | None
) -> tuple[str, str | None, str | None]:
    try:
        message = msgspec.json.decode(row["payload"])
    except msgspec.DecodeError as error:
        return FAILED, None, f"the payload is no JSON: {error}"
    names = {"queue", "partition", "seq", "created_at"}
    scope = {"message": message, "headers": dict(row["headers"] or ()), **{name: row[name] for name in names}}
    try:
        if choose is not None and evaluate(choose, scope) is not True:
            return LEFT, None, None
        mapped = row["payload"] if make is None else msgspec.json.encode(evaluate_json(make, scope)).decode()
    except ExpressionError as error:
        return FAILED, None, error.message
    return KEPT, mapped, None


def _show_failures(context: Context, stage: Stage, judged: DataFrame) -> None:
    if stage.rejected:
        failed = judged.where(F.col("verdict") == FAILED).orderBy("queue", "seq")
        context.show("Rows the expressions have no value for", failed, ("queue", "seq", "problem", "payload"))
    context.check(
        stage,
        "the expressions have a value for every row",
        stage.rejected == 0,
        f"{stage.rejected} rows were left out",
        "warn",
    )


def _push_all(context: Context, stage: Stage, chosen: DataFrame) -> None:
    """Push in order, not faster than asked."""
    client, rate = context.inputs.client, context.wishes.rate
    portion = PUSH_ROWS if rate is None else max(1, min(PUSH_ROWS, round(rate)))
    duplicates, begun = 0, context.now()
    rows = chosen.toLocalIterator(prefetchPartitions=True)
    targets: set[str] = set()
    while part := list(islice(rows, portion)):
        for queue, group in groupby(part, key=lambda row: row["queue"]):
            targets.add(queue)
            duplicates += context.inputs.link.patiently(partial(_push, client, queue, list(group)))
        stage.rows_out += len(part)
        stage.batches += 1
        context.watcher.stage(stage)
        if rate is not None:
            time.sleep(max(0.0, begun + stage.rows_out / rate - context.now()))
    for queue in sorted(targets):
        context.wrote(server_dataset(context, queue))
    if duplicates:
        stage.note = f"{duplicates:,} were there already"
        stage.rows_out -= duplicates


def _push(client: Client, queue: str, rows: list[Row]) -> int:
    """Push some; how many were there already."""
    messages = [
        NewMessage(
            msgspec.Raw(row["payload"].encode()), partition=row["partition"], transaction_id=row["transaction_id"],
            trace_id=row["trace_id"], headers=row["headers"] or None,
        )
        for row in rows
    ]  # fmt: skip
    return len(client.push(queue, messages).duplicates)
