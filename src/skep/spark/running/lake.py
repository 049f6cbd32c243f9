"""The lake as Parquet: folders per queue and date that anyone can read, and one small file with the last archived seq of each queue.

Whatever happens, each message is in the lake once. A batch is written aside. Then `_skep/state.json` is replaced, which names the
batch's files and the last seqs: that is the commit. Only then are the files moved to their places; if that is interrupted, the next
run does the rest. A batch that was not committed is written again from the same seqs. There is no further checkpoint that could
be lost: the log is in order and without gaps, so the last archived seq tells what comes next.

Moving a file must be atomic and durable, so the lake is on a file system (a local or a network one); on object stores use Delta.
"""

from __future__ import annotations

import fcntl
import shutil
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import msgspec
from msgspec import Struct, field

from skep.errors import Code, SkepError
from skep.runtime.private_files import make_folder
from skep.spark.pipelines.archive import (
    FIRST,
    LAKE_COLUMNS,
    LAKE_TYPES,
    PARTITION_COLUMNS,
    archive,
    divided,
    no_rows,
    undivided,
)
from skep.spark.running.files import MADE_BY, keep_all, rows_of, uri, write_rows, write_whole
from skep.spark.running.setting import UNSORTED, setting

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

FORMAT = 2
"""The present format. The first one had a VARIANT, which only Spark reads, and no generations."""
OWN = "_skep"
"""The folder of our own files. Spark and other readers skip names that begin with an underscore."""
MESSAGES = "messages"
DISTINCT = {
    f"parquet.enable.dictionary#{column}": "false"
    for column in ("seq", "message_id", "transaction_id", "trace_id", "payload", "payload_bytes")
}
"""Parquet options that turn off dictionaries for columns with few repeated values: a tenth of the work of writing."""
SMALL_BYTES = 32 * 1024**2
TARGET_BYTES = 256 * 1024**2
MANY_FILES = 8
"""From so many small files on, a folder is compacted."""
ORDER = ("generation", "seq")


class Move(Struct, frozen=True):
    """A file of a committed batch, and its place."""

    source: str
    target: str


class State(Struct, kw_only=True):
    """The committed state of the lake."""

    format: int = FORMAT
    tenant: str
    batch: int = 0
    through: dict[str, int] = field(default_factory=dict)
    """The last seq of each queue that is in the lake."""
    logs: dict[str, int] = field(default_factory=dict)
    """The log that each of these seqs belongs to."""
    generations: dict[str, int] = field(default_factory=dict)
    """How many logs of a queue the lake has, where it has several; the last seq belongs to the last log."""
    moves: list[Move] = field(default_factory=list)
    removals: list[str] = field(default_factory=list)
    """Files to delete: the moved files have their rows."""


class Lake(Protocol):
    """The place where messages are kept for good."""

    batch_bytes: int | None
    """The most bytes of payloads in a batch; None when only the number of rows counts."""

    def through(self, queue: str) -> int | None:
        """The last archived seq of a queue; None when there is none."""

    def log_of(self, queue: str) -> int | None:
        """The log of a queue that was archived last; None when that is not known."""

    def generation_of(self, queue: str) -> int:
        """The number of that log: 1, and one more each time the queue was deleted and made anew."""

    def append(
        self,
        messages: DataFrame,
        through: Mapping[str, int],
        logs: Mapping[str, int] | None = None,
        generations: Mapping[str, int] | None = None,
    ) -> int:
        """Add a batch of messages atomically; return their number. ``through`` has the last seq of each queue in it."""

    def upgrade(self, spark: SparkSession) -> int:
        """Rewrite files of the first format in the present one; return their number."""

    def compact(self, spark: SparkSession, folders: Collection[str] | None = None) -> int:
        """Make few large files of many small ones, in some folders or in all; return by how many files there are fewer."""

    def touched(self) -> set[str]:
        """The folders (each of one queue and date) that got messages since the last call."""

    def read(self, spark: SparkSession, folders: Collection[str] | None = None) -> DataFrame:
        """The messages of some folders, or all messages."""


