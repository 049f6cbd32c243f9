"""Many expressions over many messages in few Spark jobs: each expression is a column, each message a row."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import msgspec
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812

from skep.entities.inputs import compile_reading
from skep.errors import SkepError
from skep.spark.columns import Uncompiled, compile_column, message_columns
from skep.spark.columns.message import parsed_columns
from skep.spark.columns.output import json_text
from skep.spark.columns.reading import has_reader
from skep.spec import Expression, compile_expression, evaluate_json
from skep.spec.ir import Queue
from skep.spec.variables import of_queue

COLUMNS_A_JOB = 60


@contextmanager
def compiled(spark: SparkSession) -> Iterator[None]:
    """With the Java code that Spark makes of a plan, or not at all; by itself, it goes on without what cannot be compiled."""
    settings = {"wholeStage": "true", "fallback": "false", "factoryMode": "CODEGEN_ONLY"}
    with _set(spark, {f"spark.sql.codegen.{name}": value for name, value in settings.items()}):
        yield


@contextmanager
def _set(spark: SparkSession, settings: dict[str, str]) -> Iterator[None]:
    before = {name: str(spark.conf.get(name)) for name in settings}
    for name, value in settings.items():
        spark.conf.set(name, value)
    try:
        yield
    finally:
        for name, value in before.items():
            spark.conf.set(name, value)


def by_columns(
    spark: SparkSession,
    queue: Queue,
    expressions: Sequence[str],
    payloads: Sequence[str | bytes],
    *,
    reader: bool = True,
) -> dict[str, list[str | None]]:
    """What each expression is for each payload, by columns: JSON, or None. Those that are not compiled are left out.

    Without ``reader``, messages are read by Spark's own functions, as in sessions that have no other.
    """
    assert has_reader(spark)
    rows = [(index, _bytes(payload)) for index, payload in enumerate(payloads)]
    raw = spark.createDataFrame(rows, "row int, payload binary").coalesce(1)
    frame = raw.withColumn("payload", F.col("payload").cast("string"))  # whatever bytes they are
    results: dict[str, list[str | None]] = {}
    for start in range(0, len(expressions), COLUMNS_A_JOB):
        message = message_columns(frame, queue) if reader else parsed_columns(frame, queue)
        columns = []
        names: dict[str, str] = {}
        for number, text in enumerate(expressions[start : start + COLUMNS_A_JOB]):
            try:
                found = compile_column(compile_expression(text, of_queue(queue)), message)
            except Uncompiled:
                continue
            written = F.when(message.plain & F.lit(found.copies), json_text(found.value, None, plain=True)).otherwise(
                json_text(found.value, None)
            )
            names[f"e{number}"] = text
            columns.append(F.when(F.col("fits") & found.sure, written).alias(f"e{number}"))
        frame_ = message.binder.applied(message.frame.withColumn("fits", message.fits))
        found_rows = frame_.select("row", *columns).orderBy("row").collect()
        for name, text in names.items():
            results[text] = [row[name] for row in found_rows]
    return results


def by_evaluator(queue: Queue, text: str) -> Callable[[str | bytes], str | None]:
    """What the worker has for an expression, by the payload: JSON, or None when there is no value."""
    expression: Expression = compile_expression(text, of_queue(queue))
    reading = compile_reading(queue)

    def value(payload: str | bytes) -> str | None:
        try:
            return msgspec.json.encode(evaluate_json(expression, reading.fields(_bytes(payload)))).decode()
        except SkepError:
            return None

    return value


def _bytes(payload: str | bytes) -> bytes:
    return payload.encode() if isinstance(payload, str) else payload


def same_json(one: str, other: str) -> bool:
    """Whether two texts say the same: 1 is not 1.0, and the order of keys means nothing."""
    return _sorted(one) == _sorted(other)


def _sorted(text: str) -> bytes:
    return msgspec.json.encode(msgspec.json.decode(text), order="sorted")
