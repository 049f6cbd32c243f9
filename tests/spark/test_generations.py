"""A queue that was deleted and made anew is another generation in the lake; a lake of the first format is brought into the present one."""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as everyone writes it

from skep.spark.lake import table
from skep.spark.lake.opening import Format, open_lake
from skep.spark.lake.parquet import ParquetLake
from skep.spark.lake.place import place_of
from skep.spark.lake.reading import frame_of
from skep.spark.lake.table import upgrade
from skep.spark.running.keeping import TableReach
from tests.spark.conftest import Lake
from tests.spark.frames import message, messages_of
from tests.spark.lake_rows import Rows, add, seqs
from tests.spark.test_lake import KilledError, killed_at
from tests.spark.test_running import ran


@pytest.mark.parametrize(
    "kind", ["parquet", *(pytest.param(kind, marks=pytest.mark.slow) for kind in ("delta", "iceberg"))]
)
def test_a_queue_made_anew_is_a_new_generation_and_stops_no_other(lake: Lake, kind: Format) -> None:
    lake.client.push("orders", [{"n": number} for number in range(3)])
    assert ran(lake, "archive", kind=kind, verify=False).run.error is None
    lake.client.delete_queue("orders")
    lake.client.push("orders", [{"again": 1}, {"again": 2}])
    lake.client.push("others", {"n": 1})

    run = ran(lake, "archive", kind=kind).run
    assert (run.error, run.status, run.stages[0].rows_out) == (None, "warn", 3)
    told = [check.figures for check in run.checks if not check.held]
    assert len(told) == 1
    assert "the lake keeps generation 1, which ends with seq 3, and goes on with generation 2" in told[0]

    lake.client.push("orders", {"again": 3})
    audited = ran(lake, "archive", kind=kind, audit=True).run
    assert (audited.error, audited.status) == (None, "ok")
    with open_lake(str(lake.folder / "lake"), lake.tenant, kind) as opened:
        rows = frame_of(lake.spark, opened.files()).where(F.col("queue") == "orders").collect()
    assert sorted((row["generation"], row["seq"], row["payload"]) for row in rows) == [
        (1, 1, '{"n":0}'), (1, 2, '{"n":1}'), (1, 3, '{"n":2}'),
        (2, 1, '{"again":1}'), (2, 2, '{"again":2}'), (2, 3, '{"again":3}'),
    ]  # fmt: skip


def test_a_server_all_of_whose_queues_are_others_is_refused_until_it_is_said_that_they_were_made_anew(
    lake: Lake,
) -> None:
    queues = ("bills", "orders")
    for queue in queues:
        lake.client.push(queue, {"n": 1})
    ran(lake, "archive", verify=False)
    for queue in queues:
        lake.client.delete_queue(queue)
        lake.client.push(queue, {"n": 2})

    refused = ran(lake, "archive", verify=False).run
    assert "has 2 queues of" in (refused.error or "")
    assert "this is the lake of another server" in (refused.error or "")
    assert "--all-remade" in (refused.error or "")
    accepted = ran(lake, "archive", verify=False, all_remade=True).run
    assert (accepted.error, accepted.stages[0].rows_out) == (None, 2)
    lake.client.push("orders", {"n": 3})
    assert ran(lake, "archive", verify=False).run.error is None


def test_messages_of_all_generations_can_be_replayed_or_those_of_one(lake: Lake) -> None:
    lake.client.push("orders", [{"n": 1}, {"n": 2}])
    ran(lake, "archive", verify=False)
    lake.client.delete_queue("orders")
    lake.client.push("orders", {"n": 3})
    ran(lake, "archive", verify=False)

    one = ran(lake, "replay", queues=("orders",), to="one", where="generation == 2").run.stages[0]
    every = ran(lake, "replay", queues=("orders",), to="every").run.stages[0]

    assert (one.rows_out, every.rows_out, every.note) == (1, 3, "")
    assert [json.loads(bytes(found.payload))["n"] for found in lake.client.messages("every")] == [1, 2, 3]


def write_first_format(spark: SparkSession, root: Path) -> None:
    """Two batches of messages as the first format had them: with a VARIANT, and no generation."""
    for number, (first, last) in enumerate(((1, 2), (3, 3)), 1):
        made = (message("orders", seq, seq, payload=f'{{"n": {seq}}}') for seq in range(first, last + 1))
        rows = (
            messages_of(spark, *made)
            .coalesce(1)
            .withColumns(
                {"date": F.to_date("created_at"), "body": F.try_parse_json("payload"), "payload": F.col("payload")}
            )
        )
        aside = root / "aside"
        rows.write.partitionBy("queue", "date").parquet(str(aside))
        [file] = aside.rglob("*.parquet")
        target = root / "messages" / file.parent.relative_to(aside) / f"{number:010d}-0000.parquet"
        target.parent.mkdir(parents=True, exist_ok=True)
        file.rename(target)
        for left in sorted(aside.rglob("*"), reverse=True):
            left.unlink() if left.is_file() else left.rmdir()
        aside.rmdir()
    state: dict[str, Any] = {
        "format": 1,
        "tenant": "default",
        "batch": 2,
        "through": {"orders": 3},
        "logs": {"orders": 7},
    }
    (root / "_skep").mkdir()
    (root / "_skep" / "state.json").write_text(json.dumps(state), encoding="utf-8")


@pytest.mark.parametrize("step", [1, pytest.param(3, marks=pytest.mark.slow)])
def test_a_lake_of_the_first_format_is_read_and_rewritten_also_when_that_is_killed(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: int
) -> None:
    write_first_format(spark, tmp_path)
    monkeypatch.setattr(table, "TARGET_BYTES", 1)  # each file is a portion
    lake = ParquetLake(place_of(str(tmp_path)), "default")
    assert seqs(spark, lake) == [1, 2, 3]
    with monkeypatch.context() as patched, suppress(KilledError):
        patched.setattr(Path, "rename", killed_at(step)(Path.rename))
        upgrade(spark, lake)

    lake = ParquetLake(place_of(str(tmp_path)), "default")
    assert seqs(spark, lake) == [1, 2, 3]
    upgrade(spark, lake)
    add(spark, lake, Rows("orders", 4, 4))

    assert (lake.through("orders"), lake.log_of("orders"), lake.generation_of("orders")) == (4, 7, 1)
    assert seqs(spark, lake) == [1, 2, 3, 4]
    schemas = [pq.read_schema(file).names for file in tmp_path.rglob("messages/**/*.parquet")]
    assert len(schemas) == 3
    assert all("body" not in names and "generation" in names for names in schemas)
    assert upgrade(spark, ParquetLake(place_of(str(tmp_path)), "default")) == 0


def test_what_was_seen_of_a_log_says_nothing_of_another_that_is_as_long() -> None:
    reach = TableReach(made_with="2", through={"orders": 5, "others": 1}, logs={"orders": 1})
    assert reach.is_of({"orders": 1, "others": 9})  # what was noted before logs were
    assert not reach.is_of({"orders": 2})
