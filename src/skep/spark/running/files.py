"""Files of the lake: Spark writes them, this process checks and moves them, and syncs them (fsync) before anything relies on them."""

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
    """The path as a URI for Spark, whose default file system may be another one, such as that of a Hadoop cluster."""
    return f"file://{path.absolute()}"


def write_rows(rows: DataFrame, folder: Path, by: Sequence[str] = (), options: Mapping[str, str] | None = None) -> int:
    """Write rows into a fresh folder, as Parquet; return their number.

    INVALID_REQUEST when this process does not see all of them: rows on the disks of other machines must not count as written.
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
    """The rows of a table. The columns in ``texts`` come from folder names and are read as text: a queue named 2026 is no number.

    A setting could do this, too, but not over Spark Connect, which looks at files only when they are read.
    """
    from pyspark.sql.types import StringType, StructField, StructType

    found = spark.read.parquet(path).schema
    fields = [StructField(field.name, StringType()) if field.name in texts else field for field in found]
    return spark.read.schema(StructType(fields)).parquet(path)


def replace_folder(fresh: Path, target: Path) -> None:
    """Put a folder in place of another. After an interruption, calling it again does the rest."""
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
    """Replace a file atomically: at any time it is the old or the new one, also after a power failure."""
    fresh = path.with_name(f"{path.name}.new")
    with fresh.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    fresh.replace(path)
    keep(path.parent)


def keep(path: Path) -> None:
    """Sync a file or folder to the disk (fsync)."""
    opened = os.open(path, os.O_RDONLY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)


def keep_all(paths: Collection[Path]) -> None:
    """Sync many files or folders, several at once: a disk syncs many in one go."""
    with ThreadPoolExecutor(min(KEPT_AT_ONCE, max(1, len(paths)))) as pool:
        list(pool.map(keep, paths))


def rows_of(file: Path) -> int:
    import pyarrow.parquet as pq

    with pq.ParquetFile(file) as opened:
        return int(opened.metadata.num_rows)
