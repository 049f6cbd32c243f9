"""The typed table of a queue in the lake, and its rejects beside it: they grow batch by batch, and each message is in one of them, once.

A batch is the messages after one seq up to another, and its files bear its number. A batch is written aside. Then the note is taken
back to where the batch begins, files of this number are removed, and the new files are moved in. The note that has the batch is
written last. So a run that is killed at any point leaves a note from which the next run writes the same batch anew.

A small batch is written anew with the messages that came since, so that there are few small files. When the type of the messages
changes, the whole table is made anew from the lake, aside, and takes the place of the old one when it has all messages.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import date
from typing import TYPE_CHECKING
from urllib.parse import quote

import msgspec
from msgspec import Struct
from pyspark.sql import Observation
from pyspark.sql import functions as F  # noqa: N812 - as everyone writes it

from skep.errors import Code, SkepError
from skep.spark.lake.frames import drop_others, replace_folder, write_frame
from skep.spark.lake.parquet import sync_all
from skep.spark.lake.place import OWN, Place, sync
from skep.spark.lake.rows import FIRST
from skep.spark.pipelines.archive import divided

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from skep.spark.pipelines.typed import Typed

ROWS, REJECTS = "typed", "rejects"
"""The folders of the tables."""
NOTE = "_typed.json"
SMALL_SEQS = 250_000
"""A batch of fewer seqs is written anew with what came since."""


class Position(Struct, frozen=True, kw_only=True):
    """A place in the messages of a queue, behind a seq of a generation, and what the table has up to there."""

    generation: int = FIRST
    seq: int = 0
    rows: int = 0
    rejects: int = 0
    day: date | None = None
    """The last day of these messages."""

    @property
    def place(self) -> tuple[int, int]:
        return self.generation, self.seq

    @property
    def messages(self) -> int:
        return self.rows + self.rejects


class TableNote(Struct, frozen=True, kw_only=True):
    """How far a typed table is."""

    made_with: str
    """The message type and the checks that its rows depend on."""
    batch: int = 0
    begun: Position = Position()
    """Where the last batch begins."""
    through: Position = Position()
    """Where it ends."""
    is_whole: bool = False
    """Whether a table that was made aside has all messages, and is to take the place of the old one."""


class TypedTable:
    """A typed table and its rejects, in two folders. One process writes at a time: it has the lock of the lake."""

    def __init__(self, rows: Place, rejects: Place, staging: Place, made_with: str) -> None:
        self._folders = {ROWS: rows, REJECTS: rejects}
        self._staging = staging
        self.note = noted(rows) or TableNote(made_with=made_with)

    def next_batch(self, most: int) -> tuple[int, Position]:
        """The number of the next batch, and where it begins: where the last one does, if that is small."""
        note = self.note
        seqs = note.through.seq - note.begun.seq
        if note.through.generation == note.begun.generation and 0 < seqs < min(SMALL_SEQS, most):
            return note.batch, note.begun
        return note.batch + 1, note.through

    def begin_generation(self, generation: int) -> None:
        """Go on with the next log of the queue, whose seqs begin at 1 again."""
        begin = msgspec.structs.replace(self.note.through, generation=generation, seq=0)
        self.note = msgspec.structs.replace(self.note, begun=begin, through=begin)

    def stage(self, found: Typed, number: int, begin: Position, seq: int) -> Position:
        """Write the rows and the rejects of a batch aside, up to a seq of the generation; return the place with the counts there.

        In an object store the files are written to their places, since they could not be moved.
        """
        self._staging.delete_all()
        if not self._staging.is_local:
            self._take_back(number, begin)
        counting = Observation()
        counts = F.count(F.lit(1)).alias("all"), F.count(found.error).alias("rejects"), F.max("date").alias("day")
        counted = replace(found, outcomes=found.outcomes.observe(counting, *counts))
        rows = self._write(ROWS, counted.rows, number, seq - begin.seq)
        # Adaptive execution takes the counting out of a plan of whose rows none are left.
        seen = counting.get if rows else found.outcomes.agg(*counts).collect()[0]
        rejects = 0
        if seen["rejects"]:  # seldom any, so the messages are read a second time for them
            rejected = found.rejects.withColumns(divided(F.col("payload")))
            rejects = self._write(REJECTS, rejected, number, seq - begin.seq)
        if (rows + rejects, rejects) != (seen["all"], seen["rejects"]):
            raise SkepError(
                Code.INTERNAL,
                f"of {seen['all']} messages {rows} would be typed and {rejects} rejected, which is not all: the table is as it was",
            )
        return Position(
            generation=begin.generation, seq=seq, rows=begin.rows + rows, rejects=begin.rejects + rejects,
            day=seen["day"] or begin.day,
        )  # fmt: skip

    def _write(self, name: str, frame: DataFrame, number: int, seqs: int) -> int:
        # As one file, if it is not too much for one task.
        whole = frame.coalesce(1) if seqs <= SMALL_SEQS else frame
        root = self._staging / name if self._staging.is_local else self._folders[name]
        parts = write_frame(whole.withColumn("date", F.col("date").cast("string")), root, "date", f"{number:010d}")
        if root.is_local:
            drop_others(root, parts)
        return sum(part.rows for part in parts)

    def _take_back(self, number: int, begin: Position) -> None:
        """Note that the table ends where a batch begins, and delete what an earlier try left of it."""
        self._save(msgspec.structs.replace(self.note, batch=number - 1, begun=begin, through=begin))
        for folder in self._folders.values():
            old = [
                found.place for found in folder.below_it(".parquet") if found.place.name.startswith(f"{number:010d}-")
            ]
            for place in old:
                place.delete()
            if folder.is_local:
                sync_all({place.local.parent for place in old})

    def commit(self, number: int, begin: Position, end: Position) -> None:
        """Put the staged batch into the table, in place of what an earlier try left there."""
        if self._staging.is_local:
            self._take_back(number, begin)
            targets = set()
            for name, folder in self._folders.items():
                for index, (file, _, _) in enumerate((self._staging / name).below_it(".parquet")):
                    target = folder / file.parent.name / f"{number:010d}-{index:04d}.parquet"
                    file.move(target)
                    targets |= {target.local.parent, folder.local}
            sync_all(targets)
        self._save(msgspec.structs.replace(self.note, batch=number, begun=begin, through=end))

    def _save(self, note: TableNote) -> None:
        for folder in self._folders.values():
            if folder.is_local and not folder.local.is_dir():
                folder.local.mkdir(parents=True)
                sync(folder.local.parent)
        (self._folders[ROWS] / NOTE).write_whole(msgspec.json.encode(note))
        self.note = note

    def delete(self) -> None:
        """Delete all rows, and the note first: then there is no table."""
        (self._folders[ROWS] / NOTE).delete()
        for folder in self._folders.values():
            folder.delete_all()

    def replace_by(self, fresh: TypedTable) -> None:
        """Let a table that was made aside take the place of this one. After an interruption, calling it again does the rest."""
        if not fresh.note.is_whole:
            fresh._save(msgspec.structs.replace(fresh.note, is_whole=True))
        for name in (REJECTS, ROWS):  # the note is beside the rows, so they are last
            replace_folder(fresh._folders[name], self._folders[name])
        self._save(msgspec.structs.replace(fresh.note, is_whole=False))


def noted(rows: Place) -> TableNote | None:
    """The note of a table; None where there is none."""
    try:
        return msgspec.json.decode((rows / NOTE).read_bytes(), type=TableNote)
    except (FileNotFoundError, msgspec.DecodeError):
        return None


class OpenedTable(Struct, frozen=True):
    """The table to write to, and the old one whose place it is to take."""

    table: TypedTable
    old: TypedTable | None = None

    def close(self) -> None:
        """The table has all messages."""
        if self.old is not None:
            self.old.replace_by(self.table)


def open_table(tables: Place, queue: str, made_with: str, held: tuple[int, int]) -> OpenedTable:
    """The typed table of a queue. One with another message type, or that is ahead of what the lake holds, is made anew: in a folder
    aside, in an object store in its place, where readers see it grow.
    """
    name, own = folder_of(queue), tables / OWN / ROWS
    aside = own / name
    fresh = TypedTable(aside / ROWS, aside / REJECTS, own / "staging", made_with)
    table = TypedTable(tables / ROWS / name, tables / REJECTS / name, own / "staging", made_with)
    if fresh.note.is_whole:  # a run was killed while it took the place of the old one
        table.replace_by(fresh)
        fresh = TypedTable(aside / ROWS, aside / REJECTS, own / "staging", made_with)
    if table.note.made_with == made_with and table.note.through.place <= held:
        aside.delete_all()
        return OpenedTable(table)
    if not tables.is_local:
        table.delete()
        return OpenedTable(TypedTable(tables / ROWS / name, tables / REJECTS / name, own / "staging", made_with))
    if fresh.note.made_with != made_with or fresh.note.through.place > held:
        aside.delete_all()
        fresh = TypedTable(aside / ROWS, aside / REJECTS, own / "staging", made_with)
    return OpenedTable(fresh, table)


def folder_of(queue: str) -> str:
    """The folder of a queue: its name, with other characters as in URLs. Readers pass over names that begin with `_` or a dot."""
    name = quote(queue, safe="")
    return f"%{ord(name[0]):02X}{name[1:]}" if name[:1] in ("_", ".") else name
