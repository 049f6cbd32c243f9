"""Run `replay`: push the rows of the lake that an expression chooses again, in the order of their log.

Spark chooses, maps and sorts the rows into files beside the lake. One sender pushes these files as columns, from the first row to the
last. That keeps every partition in order and the rate even.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyspark.sql import functions as F  # noqa: N812 - as everyone writes it
from pyspark.sql.types import StringType, StructField, StructType

from skep.client.calls import read_pushed
from skep.client.exchange import ApiResponse
from skep.errors import Code, SkepError
from skep.spark.lake.frames import Part, read_parts, write_frame
from skep.spark.lake.place import OWN
from skep.spark.lake.reading import frame_of
from skep.spark.lake.table import MADE_BY
from skep.spark.pipelines.replay import replay
from skep.spark.portions import encoded
from skep.spark.running.context import Context, lake_dataset, server_dataset
from skep.spark.running.record import Stage
from skep.spark.running.sealing import check_plain
from skep.spec import Expression, ExpressionError, compile_expression, evaluate, evaluate_json
from skep.spec.types import BOOL, INT, JSON, STRING, TIME, Type, map_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

VARIABLES: dict[str, Type] = {
    "message": JSON, "queue": STRING, "partition": STRING, "seq": INT, "headers": map_of(STRING, STRING), "created_at": TIME,
    "generation": INT,
}  # fmt: skip
"""The variables of an expression over a row."""
OTHERS = tuple(name for name in VARIABLES if name != "message")
PUSH_ROWS = 5_000
PUSH_BYTES = 4 * 1024 * 1024
"""Half of the server's limit of one push."""
PUSHED = ("payload", "partition", "transaction_id", "trace_id", "headers")
KEPT, LEFT, FAILED = "kept", "left", "failed"
Verdict = tuple[str, str | None, str | None]
"""The outcome of a row, its payload, and its error."""
SEALED: Verdict = (FAILED, None, "the payload is sealed, and its key was destroyed")
JUDGED, SORTED = "replay-judged", "replay-sorted"
KEPT_COLUMNS = ("queue", "generation", "partition", "seq", "trace_id", "headers", "verdict", "mapped", "problem")


def run_replay(context: Context) -> None:
    """Choose, map and push rows; a dry run only counts and shows them."""
    wishes = context.wishes
    with context.stage("replay") as stage:
        files = context.lake.files(queues=context.inputs.queues)
        if not files and not context.lake.files():
            raise SkepError(Code.INVALID_REQUEST, f"there is no lake in {context.root} yet; {MADE_BY}")
        for queue in sorted({file.queue for file in files}):
            check_plain(queue, context.hidden())  # chosen rows lie aside in the lake while they are pushed
        rows = frame_of(context.spark, files, opening=context.opening())
        if wishes.since is not None:
            rows = rows.where(F.col("created_at") >= F.lit(wishes.since).cast("timestamp"))
        if wishes.until is not None:
            rows = rows.where(F.col("created_at") < F.lit(wishes.until).cast("timestamp"))
        stage.rows_in = rows.count()
        found = _judged(context, judge(rows.drop("date"), wishes.where, wishes.mapping))
        failed, kept = found.where(F.col("verdict") == FAILED), found.where(F.col("verdict") == KEPT)
        stage.rejected, chosen_rows = failed.count(), kept.count()
        _show_failures(context, stage, failed)
        chosen = replay(kept, payload=F.col("mapped"), to=wishes.to, label=wishes.label)
        context.read(lake_dataset(context, "messages", rows=stage.rows_in))
        if wishes.dry_run:
            stage.note = f"a dry run: {chosen_rows:,} would be pushed"
            columns = ("source_queue", "source_generation", "source_seq", "queue", "partition", "payload")
            context.show("What would be replayed", columns, chosen)
        else:
            _push_all(context, stage, chosen)
        (context.root / OWN / JUDGED).delete_all()


def _judged(context: Context, judged: DataFrame) -> DataFrame:
    """The judged rows, without those that the expression left out.

    They are kept in files: sorting reads rows twice, and caching them in memory takes longer than the expressions.
    """
    folder = context.root / OWN / JUDGED
    folder.delete_all()
    wanted = judged.where(F.col("verdict") != LEFT).select(*KEPT_COLUMNS)
    return read_parts(context.spark, [part.uri for part in write_frame(wanted, folder)], wanted.schema)


