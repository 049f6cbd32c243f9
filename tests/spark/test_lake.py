"""The lake has each message once in every format, wherever a run was killed."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, get_args

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as everyone writes it

from skep.errors import SkepError
from skep.spark.lake import table
from skep.spark.lake.opening import Format, lake_of, open_lake
from skep.spark.lake.parquet import ParquetLake
from skep.spark.lake.place import Place, place_of
from skep.spark.lake.reading import frame_of
from skep.spark.lake.table import MANY_FILES, MESSAGES, compact
from skep.spark.pipelines.archive import with_body
from tests.spark.lake_rows import Rows, add, seqs

FORMATS: tuple[Format, ...] = get_args(Format)
USUAL_FIRST = [FORMATS[0], *(pytest.param(kind, marks=pytest.mark.slow) for kind in FORMATS[1:])]


class KilledError(Exception):
    """Stands for kill -9: nothing after it happens."""


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


@pytest.mark.parametrize("kind", FORMATS)
def test_batches_follow_each_other_and_anyone_can_read_the_files(
    spark: SparkSession, tmp_path: Path, kind: Format
) -> None:
    with open_lake(str(tmp_path), "default", kind) as lake:
        assert lake.through("orders") is None
        assert add(spark, lake, Rows("orders", 1, 2)) == 2
        assert add(spark, lake, Rows("orders", 3, 3), Rows("2026", 1, 1)) == 2
        assert (lake.through("orders"), lake.through("2026")) == (3, 1)
    with open_lake(str(tmp_path), "default") as lake:  # the format is known from now on
        assert (lake.through("orders"), lake.through("2026"), lake.through("others")) == (3, 1, None)
        rows = with_body(frame_of(spark, lake.files())).where(F.col("queue") == "orders").orderBy("seq")
        numbers = F.try_variant_get("body", "$.n", "int").alias("n")
        assert [tuple(row) for row in rows.select("seq", numbers).collect()] == [(1, 1), (2, 2), (3, 3)]
        assert dict(rows.dtypes)["date"] == "date"
        known = {(one.queue, one.first_seq, one.last_seq, one.rows, one.generation) for one in lake.files()}
        assert known == {("orders", 1, 2, 2, 1), ("orders", 3, 3, 1, 1), ("2026", 1, 1, 1, 1)}
        assert [one.rows for one in lake.files(queues=["2026"])] == [1]
        assert {one.folder for one in lake.files([("orders", "2026-01-31")])} == {("orders", "2026-01-31")}
    written = list((tmp_path / MESSAGES).rglob("*.parquet"))
    assert len(written) == 3
    assert {pq.read_schema(file).field("created_at").type for file in written} == {pa.timestamp("us", "UTC")}


@pytest.mark.parametrize("kind", USUAL_FIRST)
def test_queues_of_any_name_have_folders_of_their_own(spark: SparkSession, tmp_path: Path, kind: Format) -> None:
    names = ["a/b", "a%2Fb", "a:b=c?", "ü €", "*", "[x]", "x" * 200]
    with open_lake(str(tmp_path), "default", kind) as lake:
        add(spark, lake, *(Rows(name, 1, number) for number, name in enumerate(names, 1)))
        for number, name in enumerate(names, 1):
            assert seqs(spark, lake, name) == list(range(1, number + 1))
        counted = frame_of(spark, lake.files()).groupBy("queue").count().collect()
        assert {row["queue"]: row["count"] for row in counted} == dict(zip(names, range(1, 8), strict=True))


@pytest.mark.parametrize("kind", USUAL_FIRST)
def test_small_files_are_joined_and_stay_of_their_generation(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: Format
) -> None:
    monkeypatch.setattr(table, "MANY_FILES", 2)
    with open_lake(str(tmp_path), "default", kind) as lake:
        for seq in (1, 2, 3):
            add(spark, lake, Rows("orders", seq, seq))
        add(spark, lake, Rows("others", 1, 1))
        assert compact(spark, lake) == 2
        known = {(one.queue, one.first_seq, one.last_seq, one.rows, one.generation) for one in lake.files()}
        assert known == {("orders", 1, 3, 3, 1), ("others", 1, 1, 1, 1)}
        add(spark, lake, Rows("orders", 4, 4))
        assert (lake.through("orders"), seqs(spark, lake)) == (4, [1, 2, 3, 4])
        assert len(list(tmp_path.rglob("queue=*/**/*.parquet"))) == (3 if kind == "parquet" else 6)
        lake.vacuum(0)
        assert len(list(tmp_path.rglob("queue=*/**/*.parquet"))) == 3
        assert seqs(spark, lake) == [1, 2, 3, 4]


@pytest.mark.parametrize("kind", ["delta", "iceberg"])
def test_of_two_who_write_the_same_one_is_refused(spark: SparkSession, tmp_path: Path, kind: Format) -> None:
    root = place_of(str(tmp_path))
    first = lake_of(root, "default", kind)
    add(spark, first, Rows("orders", 1, 3))
    second = lake_of(root, "default", kind)
    assert first.through("orders") == second.through("orders") == 3
    add(spark, first, Rows("orders", 4, 5))
    with pytest.raises(SkepError, match="another run is writing"):
        add(spark, second, Rows("orders", 4, 5))
    third = lake_of(root, "default", kind)
    assert seqs(spark, third) == [1, 2, 3, 4, 5]
    assert third.through("orders") == 5


@pytest.mark.parametrize("step", [3, 5, *(pytest.param(step, marks=pytest.mark.slow) for step in (0, 1, 2, 4))])
def test_a_run_that_is_killed_at_any_step_of_a_batch_loses_and_doubles_nothing(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: int
) -> None:
    add(spark, ParquetLake(place_of(str(tmp_path)), "default"), Rows("orders", 1, 2))
    two_files = Rows("orders", 3, 3), Rows("orders", 4, 4)
    kill = killed_at(step)
    with monkeypatch.context() as patched:
        patched.setattr(Path, "rename", kill(Path.rename))
        patched.setattr(Path, "replace", kill(Path.replace))
        with suppress(KilledError):
            add(spark, ParquetLake(place_of(str(tmp_path)), "default"), *two_files)
    lake = ParquetLake(place_of(str(tmp_path)), "default")
    assert seqs(spark, lake) == list(range(1, (lake.through("orders") or 0) + 1))  # what is committed, and no more
    if lake.through("orders") == 2:
        add(spark, lake, *two_files)
    assert seqs(spark, lake) == [1, 2, 3, 4]


@pytest.mark.parametrize("step", [2, *(pytest.param(step, marks=pytest.mark.slow) for step in (0, 1, 3, 4, 9))])
def test_compaction_leaves_few_files_with_the_same_rows_also_when_it_is_killed(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: int
) -> None:
    monkeypatch.setattr(table, "MANY_FILES", 2)
    lake = ParquetLake(place_of(str(tmp_path)), "default")
    for seq in (1, 2, 3):
        add(spark, lake, Rows("orders", seq, seq))
    kill = killed_at(step)
    with monkeypatch.context() as patched:
        patched.setattr(Path, "rename", kill(Path.rename))
        patched.setattr(Path, "unlink", kill(Path.unlink))
        patched.setattr(Path, "replace", kill(Path.replace))
        with suppress(KilledError):
            compact(spark, lake)
    lake = ParquetLake(place_of(str(tmp_path)), "default")
    assert seqs(spark, lake) == [1, 2, 3]
    compact(spark, lake)
    assert seqs(spark, lake) == [1, 2, 3]
    assert len(list((tmp_path / MESSAGES).rglob("*.parquet"))) == 1
    add(spark, lake, Rows("orders", 4, 4))
    assert seqs(spark, lake) == [1, 2, 3, 4]
    assert MANY_FILES > 2


def test_two_runs_do_not_write_to_one_lake_nor_two_tenants(tmp_path: Path) -> None:
    with (
        open_lake(str(tmp_path), "default"),
        pytest.raises(SkepError, match="another run"),
        open_lake(str(tmp_path), "default"),
    ):
        pass
    ParquetLake(place_of(str(tmp_path)), "default")._save()
    with pytest.raises(SkepError, match="lake of tenant 'default'"):
        ParquetLake(place_of(str(tmp_path)), "other")
    with pytest.raises(SkepError, match="--format delta"), open_lake("s3://bucket/lake", "default", "parquet"):
        pass


def test_a_damaged_state_is_said_to_be_damaged(tmp_path: Path) -> None:
    (tmp_path / "_skep").mkdir()
    (tmp_path / "_skep" / "state.json").write_text("{", encoding="utf-8")
    with pytest.raises(SkepError, match="damaged"):
        ParquetLake(place_of(str(tmp_path)), "default")


def test_the_lake_is_on_this_machine_whatever_spark_takes_for_its_own_file_system(
    spark: SparkSession, tmp_path: Path
) -> None:
    other = {"fs.defaultFS": "viewfs://x/", "fs.viewfs.mounttable.x.linkFallback": (tmp_path / "other").as_uri()}
    for name, value in other.items():
        spark.conf.set(name, value)
    try:
        with open_lake(str(tmp_path / "lake"), "default") as lake:
            assert add(spark, lake, Rows("orders", 1, 3)) == 3
            assert seqs(spark, lake) == [1, 2, 3]
    finally:
        for name in other:
            spark.conf.unset(name)


def test_what_is_written_on_disks_that_are_not_shared_does_not_count(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with open_lake(str(tmp_path / "lake"), "default") as lake:
        monkeypatch.setattr(Place, "size", lambda _: None)
        with pytest.raises(SkepError, match=r"Spark wrote 3 rows, and this machine sees 0 of them"):
            add(spark, lake, Rows("orders", 1, 3))
        monkeypatch.undo()
        assert lake.through("orders") is None
        assert add(spark, lake, Rows("orders", 1, 3)) == 3


@pytest.mark.slow
def test_compaction_leaves_large_files_alone(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with open_lake(str(tmp_path), "default") as lake:
        add(spark, lake, Rows("orders", 1, 400))
        [large] = tmp_path.rglob("messages/*/*/*.parquet")
        monkeypatch.setattr(table, "SMALL_BYTES", large.stat().st_size)
        for seq in range(401, 401 + MANY_FILES):
            add(spark, lake, Rows("orders", seq, seq))
        assert compact(spark, lake) == MANY_FILES - 1
        assert large in tmp_path.rglob("messages/*/*/*.parquet")
        assert seqs(spark, lake) == list(range(1, 401 + MANY_FILES))


@pytest.mark.slow
def test_the_last_seqs_of_many_batches_are_known_from_a_checkpoint_too(spark: SparkSession, tmp_path: Path) -> None:
    root = place_of(str(tmp_path))
    lake = lake_of(root, "default", "delta")
    for seq in range(1, 6):
        add(spark, lake, Rows("orders", seq, seq), Rows(f"queue-{seq}", 1, seq))
        if seq == 3:
            table = DeltaTable(str(tmp_path / MESSAGES))
            table.create_checkpoint()
            (tmp_path / MESSAGES / "_delta_log" / f"{0:020d}.json").unlink()  # as a cleanup does later
    fresh = lake_of(root, "default", "delta")
    assert [fresh.through(queue) for queue in ("orders", "queue-1", "queue-5", "none")] == [5, 1, 5, None]
    table = DeltaTable(str(tmp_path / MESSAGES))
    assert [table.transaction_version(f"skep/default/{queue}") for queue in ("orders", "queue-1")] == [5, 1]
    add(spark, lake, Rows("orders", 6, 6))
    assert lake_of(root, "default", "delta").through("orders") == 6
