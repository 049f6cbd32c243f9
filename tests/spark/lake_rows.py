"""Rows of the lake without a server: messages of one queue, made in the task that writes them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
from msgspec import Struct
from pyspark.sql import SparkSession

from skep.spark.lake.reading import frame_of
from skep.spark.lake.rows import lake_rows
from skep.spark.lake.table import Lake, append
from skep.spark.schema import MESSAGES
from tests.spark.frames import message


class Rows(Struct, frozen=True):
    """The messages with some seqs, pushed a second after each other."""

    queue: str
    first: int
    last: int
    generation: int = 1

    def rows(self) -> Iterator[pa.RecordBatch]:
        numbers = range(self.first, self.last + 1)
        made = [message(self.queue, seq, seq, payload=f'{{"n": {seq}}}') for seq in numbers]
        yield lake_rows(pa.RecordBatch.from_pylist(made, MESSAGES), {self.queue: self.generation})


class Given(Struct, frozen=True):
    """Some messages of the first generation, as `tests.spark.frames.message` makes them."""

    messages: list[dict[str, Any]]

    def rows(self) -> Iterator[pa.RecordBatch]:
        yield lake_rows(pa.RecordBatch.from_pylist(self.messages, MESSAGES), {})


def add(spark: SparkSession, lake: Lake, *rows: Rows) -> int:
    """Add messages, each in a task of its own; return their number."""
    through: dict[str, int] = {}
    for one in rows:
        through[one.queue] = max(one.last, through.get(one.queue, 0))
    return sum(file.rows for file in append(spark, lake, rows, through))


def seqs(spark: SparkSession, lake: Lake, queue: str = "orders") -> list[int]:
    return sorted(row["seq"] for row in frame_of(spark, lake.files(queues=[queue]), ("seq",)).collect())