class ParquetLake:
    """A lake of Parquet files. One process writes at a time; see `open_lake`."""

    batch_bytes: int | None = None

    def __init__(self, root: Path, tenant: str) -> None:
        self.root = root
        self._own = root / OWN
        make_folder(self._own)
        self._state = self._load(tenant)
        self._touched: set[str] = set()
        self._finish()

    def through(self, queue: str) -> int | None:
        return self._state.through.get(queue)

    def log_of(self, queue: str) -> int | None:
        return self._state.logs.get(queue)

    def generation_of(self, queue: str) -> int:
        return self._state.generations.get(queue, FIRST)

    def append(
        self,
        messages: DataFrame,
        through: Mapping[str, int],
        logs: Mapping[str, int] | None = None,
        generations: Mapping[str, int] | None = None,
    ) -> int:
        """Write a batch aside, commit it, and move it to its place."""
        given = {queue: self.generation_of(queue) for queue in through} | dict(generations or {})
        with setting(messages.sparkSession, *UNSORTED):
            rows, moves = self._stage(archive(messages, given))
        self._state.through |= through
        self._state.logs |= logs or {}
        self._state.generations |= {queue: number for queue, number in given.items() if number != FIRST}
        self._commit(moves)
        self._touched |= {str(target.parent.relative_to(self.root / MESSAGES)) for _, target in moves}
        return rows

    def upgrade(self, spark: SparkSession) -> int:
        """Rewrite old files, some hundred megabytes at a time. A killed run leaves the rest to the next run."""
        if self._state.format == FORMAT:
            return 0
        old = [file for file in sorted((self.root / MESSAGES).rglob("*.parquet")) if not _is_present(file)]
        for files in _portions(old):
            reader = spark.read.option("basePath", uri(self.root / MESSAGES))
            found = reader.schema(LAKE_TYPES).parquet(*map(uri, files))
            rows = undivided(found)
            wrote, moves = self._stage(rows.withColumns(divided(rows["payload"])).select(*LAKE_COLUMNS))
            if wrote != sum(map(rows_of, files)):
                raise SkepError(
                    Code.INTERNAL, f"bringing {self.root} into the present format would have changed its rows"
                )
            self._commit(moves, files)
        self._state.format = FORMAT
        self._save()
        return len(old)

    def _stage(self, rows: DataFrame) -> tuple[int, list[tuple[Path, Path]]]:
        """Write rows aside; return their number, and the place of each file."""
        staging = self._own / "staging"
        count = write_rows(rows, staging, PARTITION_COLUMNS, DISTINCT)
        moves = []
        for number, file in enumerate(sorted(staging.rglob("*.parquet"))):
            folder = self.root / MESSAGES / file.parent.relative_to(staging)
            moves.append((file, folder / f"{self._state.batch + 1:010d}-{number:04d}.parquet"))
        return count, moves

    def touched(self) -> set[str]:
        found, self._touched = self._touched, set()
        return found

    def compact(self, spark: SparkSession, folders: Collection[str] | None = None) -> int:
        """Join the small files of a folder where there are many. Large files stay as they are."""
        fewer, there = 0, self.root / MESSAGES
        for folder in sorted(there.glob("*/*") if folders is None else (there / name for name in folders)):
            small = [file for file in sorted(folder.glob("*.parquet")) if file.stat().st_size < SMALL_BYTES]
            if len(small) >= MANY_FILES:
                fewer += len(small) - self._rewrite(spark, folder, small)
        return fewer

    def read(self, spark: SparkSession, folders: Collection[str] | None = None) -> DataFrame:
        """The messages. Only the wanted folders are listed, and only their files are opened."""
        if folders is not None and not folders:
            return no_rows(spark)
        folder = self.root / MESSAGES
        if not folder.is_dir():
            raise SkepError(Code.INVALID_REQUEST, f"there is no lake in {self.root} yet; {MADE_BY}")
        # The schema makes folder names text: a queue named 2026 is no number.
        meant = [folder] if folders is None else [folder / name for name in sorted(folders)]
        reader = spark.read.option("basePath", uri(folder)).schema(LAKE_TYPES)
        return undivided(reader.parquet(*map(uri, meant)))

    def _rewrite(self, spark: SparkSession, folder: Path, files: list[Path]) -> int:
        fresh = self._own / "compacted"
        count = max(1, round(sum(file.stat().st_size for file in files) / TARGET_BYTES))
        rows = spark.read.parquet(*map(uri, files)).repartitionByRange(count, *ORDER).sortWithinPartitions(*ORDER)
        if write_rows(rows, fresh, options=DISTINCT) != sum(map(rows_of, files)):
            raise SkepError(
                Code.INTERNAL, f"compacting {folder} would have changed its number of rows; it is as it was"
            )
        made = sorted(fresh.glob("*.parquet"))
        self._commit(
            [(file, folder / f"{self._state.batch + 1:010d}-{n:04d}.parquet") for n, file in enumerate(made)], files
        )
        return len(made)

    def _commit(self, moves: Sequence[tuple[Path, Path]], removals: Sequence[Path] = ()) -> None:
        """Commit files to their places, and the removal of others: both hold from the moment that the state is saved."""
        keep_all([file for file, _ in moves])
        self._state.batch += 1
        self._state.moves = [Move(self._name(file), self._name(target)) for file, target in moves]
        self._state.removals = [self._name(file) for file in removals]
        self._save()
        self._finish()

    def _name(self, path: Path) -> str:
        return str(path.relative_to(self.root))

    def _finish(self) -> None:
        """Finish the last commit: move and remove its files. Each step may have been done before."""
        state = self._state
        if not state.moves and not state.removals:
            return
        for move in state.moves:
            target = self.root / move.target
            target.parent.mkdir(parents=True, exist_ok=True)
            if (self.root / move.source).exists():
                (self.root / move.source).rename(target)
        for removed in state.removals:
            (self.root / removed).unlink(missing_ok=True)
        keep_all({(self.root / move.target).parent for move in state.moves})
        state.moves, state.removals = [], []
        self._save()
        for aside in ("staging", "compacted"):
            shutil.rmtree(self._own / aside, ignore_errors=True)

    def _load(self, tenant: str) -> State:
        file = self._own / "state.json"
        if not file.exists():
            return State(tenant=tenant)
        try:
            state = msgspec.json.decode(file.read_bytes(), type=State)
        except msgspec.DecodeError as error:
            raise SkepError(Code.INVALID_REQUEST, f"{file} is damaged ({error}); restore it from a backup") from None
        if state.format > FORMAT:
            raise SkepError(
                Code.INVALID_REQUEST, f"{self.root} was written by another version of Skep (format {state.format})"
            )
        if state.tenant != tenant:
            raise SkepError(
                Code.INVALID_REQUEST,
                f"{self.root} is the lake of tenant {state.tenant!r}, not of {tenant!r}: name another",
            )
        return state

    def _save(self) -> None:
        write_whole(self._own / "state.json", msgspec.json.encode(self._state))


