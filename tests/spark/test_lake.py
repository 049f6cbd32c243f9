"""The lake has each message once, wherever a run was killed."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as everyone writes it

from skep.errors import SkepError
from skep.spark.pipelines.archive import with_body
from skep.spark.running import files
from skep.spark.running import lake as lakes
from skep.spark.running.delta import DeltaLake
from skep.spark.running.lake import MANY_FILES, MESSAGES, ParquetLake, open_lake
from tests.spark.frames import message, messages_of


class KilledError(Exception):
    """Stands for kill -9: nothing after it happens."""


def batch(spark: SparkSession, first: int, last: int, queue: str = "orders") -> DataFrame:
    return messages_of(
        spark, *(message(queue, seq, seq, payload=f'{{"n": {seq}}}') for seq in range(first, last + 1))
    ).coalesce(1)


def seqs(lake: lakes.Lake, spark: SparkSession) -> list[int]:
    return sorted(row["seq"] for row in lake.read(spark).select("seq").collect())


def killed_at(step: int) -> Callable[[Any], Any]:
    """Lets so many calls pass, then kills."""
    calls = itertools.count()

    def wrap(function: Any) -> Any:
        def called(*arguments: Any, **named: Any) -> Any:
            if next(calls) >= step:
                raise KilledError
            return function(*arguments, **named)

        return called

    return wrap


def test_batches_follow_each_other_and_anyone_can_read_the_folders(spark: SparkSession, tmp_path: Path) -> None:
    with open_lake(str(tmp_path), "default") as lake:
        assert lake.through("orders") is None
        assert lake.append(batch(spark, 1, 2), {"orders": 2}) == 2
        assert lake.append(batch(spark, 3, 3).unionByName(batch(spark, 1, 1, "2026")), {"orders": 3, "2026": 1}) == 2
        assert (lake.through("orders"), lake.through("2026")) == (3, 1)
        rows = with_body(lake.read(spark)).where(F.col("queue") == "orders").orderBy("seq")
        assert [(row["seq"], row["n"]) for row in rows.select("seq", F.try_variant_get("body", "$.n", "int").alias("n")).collect()] == [
            (1, 1), (2, 2), (3, 3),
        ]  # fmt: skip
        assert dict(lake.read(spark).dtypes)["date"] == "date"
    assert sorted(folder.name for folder in (tmp_path / MESSAGES).iterdir()) == ["queue=2026", "queue=orders"]
    written = list((tmp_path / MESSAGES).rglob("*.parquet"))
    assert len(written) == 3
    assert {pq.read_schema(file).field("created_at").type for file in written} == {pa.timestamp("us", "UTC")}


@pytest.mark.parametrize("step", [3, 5, *(pytest.param(step, marks=pytest.mark.slow) for step in (0, 1, 2, 4))])
def test_a_run_that_is_killed_at_any_step_of_a_batch_loses_and_doubles_nothing(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: int
) -> None:
    ParquetLake(tmp_path, "default").append(batch(spark, 1, 2), {"orders": 2})
    two_files = batch(spark, 3, 3).unionByName(batch(spark, 4, 4))
    kill = killed_at(step)
    with monkeypatch.context() as patched:
        patched.setattr(Path, "rename", kill(Path.rename))
        patched.setattr(Path, "replace", kill(Path.replace))
        with suppress(KilledError):
            ParquetLake(tmp_path, "default").append(two_files, {"orders": 4})
    lake = ParquetLake(tmp_path, "default")
    assert seqs(lake, spark) == list(range(1, (lake.through("orders") or 0) + 1))  # what is committed, and no more
    if lake.through("orders") == 2:
        lake.append(two_files, {"orders": 4})
    assert seqs(lake, spark) == [1, 2, 3, 4]


@pytest.mark.parametrize("step", [2, *(pytest.param(step, marks=pytest.mark.slow) for step in (0, 1, 3, 4, 9))])
def test_compaction_leaves_few_files_with_the_same_rows_also_when_it_is_killed(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: int
) -> None:
    monkeypatch.setattr(lakes, "MANY_FILES", 2)
    lake = ParquetLake(tmp_path, "default")
    for seq in (1, 2, 3):
        lake.append(batch(spark, seq, seq), {"orders": seq})
    kill = killed_at(step)
    with monkeypatch.context() as patched:
        patched.setattr(Path, "rename", kill(Path.rename))
        patched.setattr(Path, "unlink", kill(Path.unlink))
        patched.setattr(Path, "replace", kill(Path.replace))
        with suppress(KilledError):
            lake.compact(spark)
    lake = ParquetLake(tmp_path, "default")
    assert seqs(lake, spark) == [1, 2, 3]
    lake.compact(spark)
    assert seqs(lake, spark) == [1, 2, 3]
    assert len(list((tmp_path / MESSAGES).rglob("*.parquet"))) == 1
    lake.append(batch(spark, 4, 4), {"orders": 4})
    assert seqs(lake, spark) == [1, 2, 3, 4]
    assert MANY_FILES > 2


def test_two_runs_do_not_write_to_one_lake_nor_two_tenants(tmp_path: Path) -> None:
    with (
        open_lake(str(tmp_path), "default"),
        pytest.raises(SkepError, match="another run"),
        open_lake(str(tmp_path), "default"),
    ):
        pass
    ParquetLake(tmp_path, "default")._save()
    with pytest.raises(SkepError, match="lake of tenant 'default'"):
        ParquetLake(tmp_path, "other")
    with pytest.raises(SkepError, match="--format delta"), open_lake("s3://bucket/lake", "default"):
        pass


def test_a_damaged_state_is_said_to_be_damaged(tmp_path: Path) -> None:
    (tmp_path / "_skep").mkdir()
    (tmp_path / "_skep" / "state.json").write_text("{", encoding="utf-8")
    with pytest.raises(SkepError, match="damaged"):
        ParquetLake(tmp_path, "default")


def test_a_delta_table_keeps_rows_and_how_far_it_is_in_one_commit(spark: SparkSession, tmp_path: Path) -> None:
    lake = DeltaLake(str(tmp_path), "default")
    assert lake.through("orders") is None
    assert lake.append(batch(spark, 1, 2), {"orders": 2}) == 2
    assert lake.append(batch(spark, 3, 3), {"orders": 3}) == 1
    again = DeltaLake(str(tmp_path), "default")
    assert (again.through("orders"), again.through("others")) == (3, None)
    assert seqs(again, spark) == [1, 2, 3]
    assert again.compact(spark) == 1
    rows = (
        with_body(again.read(spark))
        .orderBy("seq")
        .select(F.try_variant_get("body", "$.n", "int").alias("n"), "date")
        .collect()
    )
    assert [row["n"] for row in rows] == [1, 2, 3]


def test_of_two_who_write_the_same_to_delta_one_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    lake, other = DeltaLake(str(tmp_path), "default"), DeltaLake(str(tmp_path), "default")
    assert lake.append(batch(spark, 1, 3), {"orders": 3}) == 3
    assert lake.through("orders") == other.through("orders") == 3
    assert lake.append(batch(spark, 4, 5), {"orders": 5}) == 2
    with pytest.raises(SkepError, match="another run is writing"):
        other.append(batch(spark, 4, 5), {"orders": 5})
    assert seqs(lake, spark) == [1, 2, 3, 4, 5]
    with (
        open_lake(str(tmp_path), "default", "delta"),
        pytest.raises(SkepError, match="another run is writing"),
        open_lake(str(tmp_path), "default", "delta"),
    ):
        pass


def test_the_lake_is_on_this_machine_whatever_spark_takes_for_its_own_file_system(
    spark: SparkSession, tmp_path: Path
) -> None:
    other = {"fs.defaultFS": "viewfs://x/", "fs.viewfs.mounttable.x.linkFallback": (tmp_path / "other").as_uri()}
    for name, value in other.items():
        spark.conf.set(name, value)
    try:
        with open_lake(str(tmp_path / "lake"), "default") as lake:
            assert lake.append(batch(spark, 1, 3), {"orders": 3}) == 3
            assert seqs(lake, spark) == [1, 2, 3]
    finally:
        for name in other:
            spark.conf.unset(name)


def test_what_is_written_on_disks_that_are_not_shared_does_not_count(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with open_lake(str(tmp_path / "lake"), "default") as lake:
        monkeypatch.setattr(files, "uri", lambda path: f"file://{tmp_path}/of-an-executor/{path.name}")
        with pytest.raises(SkepError, match=r"Spark wrote 3 rows, and .* has 0 of them"):
            lake.append(batch(spark, 1, 3), {"orders": 3})
        monkeypatch.undo()
        assert lake.through("orders") is None
        assert lake.append(batch(spark, 1, 3), {"orders": 3}) == 3


@pytest.mark.slow
def test_compaction_leaves_large_files_alone(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with open_lake(str(tmp_path), "default") as lake:
        lake.append(batch(spark, 1, 400), {"orders": 400})
        [large] = tmp_path.rglob("messages/*/*/*.parquet")
        monkeypatch.setattr(lakes, "SMALL_BYTES", large.stat().st_size)
        for seq in range(401, 401 + MANY_FILES):
            lake.append(batch(spark, seq, seq), {"orders": seq})
        assert lake.compact(spark) == MANY_FILES - 1
        assert large in tmp_path.rglob("messages/*/*/*.parquet")
        assert seqs(lake, spark) == list(range(1, 401 + MANY_FILES))
