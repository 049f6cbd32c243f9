"""archive: messages as the lake keeps them.

The payload stays byte by byte what was pushed, so that it can be replayed; `body` is the same as a VARIANT, which is quick to
query but sorts keys and writes `1.0` as `1`. A payload that is no JSON has no body.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - as everyone writes it

from skep.spark.columns.instants import date_of

LAKE_COLUMNS = (
    "queue", "date", "partition", "seq", "message_id", "transaction_id", "trace_id", "payload", "headers", "created_at",
    "body",
)  # fmt: skip
PARTITION_COLUMNS = ("queue", "date")


def archive(messages: DataFrame) -> DataFrame:
    """Messages with the date they were pushed on (UTC) and their body."""
    return messages.select("*", date_pushed().alias("date"), F.try_parse_json("payload").alias("body")).select(
        *LAKE_COLUMNS
    )


def plain_archive(messages: DataFrame) -> DataFrame:
    """The same without the body, for formats that have no VARIANT; `with_body` brings it back."""
    return messages.select("*", date_pushed().alias("date")).select(*(name for name in LAKE_COLUMNS if name != "body"))


def with_body(rows: DataFrame) -> DataFrame:
    """Rows of a lake that has no bodies, with them."""
    return rows.withColumn("body", F.try_parse_json("payload"))


def date_pushed() -> Column:
    """The day a message was pushed in UTC, whatever the session's time zone is."""
    return date_of(F.unix_micros("created_at"))
