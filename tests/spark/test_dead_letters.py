"""dead-letters: errors that are the same, and what those letters have in common."""

from __future__ import annotations

import json
import string
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as everyone writes it

from skep.spark.options import ServerConnection
from skep.spark.pipelines.dead_letters import dead_letter_groups, most_frequent, pattern
from skep.spark.running.context import Wishes
from skep.spark.running.deriving import MOST_SHOWN
from skep.spark.running.runner import RunPlan, run_pipelines
from tests.spark.conftest import Lake
from tests.spark.frames import dicts, kept, letter, letters_of, message, messages_of


def order(number: int, **more: Any) -> str:
    return json.dumps({"number": number, "amount": f"{number}.50", "to": {"country": "AT"}, **more})


def test_errors_are_the_same_but_for_numbers_ids_and_quoted_texts(spark: SparkSession) -> None:
    errors = [
        "cannot read the amount '12,50'",
        'order 17 of 0190a7c4-9d7e-7a3b-8a44-0f0e6c5b1a2d: no rate for "XXX" at 12:30',
        "ValueError: no rate\n\nTraceback (most recent call last):\n  File 'a.py', line 3",
        None,
    ]
    frame = spark.createDataFrame([(error,) for error in errors], "error string")
    found = [row[0] for row in frame.select(pattern(F.col("error"))).collect()]
    assert found == [
        "cannot read the amount <text>", "order <n> of <id>: no rate for <text> at <n>", "ValueError: no rate",
        "(no error was given)",
    ]  # fmt: skip


@pytest.fixture(scope="module")
def groups(spark: SparkSession) -> DataFrame:
    """The groups of two queues: one whose healthy messages are gone, and one whose dead ones differ from them in three fields."""
    healthy = [message("orders", seq, seq, payload=order(seq)) for seq in range(1, 11)]
    dead = [order(seq, amount=f"{seq},50", to={"country": "XX"}, note="x" * seq) for seq in (20, 21)]
    messages = messages_of(
        spark, *healthy, *(message("orders", 20 + n, 20, payload=text) for n, text in enumerate(dead))
    )
    letters = letters_of(
        spark,
        letter(1, 0, "timeout after 31 s", queue="calls", payload="a"), letter(2, 60, "timeout after 9 s", queue="calls", payload="b"),
        letter(3, 120, "timeout after 12 s", queue="calls", payload="c"), letter(4, 120, "refused", queue="calls", reason="rejected"),
        *(letter(20 + n, 30, f"bad {n}", payload=text) for n, text in enumerate(dead)),
    )  # fmt: skip
    return kept(dead_letter_groups(letters, messages))


def test_letters_are_grouped_with_counts_trend_and_newest_sample(groups: DataFrame) -> None:
    found = groups.where(F.col("source_queue") == "calls")
    first, second = dicts(found.collect())
    assert (first["pattern"], first["letters"], first["reasons"]) == ("timeout after <n> s", 3, ["max_attempts"])
    assert first["trend"] == [1, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1]
    assert (first["sample"]["payload"], first["sample"]["error"]) == ("c", "timeout after 12 s")
    assert (second["pattern"], second["letters"], second["trend"][-1], second["fields"]) == ("refused", 1, 1, [])
    assert first["fingerprint"] != second["fingerprint"]
    assert dicts(most_frequent(found, 1).collect()) == [first]


def test_fields_that_set_letters_apart_are_named_by_value_shape_or_presence(groups: DataFrame) -> None:
    [row] = dicts(groups.where(F.col("source_queue") == "orders").collect())
    found = {
        field["field"]: (field["kind"], field["value"], field["dead_share"], field["healthy_share"])
        for field in row["fields"]
    }
    assert found == {
        "amount": ("shape", "9,9", 1.0, 0.0),
        "to.country": ("value", "XX", 1.0, 0.0),
        "note": ("shape", "a", 1.0, 0.0),
    }


@pytest.mark.slow
def test_a_payload_that_is_no_json_is_said_to_be_none(spark: SparkSession) -> None:
    healthy = messages_of(spark, *(message("orders", seq, seq, payload=order(seq)) for seq in range(1, 4)))
    letters = letters_of(spark, letter(9, 1, "bad", payload="<xml/>"), letter(10, 1, "bad", payload="[1, 2"))
    [row] = dicts(dead_letter_groups(letters, healthy).collect())
    assert [(field["field"], field["value"]) for field in row["fields"]] == [("payload", "(no JSON)")]


@pytest.mark.slow
def test_no_letters_make_no_groups(spark: SparkSession) -> None:
    assert dead_letter_groups(letters_of(spark), messages_of(spark, message("orders", 1, 0))).collect() == []


@pytest.mark.slow
def test_the_report_shows_the_most_frequent_errors_and_the_table_has_them_all(lake: Lake) -> None:
    errors = [f"bad {letter}" for letter in string.ascii_lowercase[: MOST_SHOWN + 2]]
    lake.client.push("orders", [*errors, errors[-1]])
    for found in lake.client.pop("orders", batch=100):
        lake.client.reject(found, error=found.json())

    plan = RunPlan(
        names=("dead-letters",), connection=ServerConnection((lake.url,), lake.tenant, None, 20.0), queues=("orders",),
        lake=str(lake.folder / "lake"), format="parquet", master="local[2]", wishes=Wishes(),
    )  # fmt: skip
    run = run_pipelines(plan, spark=lake.spark).run

    [stage], [shown], [check] = run.stages, run.tables, run.checks
    assert (len(shown.rows), shown.rows[0][2:4], check.figures) == (MOST_SHOWN, (2, errors[-1]), "13 dead letters")
    assert stage.note == "the 10 most frequent of 12 errors are shown"
    assert lake.spark.read.parquet(str(lake.folder / "lake" / "dead_letters")).count() == len(errors)
