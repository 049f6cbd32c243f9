"""archive: messages as the lake keeps them, and how they are compared with the logs.

`with_body` makes a VARIANT of the payload: quick to query, but with sorted keys, and `1` for `1.0`. A payload that is no JSON has no body.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from functools import partial

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - as everyone writes it

from skep.spark.lake.rows import LAKE, lake_rows
from skep.spark.schema import MESSAGES, SQL_TYPES

COLUMNS = ", ".join(f"{field.name} {SQL_TYPES[field.type]}" for field in LAKE)
"""The columns of the lake, in Spark's DDL."""
COMPARED = ("queue", "seq", "message_id")


def archive(messages: DataFrame, generations: Mapping[str, int] | None = None) -> DataFrame:
    """Messages as the lake keeps them: with the date of the push (UTC), and the generation of their queue."""
    return messages.select(*MESSAGES.names).mapInArrow(partial(_rows, dict(generations or {})), COLUMNS)


def _rows(generations: Mapping[str, int], batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        yield lake_rows(batch, generations)


def divided(payload: Column) -> dict[str, Column]:
    """A payload as two columns: text, or bytes where it is not valid UTF-8."""
    is_text = F.is_valid_utf8(payload)
    return {"payload": F.when(is_text, payload), "payload_bytes": F.when(~is_text, payload.cast("binary"))}


def with_body(rows: DataFrame) -> DataFrame:
    """Rows with their payload as a VARIANT to query: `try_variant_get(body, '$.total', 'double')`."""
    return rows.withColumn("body", F.try_parse_json("payload"))


def by_queue(values: Mapping[str, int], kind: str) -> Column:
    """The number of a row's queue; null for other queues. It is one literal: a plan with thousands of conditions is too deep for Spark."""
    return F.from_json(F.lit(json.dumps(dict(values))), f"map<string,{kind}>")[F.col("queue")]


def compared(logged: DataFrame, lake: DataFrame, ranges: DataFrame) -> DataFrame:
    """Per queue, how many messages the log and the lake have in some ranges, and how many the lake lacks or has twice.

    ``ranges`` has `queue, generation, after, through`: the seqs after `after`, up to `through`. The ranges are joined, since Spark
    cannot plan a condition for each of thousands of queues.
    """
    meant = F.broadcast(ranges.withColumnRenamed("queue", "of").withColumnRenamed("generation", "of_generation"))
    is_meant = (
        (F.col("queue") == F.col("of")) & (F.col("generation") == F.col("of_generation"))
        & (F.col("seq") > F.col("after")) & (F.col("seq") <= F.col("through"))
    )  # fmt: skip
    here = lake.join(meant, is_meant, "left_semi")
    sides = logged.select(*COMPARED, F.lit(1).alias("log"), F.lit(0).alias("lake")).unionByName(
        here.select(*COMPARED, F.lit(0).alias("log"), F.lit(1).alias("lake"))
    )
    each = sides.groupBy(*COMPARED).agg(F.sum("log").alias("log"), F.sum("lake").alias("lake"))
    return each.groupBy("queue").agg(
        F.sum("log").alias("log"),
        F.sum("lake").alias("lake"),
        F.sum(((F.col("log") == 1) & (F.col("lake") == 0)).cast("int")).alias("missing"),
        F.sum((F.col("lake") > 1).cast("int")).alias("doubled"),
    )
