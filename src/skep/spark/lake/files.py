"""The files of the table of messages: what is known of each, and how the rows of one task become files.

A file has messages of one queue and one day. It is written by one task, straight to its place, and counts only once the lake has
committed it. A task that is tried again writes files of other names.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from datetime import date
from types import TracebackType
from uuid import uuid4

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from msgspec import Struct

from skep.spark.lake.place import Place
from skep.spark.lake.rows import DATA_KEY, KEPT, by_folder

TARGET_BYTES = 256 * 1024**2
"""About the size of a large file."""
ROW_GROUP_ROWS = 128 * 1024
ROW_GROUP_BYTES = 64 * 1024**2
OPEN_FILES = 64
"""The most files that a task has open: those of a queue whose messages of many days come together."""
DICTIONARIES = ("partition", "generation", DATA_KEY, "headers.key_value.key", "headers.key_value.value")
"""The columns with repeated values. A dictionary for the others would be a tenth of the work of writing, for nothing."""
STATISTICS = ("queue", "generation", "partition", "seq", "transaction_id", "trace_id", "created_at", DATA_KEY)
"""The columns by whose smallest and largest values readers skip files."""
COMPRESSION = "zstd"
ESCAPED = frozenset("\"#%'*/:=?\\\x7f{[]^") | frozenset(map(chr, range(0x20)))
"""What Spark and Hive write as %XX in the name of a folder."""


class LakeFile(Struct, frozen=True, kw_only=True):
    """A file of messages of one queue and one day."""

    uri: str
    queue: str
    date: str
    generation: int | None
    """None where a file of an earlier version has several."""
    first_seq: int
    last_seq: int
    first_at: int | None = None
    """The earliest and the latest push, in microseconds."""
    last_at: int | None = None
    rows: int
    bytes: int

    @property
    def folder(self) -> tuple[str, str]:
        return (self.queue, self.date)

    @property
    def place(self) -> Place:
        return Place(self.uri)


class FilePlan(Struct, frozen=True):
    """Where and how a task writes its files."""

    root: Place
    """The folder above those of queues."""
    stem: str
    """The beginning of the files' names."""
    columns: Sequence[str] = tuple(KEPT.names)
    """The columns of a file. The others are in the names of its folders."""


def folder_name(queue: str, day: str) -> str:
    """The folder of a queue and a day, as Spark and Hive name it."""
    return f"queue={escaped(queue)}/date={day}"


def escaped(value: str) -> str:
    return "".join(f"%{ord(one):02X}" if one in ESCAPED else one for one in value)


def write_files(batches: Iterable[pa.RecordBatch], plan: FilePlan) -> Iterator[LakeFile]:
    """Write rows of the lake, in any order of queues and days; yield each file as it is finished."""
    with _OpenFiles(plan) as opened:
        for batch in batches:
            for queue, day, rows in by_folder(batch):
                yield from opened.room_for(queue, day)
                opened.files[queue, day].add(rows)
                if opened.files[queue, day].is_large:
                    yield opened.finished(queue, day)
        for queue, day in list(opened.files):
            yield opened.finished(queue, day)


class _OpenFiles:
    """The files that a task is writing, the one that was written to last at the end."""

    def __init__(self, plan: FilePlan) -> None:
        self._plan = plan
        self.files: dict[tuple[str, date], _OpenFile] = {}

    def __enter__(self) -> _OpenFiles:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Give up what is not finished."""
        for file in self.files.values():
            file.give_up(kind, error, traceback)

    def room_for(self, queue: str, day: date) -> Iterator[LakeFile]:
        """Open the file of a queue and a day; finish the files of other queues, and the oldest one when there are too many."""
        mine = self.files.pop((queue, day), None)
        for other in [key for key in self.files if key[0] != queue]:
            yield self.finished(*other)
        if mine is None and len(self.files) >= OPEN_FILES:
            yield self.finished(*next(iter(self.files)))
        self.files[queue, day] = _OpenFile(self._plan, queue, day) if mine is None else mine

    def finished(self, queue: str, day: date) -> LakeFile:
        return self.files.pop((queue, day)).finish()


class _OpenFile:
    """A file that is being written, by row groups."""

    def __init__(self, plan: FilePlan, queue: str, day: date) -> None:
        self._queue, self._date = queue, day.isoformat()
        name = f"{plan.stem}-{uuid4().hex}.parquet"
        self._place = plan.root / folder_name(queue, self._date) / name
        self._columns = list(plan.columns)
        self._stack = ExitStack()
        self._writer: pq.ParquetWriter | None = None
        self._sink: pa.NativeFile | None = None
        self._waiting: list[pa.RecordBatch] = []
        self._rows = self._bytes = 0
        self._seqs: list[int] = []
        self._instants: list[int] = []
        self._generations: set[int] = set()
        self.rows = 0

    @property
    def is_large(self) -> bool:
        return self._sink is not None and self._sink.tell() >= TARGET_BYTES

    def add(self, rows: pa.RecordBatch) -> None:
        for name, into in (("seq", self._seqs), ("created_at", self._instants)):
            column = rows.column(name)
            ends = pc.min_max(column.cast(pa.int64()))
            into[:] = [min([ends["min"].as_py(), *into[:1]]), max([ends["max"].as_py(), *into[1:]])]
        self._generations.update(pc.unique(rows.column("generation")).to_pylist())
        self.rows += rows.num_rows
        self._rows += rows.num_rows
        self._bytes += rows.nbytes
        self._waiting.append(rows.select(self._columns))
        if self._rows >= ROW_GROUP_ROWS or self._bytes >= ROW_GROUP_BYTES:
            self._write()

    def _write(self) -> None:
        if self._writer is None:
            file = self._stack.enter_context(self._place.writing())
            self._sink = file if isinstance(file, pa.NativeFile) else pa.PythonFile(file, mode="w")
            schema = self._waiting[0].schema
            paths = set(schema.names)
            self._writer = pq.ParquetWriter(
                self._sink, schema, compression=COMPRESSION,
                use_dictionary=[one for one in DICTIONARIES if one.partition(".")[0] in paths],
                write_statistics=[one for one in STATISTICS if one in paths],
            )  # fmt: skip
        if self._waiting:
            self._writer.write_table(pa.Table.from_batches(self._waiting), row_group_size=self._rows)
        self._waiting, self._rows, self._bytes = [], 0, 0

    def finish(self) -> LakeFile:
        """Write the rest; the file is at its place then."""
        self._write()
        assert self._writer is not None
        assert self._sink is not None
        self._writer.close()
        size = self._sink.tell()
        self._stack.close()
        return LakeFile(
            uri=self._place.uri, queue=self._queue, date=self._date,
            generation=self._generations.pop() if len(self._generations) == 1 else None,
            first_seq=self._seqs[0], last_seq=self._seqs[1], first_at=self._instants[0], last_at=self._instants[1],
            rows=self.rows, bytes=size,
        )  # fmt: skip

    def give_up(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._stack.__exit__(kind or GeneratorExit, error or GeneratorExit(), traceback)
