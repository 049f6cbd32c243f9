"""`spark.read.format("skep")`: a queue as a table. Its log is split into even ranges of seqs, whatever its partitions are."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, NamedTuple

import pyarrow as pa
from msgspec import structs
from pyspark.sql.datasource import DataSourceReader, InputPartition

from skep.errors import Code, SkepError
from skep.spark import offset_ranges, push_down
from skep.spark.lake.table import Archived
from skep.spark.lake.united import LakeIndex, LakePart, lake_messages, split_at
from skep.spark.link import Link, Log, link
from skep.spark.offsets import QueueStretch, packed, split, stretches
from skep.spark.options import SourceOptions
from skep.spark.schema import rows_of, without_sealed
from skep.wire.log import LogBoundsResponse as Bounds

if TYPE_CHECKING:
    from skep.spark.typed.rows import TypedRows


class QueuePart(NamedTuple):
    """Seqs of one queue, and the log they belong to."""

    stretch: QueueStretch
    log: int
    in_lake: LakePart | None = None
    """These seqs in the lake, where the read is one of both and the archive has come so far."""


class Portion(InputPartition):
    """The input of one task: a part of a large queue, or many small queues."""

    def __init__(self, parts: Sequence[QueuePart]) -> None:
        super().__init__(tuple(parts))
        self.parts = tuple(parts)


class MessageReader(DataSourceReader):
    """Reads the log between two offsets, which are fixed when the read is planned."""

    def __init__(self, options: SourceOptions, schema: pa.Schema, typed: TypedRows | None = None) -> None:
        selected = push_down.selected(options.push_down, options.partitions, options.transaction_ids, options.trace_ids)
        self.options = options if selected is None else structs.replace(options, **selected)
        self._is_empty = selected is None
        self.schema = schema
        self._typed = typed

    def partitions(self) -> list[InputPartition]:
        """Even portions of the log's range."""
        if self._is_empty:
            return []
        server = link(self.options.connection)
        options, bounds = offset_ranges.looked(server, self.options)
        lake = lake_index(options)
        bounds = widened(server, bounds, lake)
        start, end = offset_ranges.whole(server, options, bounds, lake)
        start = {queue: offset_ranges.check_kept(options, queue, start[queue], bounds[queue]) for queue in start}

        def first_seqs_at(queues: Sequence[str], at: datetime) -> dict[str, int]:
            return offset_ranges.first_seqs_at(server, {queue: bounds[queue] for queue in queues}, at, lake)

        start, end = push_down.bounded(options.push_down, start, end, first_seqs_at)
        return portions(stretches(start, end), options.min_partitions, bounds, lake)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The messages of a portion; this runs in a task."""
        if isinstance(partition, Portion):
            yield from rows(link(self.options.connection), self.options, self.schema, self._typed, partition)


def portions(
    whole: list[QueueStretch], at_least: int | None, bounds: Mapping[str, Bounds], lake: LakeIndex | None = None
) -> list[InputPartition]:
    """The input of each task. What the lake has comes from there."""
    archived = {} if lake is None else {one.queue: lake.archived(bounds[one.queue]) for one in whole}
    cut = [
        QueueStretch(one.queue, first, last)
        for one in whole
        for first, last, _ in split_at(one.first, one.last, archived.get(one.queue))
    ]
    tasks = packed(split(cut, at_least), at_least)
    return [Portion([_part(one, bounds[one.queue], archived.get(one.queue), lake) for one in task]) for task in tasks]


def _part(stretch: QueueStretch, bounds: Bounds, archived: Archived | None, lake: LakeIndex | None) -> QueuePart:
    if lake is None or archived is None or stretch.last > archived.through:
        return QueuePart(stretch, bounds.log)
    return QueuePart(stretch, bounds.log, lake.part(bounds, archived.generation, stretch.first, stretch.last))


def lake_index(options: SourceOptions) -> LakeIndex | None:
    """The lake of a read of lake and log, as it is now."""
    if options.lake is None:
        return None
    return LakeIndex(options.lake, options.connection.tenant, link(options.connection).forgotten)


def widened(server: Link, bounds: Mapping[str, Bounds], lake: LakeIndex | None) -> dict[str, Bounds]:
    """The bounds of each queue, with what the lake has of it. A lake that is ahead of the server is refused."""
    if lake is None:
        return dict(bounds)
    if ahead := [queue for queue, one in bounds.items() if lake.is_ahead(one)]:
        # Messages may have come, and have been archived, between the look at the log and that at the lake.
        for one in server.bounds_of(ahead).values():
            if lake.is_ahead(one):
                raise lake.restored(one)
    return {queue: lake.widened(one) for queue, one in bounds.items()}


def rows(
    server: Link, options: SourceOptions, schema: pa.Schema, typed: TypedRows | None, portion: Portion
) -> Iterator[pa.RecordBatch]:
    """The rows of a portion: its messages, or what the types of their queues make of them."""
    if typed is None:
        return messages(server, options, schema, portion)
    return typed.batches(messages(server, options, typed.raw(schema), portion), schema)


def messages(server: Link, options: SourceOptions, schema: pa.Schema, portion: Portion) -> Iterator[pa.RecordBatch]:
    """The messages of a portion as Spark takes them: the same ones each time."""
    unread: dict[QueuePart, int] = {}
    for part in portion.parts:
        if part.in_lake is not None:
            yield from lake_messages(options, schema, part.in_lake)
        else:
            unread[part] = yield from _messages(server, options, schema, part)
    for bounds, first, last in _lost(server, options, unread, None):
        yield from _archived_since(options, schema, bounds, first, last)


def _messages(
    server: Link, options: SourceOptions, schema: pa.Schema, part: QueuePart
) -> Generator[pa.RecordBatch, None, int]:
    """Yield the messages of a part; return the first seq that was not read."""
    stretch = part.stretch
    expected = stretch.first
    for log in requests(options, schema, stretch):
        for batch in _batches(server, log, part):
            found = batch.column("seq")[0].as_py()
            if found > expected:
                for bounds, first_lost, last_lost in _lost(server, options, {part: expected}, found - 1):
                    yield from _archived_since(options, schema, bounds, first_lost, last_lost)
            expected = batch.column("seq")[-1].as_py() + 1
            yield rows_of(batch if log.sealed != "blank" else without_sealed(batch), stretch.queue, schema)
    return expected


def _batches(server: Link, log: Log, part: QueuePart) -> Iterator[pa.RecordBatch]:
    """The batches of a range; no more of them when the queue was deleted meanwhile, of which `_lost` tells."""
    try:
        yield from server.read(log)
    except SkepError as error:
        if error.code is not Code.QUEUE_NOT_FOUND:
            raise
        bounds = server.bounds_of([log.queue]).get(log.queue)
        if bounds is not None and bounds.log == part.log:
            raise


def requests(options: SourceOptions, schema: pa.Schema, stretch: QueueStretch) -> Iterator[Log]:
    """A stretch as the ranges that are requested one after the other."""
    columns = tuple(dict.fromkeys(("seq", *(name for name in schema.names if name != "queue"))))
    sealed = options.sealed(stretch.queue) if "payload" in columns else "open"
    if sealed == "blank" and "content_type" not in columns:
        columns += ("content_type",)
    for first in range(stretch.first, stretch.last + 1, options.fetch_rows):
        yield Log(
            queue=stretch.queue, first=first, last=min(stretch.last, first + options.fetch_rows - 1),
            columns=columns, partitions=options.partitions, transaction_ids=options.transaction_ids,
            trace_ids=options.trace_ids, compression=options.compression, sealed=sealed,
        )  # fmt: skip


def _archived_since(
    options: SourceOptions, schema: pa.Schema, bounds: Bounds, first: int, last: int
) -> Iterator[pa.RecordBatch]:
    """Messages that retention removed from the log before they were read: from the lake, which had them before."""
    lake = lake_index(options)
    archived = None if lake is None else lake.archived(bounds)
    there = 0 if archived is None else min(archived.through, last)
    if lake is not None and archived is not None and first <= there:
        yield from lake_messages(options, schema, lake.part(bounds, archived.generation, first, there))
    if there < last:
        offset_ranges.lose(options, offset_ranges.lost(bounds.queue, max(first, there + 1), last))


def _lost(
    server: Link, options: SourceOptions, unread: Mapping[QueuePart, int], through: int | None
) -> Iterator[tuple[Bounds, int, int]]:
    """The bounds of the logs of which messages were removed before they were read, because the log now begins after the first unread
    seq, and the first and the last of these messages. It is an error, or a warning, when the whole log is gone. ``through`` is the last seq that is meant; by default it is the last one of the part.

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
            yield bounds, first, min(bounds.first_seq - 1, last)
