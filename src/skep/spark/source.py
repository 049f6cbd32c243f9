"""`spark.read.format("skep")`: a queue as a table. Its log is split into even ranges of seqs, whatever its partitions are."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition

from skep.spark import planning
from skep.spark.link import Link, Log, link
from skep.spark.offsets import Stretch, split, stretches
from skep.spark.options import SourceOptions
from skep.spark.schema import rows_of


class Portion(InputPartition):
    """What one task reads."""

    def __init__(self, stretch: Stretch) -> None:
        super().__init__(stretch)
        self.stretch = stretch


class MessageReader(DataSourceReader):
    """Reads what the log holds between two offsets, which are settled when the read is planned."""

    def __init__(self, options: SourceOptions, schema: pa.Schema) -> None:
        self._options = options
        self._schema = schema

    def partitions(self) -> list[InputPartition]:
        """Even portions of what is there."""
        options = self._options
        server = link(options.connection)
        bounds = {queue: planning.bounds_of(server, queue) for queue in planning.subscribed(server, options)}
        start = planning.starting(server, options, bounds)
        start = {queue: planning.check_kept(options, queue, start[queue], bounds[queue]) for queue in start}
        end = planning.ending(server, options, bounds)
        return portions(split(stretches(start, end), options.min_partitions))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The messages of a portion."""
        if isinstance(partition, Portion):
            yield from messages(link(self._options.connection), self._options, self._schema, partition.stretch)


def portions(parts: list[Stretch]) -> list[InputPartition]:
    """What the tasks are told."""
    return [Portion(part) for part in parts]


def messages(server: Link, options: SourceOptions, schema: pa.Schema, stretch: Stretch) -> Iterator[pa.RecordBatch]:
    """The messages of a stretch as Spark takes them; always the same for the same stretch."""
    expected = stretch.first
    columns = tuple(dict.fromkeys(("seq", *(name for name in schema.names if name != "queue"))))
    for first in range(stretch.first, stretch.last + 1, options.fetch_rows):
        log = Log(
            queue=stretch.queue, first=first, last=min(stretch.last, first + options.fetch_rows - 1),
            columns=columns, partitions=options.partitions, compression=options.compression,
        )  # fmt: skip
        for batch in server.read(log):
            found = batch.column("seq")[0].as_py()
            if found > expected and not options.partitions:
                check_gap(server, options, stretch.queue, expected, found)
            expected = batch.column("seq")[-1].as_py() + 1
            yield rows_of(batch, stretch.queue, schema)
    if expected <= stretch.last and not options.partitions:
        check_gap(server, options, stretch.queue, expected, stretch.last + 1)


def check_gap(server: Link, options: SourceOptions, queue: str, expected: int, found: int) -> None:
    """Seqs are missing: lost if the log begins later by now, else taken out one by one, as dead letters are by a replay."""
    first_seq = planning.bounds_of(server, queue).first_seq
    if first_seq > expected:
        planning.lose(options, planning.lost(queue, expected, min(first_seq, found) - 1))
