"""One table over the lake and the log: messages up to the archive's position come from the lake, later ones from the log, each once.

The lake has a message by its queue, generation and seq, whatever file it is in. So a task that finds a file gone (compaction deleted it)
looks for the same seqs again in the files that are there then; and one that finds messages gone from the log, because retention was
quicker, looks for them in the lake, which had them before.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from functools import cached_property, partial
from typing import NamedTuple

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from skep.errors import Code, SkepError
from skep.spark.lake.files import LakeFile
from skep.spark.lake.opening import view_of
from skep.spark.lake.place import place_of
from skep.spark.lake.reading import RowChoice, chosen_rows, last_instant, rows_of_file
from skep.spark.lake.rows import LAKE
from skep.spark.lake.sealed import Opening
from skep.spark.lake.table import Archived, LakeView
from skep.spark.lake.tombstones import Seqs, obeyed
from skep.spark.options import LakeOptions, SourceOptions
from skep.wire.forgetting import TombstoneView
from skep.wire.log import LogBoundsResponse as Bounds
from skep.wire.times import to_instant

TRIES = 5
"""How often the files of some seqs are looked up anew when one of them is gone."""


class LakePart(NamedTuple):
    """Seqs of a queue that the lake has, and the files that had them when the read was planned."""

    queue: str
    generation: int
    first: int
    last: int
    files: tuple[LakeFile, ...]
    forgotten: tuple[Seqs, ...] = ()
    """Those of them whose messages were forgotten, as far as the lake still has them."""


class LakeIndex:
    """The lake as it was when this was made: how far each queue is in it, and the files of each.

    ``forgotten`` asks the server for the seqs of a queue that were forgotten after a position.
    """

    def __init__(
        self, lake: LakeOptions, tenant: str, forgotten: Callable[[str, int], Iterable[TombstoneView]]
    ) -> None:
        self._place = place = place_of(lake.uri)
        self._open = partial(view_of, place, tenant, lake.catalog)
        self._view: LakeView = self._open()
        self._files: dict[str, list[LakeFile]] = {}
        self._archived: dict[str, Archived | None] = {}
        self._obeyed = obeyed(place)
        self._ask_forgotten = forgotten
        self._forgotten: dict[tuple[str, int], list[Seqs]] = {}

    @cached_property
    def queues(self) -> frozenset[str]:
        """The queues with messages in the lake."""
        return frozenset(file.queue for file in self._view.files())

    def archived(self, bounds: Bounds) -> Archived | None:
        """How far the lake has the present log of a queue; None when it has nothing of it."""
        if bounds.queue not in self._archived:
            self._archived[bounds.queue] = self._view.archived(bounds.queue)
        found = self._archived[bounds.queue]
        if found is None and bounds.queue in self.queues:
            raise SkepError(
                Code.INVALID_REQUEST,
                f"the lake has messages of {bounds.queue}, and does not say how far they go: it is the lake of another tenant, or one "
                "that an earlier version wrote. Correct the tenant, or run the archive once: skep pipeline run archive",
            )
        return found if found is not None and found.log == bounds.log else None

    def is_behind(self, bounds: Bounds) -> bool:
        """Whether messages between the lake and the log are gone, as far as this index knows."""
        found = self.archived(bounds)
        return found is not None and found.through + 1 < bounds.first_seq

    def is_ahead(self, bounds: Bounds) -> bool:
        """Whether the lake has seqs that the log does not have yet: it took them from a log of which the server has an older state."""
        found = self.archived(bounds)
        return found is not None and found.through > bounds.last_seq

    def restored(self, bounds: Bounds) -> SkepError:
        """The error of a lake that is ahead of its server."""
        found = self.archived(bounds)
        return SkepError(
            Code.INVALID_REQUEST,
            f"the lake {self._place} has {bounds.queue} up to seq {None if found is None else found.through}, but the server's log ends at "
            f"{bounds.last_seq}: it was restored from a backup, and gives the same seqs to other messages. Read without the option lake, "
            "and name another --lake for the archive",
        )

    def widened(self, bounds: Bounds) -> Bounds:
        """The bounds of lake and log together. Messages between the two may be gone: whoever reads them finds that out."""
        found = self.archived(bounds)
        if found is None:
            return bounds
        first = min((file.first_seq for file in self.files(bounds.queue, found.generation)), default=bounds.first_seq)
        return msgspec.structs.replace(bounds, first_seq=min(first, bounds.first_seq))

    def files(self, queue: str, generation: int) -> list[LakeFile]:
        """The files of a queue, in the order of their seqs."""
        if queue not in self._files:
            self._files[queue] = sorted(self._view.files(queues=[queue]), key=lambda file: file.first_seq)
        return [file for file in self._files[queue] if file.generation in (generation, None)]

    def part(self, bounds: Bounds, generation: int, first: int, last: int) -> LakePart:
        """Some seqs of a queue, and the files that have them."""
        found = [
            file for file in self.files(bounds.queue, generation) if file.first_seq <= last and file.last_seq >= first
        ]
        forgotten = [one for one in self._left(bounds, generation) if one.first <= last and one.last >= first]
        return LakePart(bounds.queue, generation, first, last, tuple(found), tuple(forgotten))

    def _left(self, bounds: Bounds, generation: int) -> list[Seqs]:
        """What the server has forgotten, and the lake not yet."""
        log, position = self._obeyed.get(bounds.queue, (bounds.log, 0))
        after = position if log == bounds.log else 0
        if bounds.forgotten <= after:
            return []
        key = (bounds.queue, bounds.forgotten)
        if key not in self._forgotten:
            told = self._ask_forgotten(bounds.queue, after)
            self._forgotten[key] = [Seqs(generation, one.first_seq, one.last_seq) for one in told]
        return self._forgotten[key]

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
        for _ in range(TRIES):
            try:
                return self._first_seq_at(bounds.queue, archived.generation, to_instant(at))
            except FileNotFoundError:  # compaction has deleted it
                self._view, self._files = self._open(), {}
        return self._first_seq_at(bounds.queue, archived.generation, to_instant(at))

    def _first_seq_at(self, queue: str, generation: int, micros: int) -> int | None:
        found = self.files(queue, generation)
        # `created_at` never falls along a log. A file of several generations says nothing of one of them.
        plain = all(file.generation is not None for file in found)
        begin = bisect_left(found, True, key=lambda file: last_instant(file) >= micros) if plain else 0
        for file in found[begin:]:
            for rows in rows_of_file(file, ("generation", "seq", "created_at"), since=micros):
                is_later = pc.greater_equal(rows.column("created_at").cast(pa.int64()), micros)
                later = rows.filter(pc.and_(is_later, pc.equal(rows.column("generation"), generation)))
                if later.num_rows:
                    return int(pc.min(later.column("seq")).as_py())
        return None


def _values(options: SourceOptions) -> Mapping[str, Sequence[str]]:
    """The values that the rows of a read must have."""
    wanted = {"partition": options.partitions, "transaction_id": options.transaction_ids, "trace_id": options.trace_ids}
    return {name: values for name, values in wanted.items() if values}


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
    chosen = RowChoice(
        generation=part.generation, first=seqs[0], last=seqs[1], values=_values(options), forgotten=part.forgotten
    )
    names = [name for name in schema.names if name in LAKE.names]
    read = dict.fromkeys([*names, "seq", *(["payload_bytes"] if "payload" in names else [])])
    opening = Opening(options.connection, options.fail_on_shredded)
    for rows in chosen_rows(file, tuple(read), chosen, opening):
        last = int(rows.column("seq")[-1].as_py())
        yield last, pa.RecordBatch.from_arrays([_column(rows, field) for field in schema], schema=schema)


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
