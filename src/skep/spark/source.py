"""`spark.read.format("skep")`: a queue as a table. Its log is split into even ranges of seqs, whatever its partitions are."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition

from skep.errors import Code, SkepError
from skep.spark import planning
from skep.spark.link import Link, Log, link
from skep.spark.offsets import Stretch, split, stretches
from skep.spark.options import SourceOptions
from skep.spark.schema import rows_of
from skep.wire.log import LogBoundsResponse as Bounds


class Portion(InputPartition):
    """What one task reads, and of which log."""

    def __init__(self, stretch: Stretch, log: int) -> None:
        super().__init__(stretch)
        self.stretch = stretch
        self.log = log


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
        return portions(split(stretches(start, end), options.min_partitions), bounds)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The messages of a portion."""
        if isinstance(partition, Portion):
            yield from messages(link(self._options.connection), self._options, self._schema, partition)


def portions(parts: list[Stretch], bounds: Mapping[str, Bounds]) -> list[InputPartition]:
    """What the tasks are told."""
    return [Portion(part, bounds[part.queue].log) for part in parts]


def messages(server: Link, options: SourceOptions, schema: pa.Schema, portion: Portion) -> Iterator[pa.RecordBatch]:
    """The messages of a portion as Spark takes them; always the same for the same portion."""
    stretch = portion.stretch
    expected = stretch.first
    columns = tuple(dict.fromkeys(("seq", *(name for name in schema.names if name != "queue"))))
    for first in range(stretch.first, stretch.last + 1, options.fetch_rows):
        log = Log(
            queue=stretch.queue, first=first, last=min(stretch.last, first + options.fetch_rows - 1),
            columns=columns, partitions=options.partitions, compression=options.compression,
        )  # fmt: skip
        for batch in server.read(log):
            found = batch.column("seq")[0].as_py()
            if found > expected:
                check_read(server, options, portion, expected, found - 1)
            expected = batch.column("seq")[-1].as_py() + 1
            yield rows_of(batch, stretch.queue, schema)
    check_read(server, options, portion, expected, stretch.last)


def check_read(server: Link, options: SourceOptions, portion: Portion, first: int, last: int) -> None:
    """Notice what was taken away before it was read: the whole log, or these seqs, if it begins later by now.

    Else they are of partitions that were not asked for, or were taken out one by one, as dead letters are by a replay.
    """
    queue = portion.stretch.queue
    try:
        bounds = planning.bounds_of(server, queue)
    except SkepError as error:
        if error.code is not Code.QUEUE_NOT_FOUND:
            raise
        planning.lose(options, planning.deleted(queue))
        return
    if bounds.log != portion.log:
        planning.lose(options, planning.remade(queue, first - 1))
    elif first <= last and bounds.first_seq > first:
        planning.lose(options, planning.lost(queue, first, min(bounds.first_seq - 1, last)))