def judge(rows: DataFrame, where: str | None, mapping: str | None) -> DataFrame:
    """The rows with the outcome of each: `verdict` (kept, left or failed), `mapped` (the new payload, or the old one if it failed) and `problem`.

    A payload that is no JSON fails: the lake has no content types.
    """
    # A wrong expression raises here, not in every task.
    _compiled(where, mapping)
    needed = _needed(f"{where or ''} {mapping or ''}")
    # A payload may be any bytes, also in a column of strings.
    rows = rows.withColumn("payload", F.col("payload").cast("binary"))
    added = [StructField(name, StringType()) for name in ("verdict", "mapped", "problem")]

    def judged(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        choose, make = _compiled(where, mapping)
        for batch in batches:
            if choose is None and make is None:
                found = [_judge_payload(payload) for payload in batch.column("payload").to_pylist()]
            else:
                found = [_judge(row, choose, make) for row in batch.select(needed).to_pylist()]
            columns = [pa.array([one[place] for one in found], pa.string()) for place in range(3)]
            fields = [pa.field(field.name, pa.string()) for field in added]
            yield pa.RecordBatch.from_arrays([*batch.columns, *columns], schema=pa.schema([*batch.schema, *fields]))

    return rows.mapInArrow(judged, StructType([*rows.schema.fields, *added]))


def fitting(rows: DataFrame, where: str) -> DataFrame:
    """The rows for which an expression is true. Where a payload is no JSON, or sealed for good, the rest of the row may decide."""
    _compiled(where, None)
    needed = _needed(where)
    rows = rows.withColumn("payload", F.col("payload").cast("binary"))

    def fit(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        choose = compile_expression(where, VARIABLES, BOOL)
        for batch in batches:
            yield batch.filter(pa.array([_fits(row, choose) for row in batch.select(needed).to_pylist()], pa.bool_()))

    return rows.mapInArrow(fit, rows.schema)


def _needed(said: str) -> list[str]:
    """The columns for expressions. Making Python objects of a column takes longer than most expressions."""
    return ["payload", *(name for name in OTHERS if re.search(rf"\b{name}\b", said))]


def _compiled(where: str | None, mapping: str | None) -> tuple[Expression | None, Expression | None]:
    return (
        None if where is None else compile_expression(where, VARIABLES, BOOL),
        None if mapping is None else compile_expression(mapping, VARIABLES),
    )


def _judge_payload(payload: bytes | None) -> Verdict:
    if payload is None:
        return SEALED
    try:
        msgspec.json.decode(payload, type=msgspec.Raw)
        return KEPT, payload.decode(), None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        return _no_json(payload, error)


def _judge(row: dict[str, Any], choose: Expression | None, make: Expression | None) -> Verdict:
    payload: bytes | None = row["payload"]
    if payload is None:
        return SEALED
    try:
        message, text = msgspec.json.decode(payload), payload.decode()
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        return _no_json(payload, error)
    scope = _scope(row) | {"message": message}
    try:
        if choose is not None and evaluate(choose, scope) is not True:
            return LEFT, None, None
        mapped = text if make is None else msgspec.json.encode(evaluate_json(make, scope)).decode()
    except ExpressionError as error:
        return FAILED, text, error.message
    return KEPT, mapped, None


def _fits(row: dict[str, Any], choose: Expression) -> bool:
    scope, payload = _scope(row), row["payload"]
    with suppress(msgspec.DecodeError):
        scope |= {} if payload is None else {"message": msgspec.json.decode(payload)}
    try:
        return evaluate(choose, scope) is True
    except ExpressionError:
        return False


def _scope(row: dict[str, Any]) -> dict[str, Any]:
    """The variables of a row, without its message."""
    return {**row, "headers": dict(row["headers"] or ())} if "headers" in row else dict(row)


def _no_json(payload: bytes, error: Exception) -> Verdict:
    return FAILED, payload.decode(errors="replace"), f"the payload is no JSON: {error}"


def _show_failures(context: Context, stage: Stage, failed: DataFrame) -> None:
    if stage.rejected:
        shown = failed.orderBy("queue", "generation", "seq")
        context.show("Rows that cannot be replayed", ("queue", "seq", "problem", "mapped"), shown)
    context.check(
        stage,
        "every row is JSON, and the expressions have a value for it",
        stage.rejected == 0,
        f"{stage.rejected} rows were left out",
        "warn",
    )


def _push_all(context: Context, stage: Stage, chosen: DataFrame) -> None:
    """Push rows in order, not faster than `--rate`."""
    link, rate = context.inputs.link, context.wishes.rate
    folder = context.root / OWN / SORTED
    folder.delete_all()
    parts = write_frame(chosen.select("queue", *PUSHED), folder)
    duplicates, begun = 0, context.now()
    targets: set[str] = set()
    for batch in _portions(parts, PUSH_ROWS if rate is None else max(1, min(PUSH_ROWS, round(rate)))):
        if rate is not None:
            time.sleep(max(0.0, begun + stage.rows_out / rate - context.now()))
        for queue, rows in _by_queue(batch):
            targets.add(queue)
            duplicates += link.push(encoded([rows]), _duplicates, {"queue": queue}, link.about(queue))
        stage.rows_out += batch.num_rows
        stage.batches += 1
        context.tell(stage)
    folder.delete_all()
    for queue in sorted(targets):
        context.wrote(server_dataset(context, queue))
    if duplicates:
        stage.note = f"{duplicates:,} were there already"
        stage.rows_out -= duplicates


def _portions(parts: Sequence[Part], rows: int) -> Iterator[pa.RecordBatch]:
    """The rows in order, in portions that fit into one push. Spark sorted them over the files, which are in order, too."""
    for part in parts:
        file_place = part.place
        with file_place.opened() as source, pq.ParquetFile(source) as file:
            for batch in file.iter_batches(rows):
                start, taken = 0, 0
                for place, payload_bytes in enumerate(pc.binary_length(batch.column("payload")).to_pylist()):
                    if place > start and taken + payload_bytes > PUSH_BYTES:
                        yield batch.slice(start, place - start)
                        start, taken = place, 0
                    taken += payload_bytes
                yield batch.slice(start)


def _by_queue(batch: pa.RecordBatch) -> Iterator[tuple[str, pa.RecordBatch]]:
    """The rows of a batch by their target queue."""
    queues = batch.column("queue")
    for queue in pc.unique(queues).to_pylist():
        yield queue, batch.filter(pc.equal(queues, queue)).select(PUSHED)


def _duplicates(answer: ApiResponse) -> int:
    """How many messages of a push were duplicates."""
    return len(read_pushed(answer).duplicates)
