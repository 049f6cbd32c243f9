"""Files of the lake: written by Spark, seen and moved by this process, and on the disk before anything counts on them."""

from __future__ import annotations

import os
import shutil
from collections.abc import Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

from skep.errors import Code, SkepError
from skep.spark.running.setting import WHOLE_MICROS, setting

MADE_BY = "skep pipeline run archive makes one as soon as a queue has messages, in the same run if it is named before"

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

KEPT_AT_ONCE = 16


def uri(path: Path) -> str:
    """The path as Spark has to be told it: its own file system may be another one, such as that of a Hadoop cluster."""
    return f"file://{path.absolute()}"


def write_rows(rows: DataFrame, folder: Path, by: Sequence[str] = (), options: Mapping[str, str] | None = None) -> int:
    """Write rows into a fresh folder, as Parquet; how many they were.

    INVALID_REQUEST when they are not seen from here: what Spark wrote on the disks of other machines must not count as written.
    """
    from pyspark.sql import Observation
    from pyspark.sql import functions as F  # noqa: N812 - as everyone writes it

    shutil.rmtree(folder, ignore_errors=True)
    counting = Observation()
    counted = rows.observe(counting, F.count(F.lit(1)).alias("rows"))
    with setting(rows.sparkSession, *WHOLE_MICROS):
        counted.write.options(**(options or {})).partitionBy(*by).parquet(uri(folder))
    seen, wrote = sum(map(rows_of, folder.rglob("*.parquet"))), counting.get["rows"]
    if seen != wrote:
        raise SkepError(
            Code.INVALID_REQUEST,
            f"Spark wrote {wrote} rows, and {folder} on this machine has {seen} of them: its executors write to disks of their own. "
            "Put --lake on a file system that all of them and this machine share, or use --format delta",
        )
    return seen


def read_rows(spark: SparkSession, path: str, texts: Sequence[str]) -> DataFrame:
    """The rows of some files; folders of these names are texts, or a queue that is named 2026 would be read as a number.

    A setting would do it, too, but not over Spark Connect, where files are looked at only when they are read.
    """
    from pyspark.sql.types import StringType, StructField, StructType

    found = spark.read.parquet(path).schema
    fields = [StructField(field.name, StringType()) if field.name in texts else field for field in found]
    return spark.read.schema(StructType(fields)).parquet(path)


def replace_folder(fresh: Path, target: Path) -> None:
    """Put a folder in the place of another; when that was interrupted, calling it again does the rest."""
    if not fresh.exists():
        return
    old = target.with_name(f"_{target.name}.old")
    shutil.rmtree(old, ignore_errors=True)
    if target.exists():
        target.rename(old)
    target.parent.mkdir(parents=True, exist_ok=True)
    fresh.rename(target)
    keep(target.parent)
    shutil.rmtree(old, ignore_errors=True)


def write_whole(path: Path, data: bytes) -> None:
    """Replace a file, so that it is the old or the new one at any time, also after the power failed."""
    fresh = path.with_name(f"{path.name}.new")
    with fresh.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    fresh.replace(path)
    keep(path.parent)


def keep(path: Path) -> None:
    """Make sure that it is on the disk."""
    opened = os.open(path, os.O_RDONLY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)


def keep_all(paths: Collection[Path]) -> None:
    """Make sure that all of them are on the disk. Several are waited for at once: a disk writes down many in one go."""
    with ThreadPoolExecutor(min(KEPT_AT_ONCE, max(1, len(paths)))) as pool:
        list(pool.map(keep, paths))


def rows_of(file: Path) -> int:
    import pyarrow.parquet as pq

    with pq.ParquetFile(file) as opened:
        return int(opened.metadata.num_rows)
