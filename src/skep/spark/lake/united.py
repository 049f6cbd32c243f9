"""One table over the lake and the log: messages up to the archive's position come from the lake, later ones from the log, each once.

The lake has a message by its queue, generation and seq, whatever file it is in. So a task that finds a file gone (compaction deleted it)
looks for the same seqs again in the files that are there then; and one that finds messages gone from the log, because retention was
quicker, looks for them in the lake, which had them before.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import NamedTuple

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from skep.spark.columns.instants import micros_of
from skep.spark.lake.files import LakeFile
from skep.spark.lake.opening import view_of
from skep.spark.lake.place import place_of
from skep.spark.lake.reading import rows_of_file
from skep.spark.lake.rows import LAKE
from skep.spark.lake.sealed import Opening
from skep.spark.lake.table import Archived, LakeView
from skep.spark.options import LakeOptions, SourceOptions
from skep.wire.log import LogBoundsResponse as Bounds

TRIES = 5
"""How often the files of some seqs are looked up anew when one of them is gone."""


class LakePart(NamedTuple):
    """Seqs of a queue that the lake has, and the files that had them when the read was planned."""

    queue: str
    generation: int
    first: int
    last: int
    files: tuple[LakeFile, ...]


class LakeIndex:
    """The lake as it was when this was made: how far each queue is in it, and the files of each."""

    def __init__(self, lake: LakeOptions, tenant: str) -> None:
        self._view: LakeView = view_of(place_of(lake.uri), tenant, lake.catalog)
        self._files: dict[str, list[LakeFile]] = {}

    def archived(self, bounds: Bounds) -> Archived | None:
        """How far the lake has the present log of a queue; None when it has nothing of it."""
        found = self._view.archived(bounds.queue)
        return found if found is not None and found.log == bounds.log else None

    def is_behind(self, bounds: Bounds) -> bool:
        """Whether messages between the lake and the log are gone, as far as this index knows."""
        found = self.archived(bounds)
        return found is not None and found.through + 1 < bounds.first_seq

    def widened(self, bounds: Bounds) -> Bounds:
        """The bounds of lake and log together. When messages between the two are gone, the log's own."""
        found = self.archived(bounds)
        if found is None or self.is_behind(bounds):
            return bounds
        first = min((file.first_seq for file in self.files(bounds.queue, found.generation)), default=bounds.first_seq)
        return msgspec.structs.replace(bounds, first_seq=min(first, bounds.first_seq))

    def files(self, queue: str, generation: int) -> list[LakeFile]:
        """The files of a queue, in the order of their seqs."""
        if queue not in self._files:
            self._files[queue] = sorted(self._view.files(queues=[queue]), key=lambda file: file.first_seq)
        return [file for file in self._files[queue] if file.generation in (generation, None)]

    def part(self, queue: str, generation: int, first: int, last: int) -> LakePart:
        """Some seqs of a queue, and the files that have them."""
        found = [file for file in self.files(queue, generation) if file.first_seq <= last and file.last_seq >= first]
        return LakePart(queue, generation, first, last, tuple(found))

    def last_seq_within(self, bounds: Bounds, first: int, most_bytes: int) -> int | None:
        """The last seq of the lake up to which the files, from some seq on, have about so many bytes, at least that seq. None when
        the lake does not have the first seq.
        """
        found = self.archived(bounds)
        if found is None or first > found.through:
            return None
        last, left = first, float(most_bytes)
        for file in self.files(bounds.queue, found.generation):
            if file.last_seq < first:
                continue
            rows = file.last_seq - file.first_seq + 1
            fit = int(left // (file.bytes / rows))
            begin = max(first, file.first_seq)
            if fit < file.last_seq - begin + 1:
                return max(last, begin + fit - 1)
            last, left = file.last_seq, left - file.bytes * (file.last_seq - begin + 1) / rows
        return last

    def first_seq_at(self, bounds: Bounds, at: datetime) -> int | None:
        """The seq of the first message of the lake that was pushed at or after a time; None when there is none."""
        archived = self.archived(bounds)
        if archived is None:
            return None
        micros, day, generation = micros_of(at), at.astimezone(UTC).date().isoformat(), archived.generation
        for file in self.files(bounds.queue, generation):
            if file.date < day or (file.last_at is not None and file.last_at < micros):
                continue
            for rows in rows_of_file(file, ("generation", "seq", "created_at")):
                is_later = pc.greater_equal(rows.column("created_at").cast(pa.int64()), micros)
                later = rows.filter(pc.and_(is_later, pc.equal(rows.column("generation"), generation)))
                if later.num_rows:
                    return int(pc.min(later.column("seq")).as_py())
        return None


def _chosen(options: SourceOptions) -> Mapping[str, pa.Array]:
    """The values that the rows of a read must have."""
    wanted = {"partition": options.partitions, "transaction_id": options.transaction_ids, "trace_id": options.trace_ids}
    return {name: pa.array(values, pa.string()) for name, values in wanted.items() if values}


def lake_messages(options: SourceOptions, schema: pa.Schema, part: LakePart) -> Iterator[pa.RecordBatch]:
    """The messages of a part, with the columns that Spark wants: the same ones each time."""
    for file in part.files:
        first, last = max(part.first, file.first_seq), min(part.last, file.last_seq)
        yield from _of_file(options, schema, part, file, (first, last), TRIES)


def _of_file(
    options: SourceOptions, schema: pa.Schema, part: LakePart, file: LakeFile, seqs: tuple[int, int], tries: int
) -> Iterator[pa.RecordBatch]:
    """The messages of a file with some seqs. Of one that is gone, the same messages from the files that have them now."""
    done = seqs[0] - 1
    try:
        for last, rows in _rows(options, schema, part, file, seqs):
            yield rows
            done = last
        return
    except FileNotFoundError:
        if not tries:
            raise
    assert options.lake is not None
    view = view_of(place_of(options.lake.uri), options.connection.tenant, options.lake.catalog)
    # A file has all messages of its queue and day between its first and its last seq.
    for other in sorted(view.files([file.folder]), key=lambda one: one.first_seq):
        if other.generation in (part.generation, None) and other.first_seq <= seqs[1] and other.last_seq > done:
            left = max(done + 1, other.first_seq), min(seqs[1], other.last_seq)
            yield from _of_file(options, schema, part, other, left, tries - 1)


def _rows(
    options: SourceOptions, schema: pa.Schema, part: LakePart, file: LakeFile, seqs: tuple[int, int]
) -> Iterator[tuple[int, pa.RecordBatch]]:
    """The rows that are meant, each batch with its last seq."""
    names = [name for name in schema.names if name in LAKE.names]
    chosen = _chosen(options)
    read = dict.fromkeys([*names, "seq", "generation", *chosen, *(["payload_bytes"] if "payload" in names else [])])
    opening = Opening(options.connection, options.fail_on_shredded)
    for rows in rows_of_file(file, tuple(read), between=seqs, opening=opening):
        is_meant = pc.and_(
            pc.equal(rows.column("generation"), part.generation),
            pc.and_(pc.greater_equal(rows.column("seq"), seqs[0]), pc.less_equal(rows.column("seq"), seqs[1])),
        )
        for name, values in chosen.items():
            is_meant = pc.and_kleene(is_meant, pc.is_in(rows.column(name), values))
        meant = rows.filter(is_meant)
        if meant.num_rows:
            last = int(meant.column("seq")[-1].as_py())
            yield last, pa.RecordBatch.from_arrays([_column(meant, field) for field in schema], schema=schema)


def _column(rows: pa.RecordBatch, field: pa.Field) -> pa.Array:
    if field.name == "payload":
        other = rows.column("payload_bytes")
        whole = rows.column("payload")
        if other.null_count == len(other):
            return whole
        both = pc.coalesce(whole.cast(pa.binary()), other)
        # Spark's strings are bytes, which are not validated here.
        return pa.Array.from_buffers(pa.string(), len(both), both.buffers(), both.null_count, both.offset)
    if field.name not in rows.schema.names:
        return pa.nulls(rows.num_rows, field.type)
    return rows.column(field.name).cast(field.type)


def split_at(first: int, last: int, archived: Archived | None) -> Sequence[tuple[int, int, bool]]:
    """The seqs of a read, cut where the lake ends: first, last, and whether they are in the lake."""
    through = 0 if archived is None else archived.through
    parts = [(first, min(last, through), True), (max(first, through + 1), last, False)]
    return [part for part in parts if part[0] <= part[1]]
