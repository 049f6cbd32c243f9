"""archive: rows as the lake keeps them, to the byte."""

from __future__ import annotations

from datetime import date

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as everyone writes it

from skep.spark.columns.instants import DAY
from skep.spark.lake.reading import undivided
from skep.spark.lake.rows import LAKE, lake_rows
from skep.spark.pipelines.archive import archive, with_body
from skep.spark.schema import INSTANT, MESSAGES
from tests.spark.frames import message, messages_of

DAY_SECONDS = 86_400


def test_the_payload_stays_as_it_is_and_the_body_can_be_asked(spark: SparkSession) -> None:
    payload = '{ "b": 1.0,  "a": {"ü": [1, 2]} }'
    frame = archive(messages_of(spark, message("orders", 1, 0, payload=payload)))
    assert frame.columns == LAKE.names
    [row] = (
        with_body(frame)
        .select("payload", "date", F.try_variant_get("body", "$.a.ü[1]", "int").alias("second"))
        .collect()
    )
    assert (row["payload"], row["date"], row["second"]) == (payload, date(2026, 1, 31), 2)


def test_a_payload_that_is_no_json_has_no_body(spark: SparkSession) -> None:
    frame = archive(messages_of(spark, message("orders", 1, 0, payload="<xml/>")))
    [row] = with_body(frame).select("payload", "body").collect()
    assert (row["payload"], row["body"]) == ("<xml/>", None)


def test_the_date_is_that_of_utc_whatever_the_session_says(spark: SparkSession) -> None:
    before = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", "Pacific/Auckland")
    try:
        frame = archive(messages_of(spark, message("orders", 1, 0), message("orders", 2, DAY_SECONDS)))
        found = [row["date"] for row in frame.orderBy("seq").select("date").collect()]
    finally:
        spark.conf.set("spark.sql.session.timeZone", str(before))
    assert found == [date(2026, 1, 31), date(2026, 2, 1)]


def test_a_day_begins_and_ends_to_the_microsecond() -> None:
    days = {0: date(1970, 1, 1), 1: date(1970, 1, 2), 20_484: date(2026, 1, 31), 2_932_896: date(9999, 12, 31)}
    edges = [(day * DAY + micros, day) for day in days for micros in (0, DAY - 1)]
    instants = pa.array([*(micros for micros, _ in edges), -1], pa.int64()).cast(INSTANT)
    rows = [message("orders", seq, 0) for seq in range(1, len(instants) + 1)]
    made = pa.RecordBatch.from_pylist(rows, MESSAGES).set_column(8, "created_at", instants)

    found = lake_rows(made, {}).column("date").to_pylist()

    assert found == [*(days[day] for _, day in edges), date(1969, 12, 31)]


def test_bytes_that_are_no_text_are_apart_and_come_back_as_they_were(spark: SparkSession) -> None:
    rows = messages_of(spark, message("orders", 1, 0, payload="ü"), message("orders", 2, 1))
    image = F.when(F.col("seq") == 2, F.unhex(F.lit("FF00")).cast("string")).otherwise(F.col("payload"))
    kept = archive(rows.withColumn("payload", image)).orderBy("seq")

    assert [(row["payload"], row["payload_bytes"]) for row in kept.collect()] == [("ü", None), (None, b"\xff\x00")]
    whole = undivided(kept).select(F.hex(F.col("payload").cast("binary")).alias("bytes"))
    assert [row["bytes"] for row in whole.collect()] == ["C3BC", "FF00"]


def test_a_queue_that_was_made_anew_has_another_generation(spark: SparkSession) -> None:
    frame = archive(messages_of(spark, message("orders", 1, 0), message("others", 1, 0)), {"orders": 3})
    assert {row["queue"]: row["generation"] for row in frame.collect()} == {"orders": 3, "others": 1}
