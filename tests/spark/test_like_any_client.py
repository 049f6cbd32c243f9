"""Keys, types and encryption hold for Spark as they do for every client."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

import skep
from skep.config import AccessSettings
from skep.crypto.master import MasterKeys, new_master_line
from skep.errors import Code, SkepError
from skep.model.key import Verb
from skep.spark.options import sink_options
from skep.spark.sink import TableWriter
from skep.spec import load
from skep.testing.server import running_server
from tests.access.driver import Door

SPEC = "app Shop { queue Placed { message_type { number: int } } }"
DELIVERIES = ["exactly-once", "at-least-once"]


def payloads(spark: SparkSession, *texts: str) -> DataFrame:
    return spark.createDataFrame([(text,) for text in texts], "payload string")


def writer(url: str, **options: str) -> TableWriter:
    """What runs in a task; Spark would run it four times before it tells of an error."""
    return TableWriter(sink_options({"url": url, **options}))


def save(frame: DataFrame, queue: str, **options: str) -> None:
    frame.write.format("skep").options(queue=queue, **options).mode("append").save()


def test_rows_that_are_not_of_the_queues_type_are_refused_and_none_of_them_is_there() -> None:
    with running_server() as server, skep.Client(server.url) as client:
        client.apply(load(SPEC, "shop.skep"))  # whose queues are those of the default tenant
        for delivery in DELIVERIES:
            task = writer(server.url, queue="Placed", delivery=delivery)
            with pytest.raises(SkepError, match="field 'number' does not fit: expected int, not \"two\""):
                task.write(iter([pa.record_batch({"payload": ['{"number": 1}', '{"number": "two"}']})]))
        assert not list(client.messages("Placed"))


def test_a_key_lets_spark_do_what_it_is_for_and_no_more(spark: SparkSession) -> None:
    with running_server(access=AccessSettings(required=True)) as server:
        door = Door(server, "default")
        write, read = door.key(Verb.PUSH).text, door.key(Verb.READ).text
        url = {"url": server.url, "retrySeconds": "5"}
        save(payloads(spark, "1"), "orders", token=write, **url)
        with pytest.raises(SkepError) as forbidden:
            writer(server.url, queue="orders", token=read).write(iter([pa.record_batch({"payload": ["1"]})]))
        assert forbidden.value.code is Code.FORBIDDEN
        reader = spark.read.format("skep").options(**url)
        with pytest.raises(PySparkException, match="UNAUTHENTICATED"):
            reader.load("orders").count()
        assert reader.option("token", read).load("orders").count() == 1
        door.close()


def test_an_encrypted_queue_is_read_and_written_in_plain_and_kept_sealed(spark: SparkSession, tmp_path: Path) -> None:
    card = '{"card": "4242424242424242"}'
    with running_server(str(tmp_path / "skep.db"), masters=MasterKeys(new_master_line("first"))) as server:
        url = {"url": server.url}
        with skep.Client(url["url"]) as client:
            client.configure("payments", encryption_enabled=True)
            client.push("payments", {"card": "4242424242424243"})
            for delivery in DELIVERIES:
                save(payloads(spark, card), "payments", delivery=delivery, **url)
            popped = [message.json()["card"] for message in client.pop("payments", batch=3)]
        read = spark.read.format("skep").options(**url).load("payments").orderBy("seq").collect()
    assert popped == ["4242424242424243", "4242424242424242", "4242424242424242"]
    assert [row.payload for row in read[1:]] == [card, card]
    kept = b"".join(path.read_bytes() for path in tmp_path.iterdir())
    assert b"payments" in kept
    assert b"42424242" not in kept
