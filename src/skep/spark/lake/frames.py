"""Frames as Parquet files of the lake: the executors write them, wherever the lake is, and this process puts them into their places."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from functools import partial
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote
from uuid import uuid4

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from msgspec import Struct

from skep.errors import Code, SkepError
from skep.spark.lake.files import COMPRESSION, escaped
from skep.spark.lake.place import Place, sync

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

PARTS = "folder string, uri string, rows bigint, bytes bigint"
GROUP_ROWS = 64 * 1024
"""The most rows that wait for their row group."""


class Part(Struct, frozen=True):
    """A file with some rows of a frame."""

    folder: str | None
    """The value of the column that names its folder."""
    uri: str
    rows: int
    bytes: int

    @property
    def place(self) -> Place:
        return Place(self.uri)


def write_frame(rows: DataFrame, root: Place, folder: str | None = None, name: str = "part") -> list[Part]:
    """Write a frame as Parquet files below a place, in folders by one column or in none; return the files, in the frame's order.
    The names of the files begin with ``name``.

    INVALID_REQUEST when this process does not see all of them: rows on the disks of other machines must not count as written.
    """
    ordered = rows if folder is None else rows.repartition(folder).sortWithinPartitions(folder)
    found = ordered.mapInArrow(partial(_write, root, folder, name), PARTS).collect()
    parts = sorted((Part(*row) for row in found), key=lambda part: part.place.name)
    for part in parts:
        if part.place.is_local and part.place.size() != part.bytes:
            raise SkepError(
                Code.INVALID_REQUEST,
                f"Spark wrote {part.rows} rows to {part.place}, and this machine does not see them: its executors write to disks of "
                "their own. Put --lake on a file system that all of them and this machine share, or into an object store",
            )
    return parts


def replace_rows(rows: DataFrame, target: Place, own: Place) -> int:
    """Replace the rows of a folder by those of a frame; return their number. Called again after an interruption, it does the rest.

    A local folder is written aside and renamed. In an object store the new files come first, and then the old ones go.
    """
    aside = own / f"fresh-{target.name}-{uuid4().hex}" if target.is_local else target
    before = [] if target.is_local else target.below_it()
    parts = write_frame(rows, aside)
    if not parts:  # a table without rows has a file all the same, with its columns
        with (aside / "part-00000-empty.parquet").writing() as file:
            pq.write_table(_arrow_schema(rows.schema).empty_table(), file, store_schema=False)
    if target.is_local:
        if parts:
            drop_others(aside, parts)
        replace_folder(aside, target)
    for old in before:
        old.place.delete()
    return sum(part.rows for part in parts)


def read_parts(spark: SparkSession, uris: Sequence[str], schema: StructType, folder: str | None = None) -> DataFrame:
    """The rows of files as a frame. The column ``folder`` is the name of their folder, as text: a queue named 2026 is no number."""
    if not uris:
        return spark.createDataFrame([], schema)
    if all(uri.startswith("file://") for uri in uris):
        reader = spark.read.schema(schema)
        if folder is not None:
            reader = reader.option("basePath", uris[0].partition(f"/{folder}=")[0])
        return reader.parquet(*uris)
    tasks = spark.range(0, len(uris), 1, len(uris))
    return tasks.mapInArrow(partial(_read, tuple(uris), tuple(schema.fieldNames()), folder), schema)


def columns_of_file(place: Place) -> dict[str, str]:
    """The columns of a Parquet file, with Spark's types."""
    from pyspark.sql.pandas.types import from_arrow_schema

    with place.opened() as source:
        schema = from_arrow_schema(pq.read_schema(source))
    return {field.name: field.dataType.simpleString() for field in schema.fields}


def read_table(spark: SparkSession, folder: Place, schema: StructType) -> DataFrame:
    """The rows of a table without folders."""
    return read_parts(spark, [found.place.uri for found in folder.below_it(".parquet")], schema)


