"""Payloads of encrypted queues are sealed in the lake. Tables with their plain text are made only when somebody names the queue."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as everyone writes it

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


def archived(lake: Lake) -> dict[str, tuple[int, int]]:
    """How many messages of each queue the lake has, and how many of them are sealed."""
    rows = lake.spark.read.parquet(str(lake.folder / "lake" / "messages"))
    counted = rows.groupBy("queue").agg(F.count("seq").alias("rows"), F.count("data_key").alias("sealed")).collect()
    return {row["queue"]: (row["rows"], row["sealed"]) for row in counted}


def test_a_queue_whose_encryption_was_turned_off_stays_sealed_and_one_made_anew_is_not(sealed: Lake) -> None:
    client = sealed.client
    client.configure("payments", encryption_enabled=False)
    client.push("payments", CARD)
    client.delete_queue("Placed")
    client.push("Placed", {"number": 1, "cents": 5})

    found = {queue.name: queue.has_data_keys for queue in client.queues(stats=False)}
    assert found == {"Placed": False, "orders": False, "payments": True, "payments.dead": False}
    run = ran(sealed, "archive").run
    assert (run.error, run.status, run.failed_checks()) == (None, "ok", [])
    assert archived(sealed) == {"orders": (1, 0), "Placed": (1, 0), "payments": (3, 2), "payments.dead": (1, 1)}
    replay = ran(sealed, "replay", to="again").run
    assert "payments was encrypted for a time" in (replay.error or "")


def test_encrypted_queues_are_sealed_in_the_lake_and_plain_only_when_named(sealed: Lake) -> None:
    run = ran(sealed, "archive", "dead-letters").run

    assert (run.error, run.status) == (None, "warn")  # there is a dead letter
    assert archived(sealed) == {"orders": (1, 0), "Placed": (1, 1), "payments": (2, 2), "payments.dead": (1, 1)}
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

    sealed.client.push("payments", CARD)
    named = ran(sealed, "archive", plain=("payments",)).run
    assert (named.error, named.status) == (None, "ok")
    assert archived(sealed)["payments"] == (3, 2)


@pytest.mark.slow
def test_sealed_messages_are_chosen_by_their_payloads_until_their_key_is_destroyed(sealed: Lake) -> None:
    asked: dict[str, Any] = {"where": 'message.card == "4242424242424242"', "dry_run": True}
    assert ran(sealed, "archive").run.error is None
    assert ran(sealed, "forget", **asked).run.stages[0].rows_in == 3
    named = ran(sealed, "replay", to="again", plain=("payments", "payments.dead", "Placed"), **asked).run
    assert (named.error, named.stages[0].note) == (None, "a dry run: 3 would be pushed")
    assert ran(sealed, "typed", app=SHOP, plain=("Placed",)).run.stages[0].rows_out == 1

    sealed.client.shred_data_keys("payments")
    gone = ran(sealed, "replay", to="again", plain=("payments", "payments.dead", "Placed"), **asked).run
    assert gone.stages[0].note == "a dry run: 0 would be pushed"
    [problems] = [table.rows for table in gone.tables if table.title == "Rows that cannot be replayed"]
    assert {row[2] for row in problems if str(row[0]).startswith("payments")} == {
        "the payload is sealed, and its key was destroyed"
    }
