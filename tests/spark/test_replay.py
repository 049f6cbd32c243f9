"""replay: rows of the lake as messages that are pushed once."""

from __future__ import annotations

from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as everyone writes it

from skep.spark.pipelines.archive import archive, with_body
from skep.spark.pipelines.replay import replay
from skep.spark.running.replaying import PUSHED
from tests.spark.frames import message, messages_of


def test_rows_come_in_the_order_of_the_log_with_ids_of_their_place_in_it(spark: SparkSession) -> None:
    lake = archive(
        messages_of(
            spark, message("orders", 10, 3, payload='{"n": 10}'), message("orders", 9, 2, payload='{"n": 9}'),
            message("invoices", 1, 9, headers={"a": "b"}),
        )
    )  # fmt: skip
    rows = replay(lake).collect()
    assert [(row["queue"], row["transaction_id"], row["payload"]) for row in rows] == [
        ("invoices", "replay/invoices/1", "{}"),
        ("orders", "replay/orders/9", '{"n": 9}'),
        ("orders", "replay/orders/10", '{"n": 10}'),
    ]
    assert (rows[0]["headers"], rows[1]["headers"], rows[1]["trace_id"]) == ({"a": "b"}, {}, "t")


def test_a_filter_a_mapping_and_another_queue(spark: SparkSession) -> None:
    rows = messages_of(spark, *(message("orders", seq, seq, payload=f'{{"n": {seq}}}') for seq in (1, 2, 3)))
    lake = with_body(archive(rows))
    number = F.try_variant_get("body", "$.n", "int")
    frame = replay(
        lake, where=number > 1, payload=F.to_json(F.struct((number * 10).alias("ten"))), to="again", label="x"
    )
    assert {"queue", *PUSHED} <= set(frame.columns)
    assert [(row["queue"], row["transaction_id"], row["payload"]) for row in frame.collect()] == [
        ("again", "x/orders/2", '{"ten":20}'), ("again", "x/orders/3", '{"ten":30}'),
    ]  # fmt: skip