@contextmanager
def open_lake(root: str, tenant: str, kind: str = "parquet") -> Iterator[Lake]:
    """Open a lake for one writing process; make it if it does not exist."""
    if kind == "delta":
        from skep.spark.running.delta import DeltaLake

        if (Path(root) / OWN / "state.json").exists():
            raise SkepError(
                Code.INVALID_REQUEST, f"{root} is a lake of Parquet files; use --format parquet, or another --lake"
            )
        if "://" in root:
            yield DeltaLake(root, tenant)
        else:
            with _locked(Path(root).absolute()):
                yield DeltaLake(root, tenant)
        return
    if "://" in root.removeprefix("file://"):
        raise SkepError(
            Code.INVALID_REQUEST,
            f"a lake of Parquet files needs a file system, which {root} is not; use --format delta",
        )
    folder = Path(root.removeprefix("file://")).absolute()
    if (folder / MESSAGES / "_delta_log").exists():
        raise SkepError(Code.INVALID_REQUEST, f"{root} is a lake of Delta; use --format delta, or another --lake")
    with _locked(folder):
        yield ParquetLake(folder, tenant)


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Lock a folder for this process alone, with the lake and the tables in it."""
    make_folder(folder)
    make_folder(folder / OWN)
    with (folder / OWN / "lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise SkepError(
                Code.INVALID_REQUEST, f"another run is writing to {folder}; wait for it, or end it"
            ) from None
        yield


def _is_present(file: Path) -> bool:
    """Whether a file has the present format."""
    import pyarrow.parquet as pq

    return "generation" in pq.read_schema(file).names


def _portions(files: Sequence[Path]) -> Iterator[list[Path]]:
    """Groups of files that are rewritten together."""
    portion: list[Path] = []
    taken = 0
    for file in files:
        portion.append(file)
        taken += file.stat().st_size
        if taken >= TARGET_BYTES:
            yield portion
            portion, taken = [], 0
    if portion:
        yield portion
