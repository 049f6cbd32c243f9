"""Payloads of encrypted queues come into the lake only when somebody asks for it by name."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import skep
from skep.crypto.master import MasterKeys, new_master_line
from skep.testing.server import running_server
from tests.spark.conftest import Lake
from tests.spark.test_running import SHOP, ran

CARD = {"card": "4242424242424242"}


@pytest.fixture
def sealed(spark: SparkSession, tmp_path: Path) -> Iterator[Lake]:
    """A server with an encrypted queue, a dead letter of it, and a queue that is not encrypted."""
    with running_server(masters=MasterKeys(new_master_line("one"))) as server, skep.Client(server.url) as client:
        for queue in ("payments", "Placed"):
            client.configure(queue, encryption_enabled=True)
        client.push("payments", [CARD, CARD])
        client.push("Placed", {"number": 1, "cents": 5})
        client.push("orders", {"n": 1})
        [message] = client.pop("payments")
        client.reject(message, error="declined")
        yield Lake(spark, client, server.url, "default", tmp_path)


def archived(lake: Lake) -> dict[str, int]:
    rows = lake.spark.read.parquet(str(lake.folder / "lake" / "messages")).groupBy("queue").count().collect()
    return {row["queue"]: row["count"] for row in rows}


def test_a_queue_whose_encryption_was_turned_off_is_refused_and_one_made_anew_is_not(sealed: Lake) -> None:
    client = sealed.client
    client.configure("payments", encryption_enabled=False)
    client.delete_queue("Placed")
    client.push("Placed", {"number": 1, "cents": 5})

    found = {queue.name: queue.has_data_keys for queue in client.queues(stats=False)}
    assert found == {"Placed": False, "orders": False, "payments": True, "payments.dead": False}
    run = ran(sealed, "archive").run
    [failed] = [table.rows for table in run.tables if table.title == "Queues that failed"]
    told = {str(queue): str(error) for queue, _, error in failed}
    assert sorted(told) == ["payments", "payments.dead"]
    assert "payments was encrypted for a time, and the lake would have its payloads as plain text" in told["payments"]
    assert "dead letters of payments, which was encrypted for a time" in told["payments.dead"]
    assert archived(sealed) == {"orders": 1, "Placed": 1}


def test_encrypted_queues_are_refused_by_default_and_plain_only_when_named(sealed: Lake) -> None:
    run = ran(sealed, "archive", "dead-letters").run

    assert (run.error, run.status) == (None, "failed")
    [failed] = [table.rows for table in run.tables if table.title == "Queues that failed"]
    told = {str(queue): str(error) for queue, _, error in failed}
    assert sorted(told) == ["Placed", "payments", "payments.dead"]
    assert "is encrypted, and the lake would have its payloads as plain text" in told["payments"]
    assert "--plain payments.dead" in told["payments.dead"]
    assert "dead letters of payments, which is encrypted" in told["payments.dead"]
    assert archived(sealed) == {"orders": 1}
    [group] = sealed.spark.read.parquet(str(sealed.folder / "lake" / "dead_letters")).collect()
    assert (group["source_queue"], group["letters"], group["sample"]["payload"], group["fields"]) == (
        "payments",
        1,
        None,
        [],
    )
    for pipeline in ("commands", "quality"):
        assert "Placed is encrypted" in (ran(sealed, pipeline, app=SHOP).run.error or "")
    assert not (sealed.folder / "lake" / "commands").exists()
    typed = ran(sealed, "typed", app=SHOP).run
    [refused] = [table.rows for table in typed.tables if table.title.startswith("Queues without")]
    assert (typed.status, str(refused[0][2]).startswith("Placed is encrypted")) == ("failed", True)
    assert not (sealed.folder / "lake" / "typed").exists()

    named = ran(sealed, "archive", plain=("payments",), skip=("Placed", "payments.dead")).run
    assert (named.error, named.status) == (None, "ok")
    assert archived(sealed) == {"orders": 1, "payments": 2}
