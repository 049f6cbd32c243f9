"""What is forgotten is in no file of the lake any more, and everything else is where it was."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from skep.spark.lake.forgetting import PENDING, Seqs, forget_in_folders, forget_rows
from skep.spark.lake.opening import Format, open_lake
from skep.spark.lake.place import place_of
from skep.spark.lake.table import OWN
from tests.spark.lake_rows import Rows, add, seqs
from tests.spark.test_lake import FORMATS, KilledError

FORGOTTEN = {"orders": [Seqs(1, 3, 4), Seqs(1, 9, 9)]}
KEPT = [1, 2, 5, 6, 7, 8, 10]


def on_disk(root: Path, queue: str = "orders") -> set[int]:
    """The seqs of a queue in all files below a folder, whether a version names them or not."""
    files = root.rglob(f"queue={queue}/**/*.parquet")
    return {seq for file in files for seq in pq.read_table(file, columns=["seq"]).column("seq").to_pylist()}


@pytest.mark.parametrize("kind", FORMATS)
def test_messages_are_in_no_file_any_more_and_others_stay(spark: SparkSession, tmp_path: Path, kind: Format) -> None:
    with open_lake(str(tmp_path), "default", kind) as lake:
        add(spark, lake, Rows("orders", 1, 5), Rows("others", 1, 4))
        add(spark, lake, Rows("orders", 6, 8))
        add(spark, lake, Rows("orders", 9, 10))
        untouched = {file.uri for file in lake.files() if file.queue == "others" or file.first_seq == 6}

        assert forget_rows(spark, lake, FORGOTTEN) == 3
        assert (seqs(spark, lake), seqs(spark, lake, "others")) == (KEPT, [1, 2, 3, 4])
        assert on_disk(tmp_path) == set(KEPT)
        assert untouched <= {file.uri for file in lake.files()}
        assert lake.through("orders") == 10
        assert forget_rows(spark, lake, FORGOTTEN) == 0
        assert forget_rows(spark, lake, {"orders": [Seqs(1, 9, 10)], "nobody": [Seqs(1, 1, 1)]}) == 1
        assert (seqs(spark, lake), lake.through("orders")) == (KEPT[:-1], 10)


@pytest.mark.parametrize("kind", FORMATS)
def test_a_run_that_is_killed_after_its_commit_leaves_nothing_to_those_who_look_at_files(
    spark: SparkSession, tmp_path: Path, kind: Format, monkeypatch: pytest.MonkeyPatch
) -> None:
    with open_lake(str(tmp_path), "default", kind) as lake:
        add(spark, lake, Rows("orders", 1, 10))
        commit = lake.commit

        def killed_after(change: Any) -> None:
            commit(change)
            raise KilledError

        monkeypatch.setattr(lake, "commit", killed_after)
        with pytest.raises(KilledError):
            forget_rows(spark, lake, FORGOTTEN)
    with open_lake(str(tmp_path), "default") as lake:
        assert seqs(spark, lake) == KEPT
        assert forget_rows(spark, lake, FORGOTTEN) == 0
        assert on_disk(tmp_path) == set(KEPT)
    assert not (tmp_path / OWN / PENDING).exists()


def test_a_generation_that_is_not_meant_keeps_its_messages(spark: SparkSession, tmp_path: Path) -> None:
    with open_lake(str(tmp_path), "default") as lake:
        add(spark, lake, Rows("orders", 1, 4))
        add(spark, lake, Rows("orders", 1, 4, generation=2))
        assert forget_rows(spark, lake, {"orders": [Seqs(2, 2, 3)]}) == 2
        assert seqs(spark, lake) == [1, 1, 2, 3, 4, 4]


def test_tables_with_a_folder_for_each_queue_lose_the_rows_of_these_messages(tmp_path: Path) -> None:
    import pyarrow as pa

    folder = tmp_path / "commands" / "queue=orders" / "batch=1"
    folder.mkdir(parents=True)
    pq.write_table(pa.table({"seq": [1, 2, 3, 9], "input": ["a", "b", "c", "d"]}), folder / "one.parquet")

    assert forget_in_folders(place_of(str(tmp_path)), ["commands", "quarantine"], "orders", FORGOTTEN["orders"]) == 2

    assert pq.read_table(folder / "one.parquet").to_pydict() == {"seq": [1, 2], "input": ["a", "b"]}
