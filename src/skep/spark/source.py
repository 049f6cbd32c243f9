"""`spark.read.format("skep")`: a queue as a table. Its log is split into even ranges of seqs, whatever its partitions are."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping, Sequence
from typing import NamedTuple

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition

from skep.spark import offset_ranges
from skep.spark.link import Link, Log, link
from skep.spark.offsets import QueueStretch, packed, split, stretches
from skep.spark.options import SourceOptions
from skep.spark.schema import rows_of
from skep.wire.log import LogBoundsResponse as Bounds


class QueuePart(NamedTuple):
    """Seqs of one queue, and the log they belong to."""

    stretch: QueueStretch
    log: int


class Portion(InputPartition):
    """The input of one task: a part of a large queue, or many small queues."""

    def __init__(self, parts: Sequence[QueuePart]) -> None:
        super().__init__(tuple(parts))
        self.parts = tuple(parts)


class MessageReader(DataSourceReader):
    """Reads the log between two offsets, which are fixed when the read is planned."""

    def __init__(self, options: SourceOptions, schema: pa.Schema) -> None:
        self._options = options
        self._schema = schema

    def partitions(self) -> list[InputPartition]:
        """Even portions of the log's range."""
        server = link(self._options.connection)
        options, bounds = offset_ranges.looked(server, self._options)
        start = offset_ranges.starting(server, options, bounds)
        start = {queue: offset_ranges.check_kept(options, queue, start[queue], bounds[queue]) for queue in start}
        end = offset_ranges.ending(server, options, bounds)
        return portions(stretches(start, end), options.min_partitions, bounds)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The messages of a portion; this runs in a task."""
        if isinstance(partition, Portion):
            yield from messages(link(self._options.connection), self._options, self._schema, partition)


def portions(whole: list[QueueStretch], at_least: int | None, bounds: Mapping[str, Bounds]) -> list[InputPartition]:
    """The input of each task."""
    tasks = packed(split(whole, at_least), at_least)
    return [Portion([QueuePart(one, bounds[one.queue].log) for one in task]) for task in tasks]


def messages(server: Link, options: SourceOptions, schema: pa.Schema, portion: Portion) -> Iterator[pa.RecordBatch]:
    """The messages of a portion as Spark takes them: the same ones each time."""
    unread: dict[QueuePart, int] = {}
    for part in portion.parts:
        unread[part] = yield from _messages(server, options, schema, part)
    check_read(server, options, unread)


def _messages(
    server: Link, options: SourceOptions, schema: pa.Schema, part: QueuePart
) -> Generator[pa.RecordBatch, None, int]:
    """Yield the messages of a part; return the first seq that was not read."""
    stretch = part.stretch
    expected = stretch.first
    columns = tuple(dict.fromkeys(("seq", *(name for name in schema.names if name != "queue"))))
    for first in range(stretch.first, stretch.last + 1, options.fetch_rows):
        log = Log(
            queue=stretch.queue, first=first, last=min(stretch.last, first + options.fetch_rows - 1),
            columns=columns, partitions=options.partitions, transaction_ids=options.transaction_ids,
            trace_ids=options.trace_ids, compression=options.compression,
        )  # fmt: skip
        for batch in server.read(log):
            found = batch.column("seq")[0].as_py()
            if found > expected:
                check_read(server, options, {part: expected}, found - 1)
            expected = batch.column("seq")[-1].as_py() + 1
            yield rows_of(batch, stretch.queue, schema)
    return expected


def check_read(
    server: Link, options: SourceOptions, unread: Mapping[QueuePart, int], through: int | None = None
) -> None:
    """Report messages that were removed before they were read: with the whole log, or because the log now begins after the first
    unread seq of a part. ``through`` is the last seq that is meant; by default it is the last one of the part.

    Other missing seqs are no loss: they belong to other partitions, or were removed one by one, as a replay does with dead letters.
    All parts are checked together, so that thousands of small queues need only a few requests.
    """
    all_bounds = server.bounds_of(list({part.stretch.queue: None for part in unread}))
    for part, first in unread.items():
        queue, last = part.stretch.queue, part.stretch.last if through is None else through
        bounds = all_bounds.get(queue)
        if bounds is None:
            offset_ranges.lose(options, offset_ranges.deleted(queue))
        elif bounds.log != part.log:
            offset_ranges.lose(options, offset_ranges.remade(queue, first - 1))
        elif first <= last and bounds.first_seq > first:
            offset_ranges.lose(options, offset_ranges.lost(queue, first, min(bounds.first_seq - 1, last)))