def _write(root: Place, folder: str | None, name: str, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    from pyspark import TaskContext

    context = TaskContext.get()
    stem = f"{name}-{0 if context is None else context.partitionId():05d}-{uuid4().hex}"
    with ExitStack() as stack:
        file: _PartFile | None = None
        for batch in batches:
            for value, rows in _by_folder(batch, folder):
                if file is not None and value != file.folder:
                    yield file.finish()
                    file = None
                if file is None:
                    file = stack.enter_context(_PartFile(root, stem, folder, value))
                file.add(rows)
        if file is not None:
            yield file.finish()


class _PartFile(ExitStack):
    """A file that is being written. When the block is left before it is finished, it is given up."""

    def __init__(self, root: Place, stem: str, column: str | None, folder: str | None) -> None:
        super().__init__()
        self.folder = folder
        here = root if column is None else root / f"{column}={escaped(str(folder))}"
        self._place = here / f"{stem}.parquet"
        self._waiting: list[pa.RecordBatch] = []
        self._writer: pq.ParquetWriter | None = None
        self._sink: Any = None
        self._rows = 0

    def add(self, rows: pa.RecordBatch) -> None:
        self._waiting.append(rows)
        self._rows += rows.num_rows
        if sum(one.num_rows for one in self._waiting) >= GROUP_ROWS:
            self._write()

    def _write(self) -> None:
        table = pa.Table.from_batches(self._waiting)
        if self._writer is None:
            file = self.enter_context(self._place.writing())
            self._sink = file if isinstance(file, pa.NativeFile) else pa.PythonFile(file, mode="w")
            self._writer = pq.ParquetWriter(self._sink, table.schema, compression=COMPRESSION, store_schema=False)
        self._writer.write_table(table)
        self._waiting = []

    def finish(self) -> pa.RecordBatch:
        """Write the rest; the file is at its place then. Return what is known of it."""
        if self._waiting or self._writer is None:
            self._write()
        assert self._writer is not None
        self._writer.close()
        size = self._sink.tell()
        self.close()
        told = {"folder": [self.folder], "uri": [self._place.uri], "rows": [self._rows], "bytes": [size]}
        return pa.RecordBatch.from_pydict(
            told,
            schema=pa.schema(
                [("folder", pa.string()), ("uri", pa.string()), ("rows", pa.int64()), ("bytes", pa.int64())]
            ),
        )


def _by_folder(batch: pa.RecordBatch, folder: str | None) -> Iterator[tuple[str | None, pa.RecordBatch]]:
    if folder is None:
        yield None, batch
        return
    names = batch.column(folder)
    rest = batch.drop_columns([folder])
    for value in pc.unique(names).to_pylist():
        yield value, rest.filter(pc.equal(names, value))


def _read(
    uris: Sequence[str], names: Sequence[str], folder: str | None, batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        for number in batch.column("id").to_pylist():
            place = Place(uris[number])
            with place.opened() as source, pq.ParquetFile(source) as opened:
                for rows in opened.iter_batches(GROUP_ROWS, columns=[name for name in names if name != folder]):
                    value = unquote(place.parent.name.partition("=")[2])
                    columns = [
                        pa.repeat(pa.scalar(value), rows.num_rows) if name == folder else rows.column(name)
                        for name in names
                    ]
                    yield pa.RecordBatch.from_arrays(columns, list(names))


def _arrow_schema(schema: StructType) -> pa.Schema:
    from pyspark.sql.pandas.types import to_arrow_schema

    return to_arrow_schema(schema, timezone="UTC")


def drop_others(folder: Place, parts: Sequence[Part]) -> None:
    """Delete the files of tasks that were tried again."""
    mine = {part.uri for part in parts}
    for found in folder.below_it(".parquet"):
        if found.place.uri not in mine:
            found.place.delete()


def replace_folder(fresh: Place, target: Place) -> None:
    """Put a local folder in place of another. After an interruption, calling it again does the rest."""
    if not fresh.local.exists():
        return
    there, old = target.local, target.local.with_name(f"_{target.name}.old")
    shutil.rmtree(old, ignore_errors=True)
    there.parent.mkdir(parents=True, exist_ok=True)
    if there.exists():
        there.rename(old)
    fresh.local.rename(there)
    sync(there.parent)
    shutil.rmtree(old, ignore_errors=True)
