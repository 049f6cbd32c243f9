"""What Spark's executors do for the lake: they fetch messages from the server, or read files of the lake, and write files.

The rows go through no Java and never to the driver. It gets a line about each file that was written, and commits them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Protocol

import msgspec
import pyarrow as pa
from msgspec import Struct

from skep.spark.lake.files import FilePlan, LakeFile, write_files
from skep.spark.lake.reading import rows_of_file

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

WRITTEN = "file string"


class RowSource(Protocol):
    """The rows that one task writes."""

    def rows(self) -> Iterator[pa.RecordBatch]:
        """Rows of the lake."""


class FileRows(Struct, frozen=True):
    """Files of the lake, whose rows go into new files, in the order of their seqs."""

    files: Sequence[LakeFile]

    def rows(self) -> Iterator[pa.RecordBatch]:
        for file in sorted(self.files, key=lambda one: (one.generation or 0, one.first_seq)):
            yield from rows_of_file(file)


def written(spark: SparkSession, sources: Sequence[RowSource], plan: FilePlan) -> list[LakeFile]:
    """Let Spark write the rows of each source in a task of its own; return the files that came of it."""
    if not sources:
        return []
    tasks = spark.range(0, len(sources), 1, len(sources))
    found = tasks.mapInArrow(partial(_write, list(sources), plan), WRITTEN).collect()
    return [msgspec.json.decode(row["file"], type=LakeFile) for row in found]


def _write(sources: Sequence[RowSource], plan: FilePlan, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        for number in batch.column("id").to_pylist():
            files = write_files(sources[number].rows(), plan)
            told = [msgspec.json.encode(file).decode() for file in files]
            yield pa.RecordBatch.from_pydict({"file": pa.array(told, pa.string())})
