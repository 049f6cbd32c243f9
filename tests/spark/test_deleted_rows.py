"""Rows that another program has deleted from the table of messages do not come back: while their files still have them, runs are refused."""

from __future__ import annotations

import base64
import json
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from skep.errors import SkepError
from skep.spark.lake import table
from skep.spark.lake.forgetting import forget_rows
from skep.spark.lake.opening import Format, open_lake, view_of
from skep.spark.lake.place import place_of
from skep.spark.lake.table import MESSAGES, Lake, compact
from skep.spark.lake.tombstones import Seqs
from tests.spark.lake_rows import Rows, add, seqs

pytestmark = pytest.mark.slow
Z85 = bytes.maketrans(
    b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz!#$%&()*+-;<=>?@^_`{|}~",
    b"0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#",
)
SECOND_ROW = struct.pack("<iqiiiHHiH", 1681511377, 1, 0, 12346, 1, 0, 0, 16, 1)
"""The rows that are deleted, as Delta writes them: a bitmap with the number 1."""
DELETED = "another program has deleted single rows of .* without rewriting their files"


def made(spark: SparkSession, folder: Path, kind: Format) -> None:
    with open_lake(str(folder), "default", kind) as lake:
        add(spark, lake, Rows("orders", 1, 3))
        add(spark, lake, Rows("orders", 4, 4))


def vector_written(folder: Path) -> None:
    """What Delta's own DELETE leaves: a file with a deletion vector, for its second row."""
    log = folder / MESSAGES / "_delta_log"
    [old] = [
        action["add"]
        for line in (log / f"{0:020d}.json").read_text().splitlines()
        if "add" in (action := json.loads(line))
    ]
    padded = SECOND_ROW + bytes(-len(SECOND_ROW) % 4)
    vector = {
        "storageType": "i", "pathOrInlineDv": base64.b85encode(padded).translate(Z85).decode(), "sizeInBytes": len(SECOND_ROW),
        "cardinality": 1,
    }  # fmt: skip
    features = ["deletionVectors"]
    actions = [
        {"protocol": {"minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": features, "writerFeatures": features}},
        {"remove": {"path": old["path"], "dataChange": True, "deletionTimestamp": 0, "partitionValues": old["partitionValues"],
                    "extendedFileMetadata": True, "size": old["size"]}},
        {"add": {**old, "deletionVector": vector}},
    ]  # fmt: skip
    (log / f"{2:020d}.json").write_text("".join(f"{json.dumps(action)}\n" for action in actions))


def position_deleted(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What merge-on-read of Iceberg leaves: a file that names the second row of the first file. pyiceberg only reads such files."""
    from pyiceberg import manifest

    with open_lake(str(folder), "default") as lake:
        opened: Any = lake
        there = opened._catalog.load_table(opened._name)
        old = next(task.file for task in there.scan().plan_files() if task.file.record_count == 3)
        schema = pa.schema(
            [
                pa.field("file_path", pa.string(), nullable=False, metadata={"PARQUET:field_id": "2147483546"}),
                pa.field("pos", pa.int64(), nullable=False, metadata={"PARQUET:field_id": "2147483545"}),
            ]
        )
        target = folder / MESSAGES / "data" / "deletes.parquet"
        pq.write_table(pa.table({"file_path": [old.file_path], "pos": [1]}, schema), target)
        deletes = manifest.DataFile.from_args(
            content=manifest.DataFileContent.POSITION_DELETES, file_path=target.as_uri(), file_format=manifest.FileFormat.PARQUET,
            partition=old.partition, record_count=1, file_size_in_bytes=target.stat().st_size, column_sizes={}, value_counts={},
            null_value_counts={}, nan_value_counts={}, lower_bounds={}, upper_bounds={}, key_metadata=None, split_offsets=None,
            equality_ids=None, sort_order_id=None,
        )  # fmt: skip
        deletes.spec_id = old.spec_id
        writer = manifest.ManifestWriterV2
        meta: Any = vars(writer)["_meta"]
        with monkeypatch.context() as patched:
            patched.setattr(writer, "content", lambda _: manifest.ManifestContent.DELETES)
            patched.setattr(writer, "_meta", property(lambda self: {**meta.fget(self), "content": "deletes"}))
            with there.transaction() as change, change.update_snapshot().fast_append() as snapshot:
                snapshot.append_data_file(deletes)
        assert sorted(there.refresh().scan().to_arrow().column("seq").to_pylist()) == [1, 3, 4]
        there.catalog.close()


@pytest.mark.parametrize("kind", ["delta", "iceberg"])
def test_rows_that_are_deleted_beside_their_files_are_refused(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: Format
) -> None:
    monkeypatch.setattr(table, "MANY_FILES", 2)
    made(spark, tmp_path, kind)
    if kind == "delta":
        vector_written(tmp_path)
    else:
        position_deleted(tmp_path, monkeypatch)
    changes: list[Callable[[Lake], object]] = [
        lambda lake: compact(spark, lake),
        lambda lake: forget_rows(spark, lake, {"orders": [Seqs(1, 1, 1)]}),
        lambda lake: lake.files(queues=["orders"]),
    ]
    for change in changes:
        with open_lake(str(tmp_path), "default") as lake, pytest.raises(SkepError, match=DELETED):
            change(lake)
    with pytest.raises(SkepError, match=DELETED):
        view_of(place_of(str(tmp_path)), "default").files(queues=["orders"])


def test_rows_that_delta_rewrites_files_without_stay_deleted(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(table, "MANY_FILES", 2)
    made(spark, tmp_path, "delta")
    DeltaTable(tmp_path / MESSAGES).delete("seq = 2")
    with open_lake(str(tmp_path), "default") as lake:
        assert compact(spark, lake) == 1
        add(spark, lake, Rows("orders", 5, 5))
        assert seqs(spark, lake) == [1, 3, 4, 5]


def test_rows_that_were_deleted_from_a_file_of_a_parquet_lake_are_noticed_before_it_is_compacted(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(table, "MANY_FILES", 2)
    made(spark, tmp_path, "parquet")
    [file] = [one for one in tmp_path.rglob("*.parquet") if one.name.startswith("1_1_3_")]
    pq.write_table(pq.read_table(file).filter(pa.array([True, False, True])), file)
    with open_lake(str(tmp_path), "default") as lake:
        with pytest.raises(SkepError, match="would have changed its rows; it is as it was"):
            compact(spark, lake)
        assert seqs(spark, lake) == [1, 3, 4]
