"""archive: messages as the lake keeps them, in types that every reader of Parquet knows.

The payload stays the same to the last byte, so that it can be replayed. The column `payload` has it where it is valid UTF-8, as JSON
always is. Other bytes are in `payload_bytes`, since readers refuse invalid text. `with_body` makes a VARIANT of the payload: quick to
query, but with sorted keys, and `1` for `1.0`. A payload that is no JSON has no body.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as everyone writes it

from skep.spark.columns.instants import date_of

LAKE_COLUMNS = (
    "queue", "date", "generation", "partition", "seq", "message_id", "transaction_id", "trace_id", "payload",
    "payload_bytes", "headers", "created_at",
)  # fmt: skip
PARTITION_COLUMNS = ("queue", "date")
LAKE_TYPES = (
    "generation int, partition string, seq bigint, message_id string, transaction_id string, trace_id string, payload string, "
    "payload_bytes binary, headers map<string,string>, created_at timestamp, queue string, date string"
)
"""The columns of the lake's files and folders as Spark reads them. Columns that files of the first format lack are null."""
FIRST = 1
"""The generation of a queue that was never deleted and made anew."""
COMPARED = ("queue", "seq", "message_id")


def archive(messages: DataFrame, generations: Mapping[str, int] | None = None) -> DataFrame:
    """Messages as the lake keeps them: with the date of the push (UTC), and the generation of their queue."""
    later = {queue: number for queue, number in (generations or {}).items() if number != FIRST}
    generation = F.coalesce(by_queue(later, "int"), F.lit(FIRST)) if later else F.lit(FIRST)
    added = {"date": date_pushed(), "generation": generation, **divided(F.col("payload"))}
    return messages.withColumns(added).select(*LAKE_COLUMNS)


def divided(payload: Column) -> dict[str, Column]:
    """A payload as two columns: text, or bytes where it is not valid UTF-8."""
    is_text = F.is_valid_utf8(payload)
    return {"payload": F.when(is_text, payload), "payload_bytes": F.when(~is_text, payload.cast("binary"))}


def no_rows(spark: SparkSession) -> DataFrame:
    """An empty frame with the columns of the lake."""
    return undivided(spark.createDataFrame([], LAKE_TYPES))


def undivided(rows: DataFrame) -> DataFrame:
    """Rows of the lake with one payload column, as a read of the queue has it, and with a generation, which the first format lacks."""
    whole = F.coalesce("payload", F.col("payload_bytes").cast("string"))
    first = F.coalesce("generation", F.lit(FIRST))
    return rows.withColumns({"payload": whole, "generation": first, "date": F.to_date("date")}).drop("payload_bytes")


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


def date_pushed() -> Column:
    """The day of a push in UTC, whatever the session's time zone is."""
    return date_of(F.unix_micros("created_at"))
