"""The table of messages as folders of Parquet files that anyone can read, and one small file with the last seq of each queue.

Files are written aside. Then `_skep/state.json` is replaced, which names them, the files to delete, and the last seqs: that is the
commit. Only then are files moved and deleted; if that is interrupted, the next run does the rest. Moving a file must be atomic and
durable, so this is for file systems (local or network ones); in object stores the table is one of Delta or Iceberg.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import msgspec
import pyarrow.parquet as pq
from msgspec import Struct, field

from skep.errors import Code, SkepError
from skep.runtime.private_files import make_folder
from skep.spark.lake.files import FilePlan, LakeFile, folder_name
from skep.spark.lake.place import OWN, Place, sync
from skep.spark.lake.rows import FIRST
from skep.spark.lake.table import MADE_BY, MESSAGES, Archived, Folder, LakeChange

FORMAT = 2
"""The present format. The first one had a VARIANT, which only Spark reads, and no generations."""
NAME = re.compile(r"(\d+)_(\d+)_(\d+)_(\d+)_\d+-\d+\.parquet")
"""Of a file: generation, first and last seq, rows; then the commit, and a number."""
SYNCED_AT_ONCE = 16


class Move(Struct, frozen=True):
    """A file of a commit, and its place."""

    source: str
    target: str


class State(Struct, kw_only=True):
    """The committed state of the table."""

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


class ParquetLake:
    """A table of Parquet files. One process writes at a time; see `open_lake`."""

    def __init__(self, root: Place, tenant: str) -> None:
        self.root = root
        self._table = root / MESSAGES
        self._own = root / OWN
        make_folder(self._own.local)
        self._state = _checked(root, tenant) or State(tenant=tenant)
        self._finish()

    def through(self, queue: str) -> int | None:
        return self._state.through.get(queue)

    def log_of(self, queue: str) -> int | None:
        return self._state.logs.get(queue)

    def generation_of(self, queue: str) -> int:
        return self._state.generations.get(queue, FIRST)

    def refresh(self) -> None:
        """There is nothing to look for: no other process writes."""

    def plan(self) -> FilePlan:
        aside = self._own / "staging"
        aside.delete_all()
        return FilePlan(aside, f"{self._state.batch + 1}")

    def commit(self, change: LakeChange) -> None:
        """Commit files to their places, and the removal of others: both hold from the moment that the state is saved."""
        state = self._state
        state.batch += 1
        moves = [(file.place, self._target(file, number)) for number, file in enumerate(change.added)]
        sync_all({source.local.parent for source, _ in moves})
        state.moves = [Move(self.root.below(source), self.root.below(target)) for source, target in moves]
        state.removals = [self.root.below(file.place) for file in change.removed]
        state.through |= change.through
        state.logs |= change.logs
        state.generations |= {queue: number for queue, number in change.generations.items() if number != FIRST}
        self._save()
        self._finish()

    def files(self, folders: Collection[Folder] | None = None, queues: Collection[str] | None = None) -> list[LakeFile]:
        return list(_listed(self._table, folders, queues))

    def earlier(self) -> list[LakeFile]:
        if self._state.format == FORMAT:
            return []
        there = {found.place: found.bytes for found in self._table.below_it(".parquet")}
        return [_known(self._table, place, size) for place, size in there.items() if not _is_present(place)]

    def is_upgraded(self) -> None:
        if self._state.format != FORMAT:
            self._state.format = FORMAT
            self._save()

    def vacuum(self, older_seconds: float) -> int:  # noqa: ARG002 - there is one version, and all of its files count
        """There is nothing to do: replaced files are deleted at once."""
        return 0

    def _target(self, file: LakeFile, number: int) -> Place:
        name = (
            f"{file.generation}_{file.first_seq}_{file.last_seq}_{file.rows}_{self._state.batch}-{number:04d}.parquet"
        )
        return self._table / folder_name(*file.folder) / name

    def _finish(self) -> None:
        """Finish the last commit: move and remove its files. Each step may have been done before."""
        state = self._state
        if not state.moves and not state.removals:
            return
        for move in state.moves:
            (self.root / move.source).move(self.root / move.target)
        for removed in state.removals:
            (self.root / removed).delete()
        sync_all({(self.root / move.target).local.parent for move in state.moves})
        state.moves, state.removals = [], []
        self._save()
        (self._own / "staging").delete_all()

    def _save(self) -> None:
        (self._own / "state.json").write_whole(msgspec.json.encode(self._state))


class ParquetView:
    """A table of Parquet files as a reader sees it, while another process may be writing to it. It changes nothing."""

    def __init__(self, root: Place, tenant: str) -> None:
        self.root = root
        self._tenant = tenant
        self._table = root / MESSAGES

    def archived(self, queue: str) -> Archived | None:
        state = self._read()
        if queue not in state.through or queue not in state.logs:
            return None
        return Archived(state.logs[queue], state.generations.get(queue, FIRST), state.through[queue])

    def files(self, folders: Collection[Folder] | None = None, queues: Collection[str] | None = None) -> list[LakeFile]:
        """The files of the last commit, also those that are not at their places yet."""
        while True:
            state = self._read()
            found = {one.place.uri: one for one in _listed(self._table, folders, queues)}
            if self._read().batch == state.batch:  # no commit came between
                break
        for removed in state.removals:
            found.pop((self.root / removed).uri, None)
        for move in state.moves:
            target, source = self.root / move.target, self.root / move.source
            if target.uri not in found and (size := source.size()) is not None:
                file = _known(self._table, target, size)
                if (folders is None or file.folder in folders) and (queues is None or file.queue in queues):
                    found[target.uri] = msgspec.structs.replace(file, uri=source.uri)
        return sorted(found.values(), key=lambda file: (file.folder, file.first_seq))

    def _read(self) -> State:
        state = _checked(self.root, self._tenant)
        if state is None:
            raise SkepError(Code.INVALID_REQUEST, f"there is no lake in {self.root} yet; {MADE_BY}")
        return state


def is_parquet(root: Place) -> bool:
    """Whether there is a table of Parquet files."""
    return root.is_local and (root / OWN / "state.json").exists()


def state_of(root: Place) -> State | None:
    """The state of a lake that another process may be writing to; None when there is none."""
    try:
        return msgspec.json.decode((root / OWN / "state.json").read_bytes(), type=State)
    except FileNotFoundError:
        return None


def _checked(root: Place, tenant: str) -> State | None:
    """The state of the lake of a tenant; None when there is none."""
    try:
        state = state_of(root)
    except msgspec.DecodeError as error:
        raise SkepError(
            Code.INVALID_REQUEST, f"{root / OWN / 'state.json'} is damaged ({error}); restore it from a backup"
        ) from None
    if state is None:
        return None
    if state.format > FORMAT:
        raise SkepError(Code.INVALID_REQUEST, f"{root} was written by another version of Skep (format {state.format})")
    if state.tenant != tenant:
        raise SkepError(
            Code.INVALID_REQUEST, f"{root} is the lake of tenant {state.tenant!r}, not of {tenant!r}: name another"
        )
    return state


def sync_all(paths: Collection[Path]) -> None:
    """Sync many files or folders, several at once: a disk syncs many in one go."""
    with ThreadPoolExecutor(min(SYNCED_AT_ONCE, max(1, len(paths)))) as pool:
        list(pool.map(sync, paths))


def _listed(table: Place, folders: Collection[Folder] | None, queues: Collection[str] | None) -> Iterator[LakeFile]:
    """The files at their places."""
    if folders is not None:
        places = [table / folder_name(*one) for one in sorted(folders)]
    elif queues is not None:
        places = [(table / folder_name(queue, "")).parent for queue in sorted(queues)]
    else:
        places = [table]
    for one in places:
        for found in one.below_it(".parquet"):
            yield _known(table, found.place, found.bytes)


def _known(table: Place, place: Place, size: int) -> LakeFile:
    """What is known of a file: from its name, and of one of an earlier version from its end."""
    parts = dict(part.split("=", 1) for part in table.below(place).split("/")[:-1])
    queue, day = unquote(parts["queue"]), parts["date"]
    named = NAME.fullmatch(place.name)
    if named is None:
        return LakeFile(uri=place.uri, queue=queue, date=day, bytes=size, **_at_its_end(place.local))
    generation, first, last, rows = map(int, named.groups())
    return LakeFile(
        uri=place.uri, queue=queue, date=day, generation=generation, first_seq=first, last_seq=last, rows=rows,
        bytes=size,
    )  # fmt: skip


@lru_cache(maxsize=100_000)
def _at_its_end(file: Path) -> dict[str, Any]:
    """The generation and seqs of a file of an earlier version. A file never changes, so each is opened once."""
    with pq.ParquetFile(file) as opened:
        about, names = opened.metadata, opened.schema_arrow.names
        ends: dict[str, list[int]] = {"seq": [], "generation": []}
        for name, found in ends.items():
            if name in names:
                for group in range(about.num_row_groups):
                    columns = {
                        about.row_group(group).column(place).path_in_schema: about.row_group(group).column(place)
                        for place in range(about.num_columns)
                    }
                    found += [columns[name].statistics.min, columns[name].statistics.max]
    numbers = set(ends["generation"]) or {FIRST}
    return {
        "generation": numbers.pop() if len(numbers) == 1 else None,
        "first_seq": min(ends["seq"], default=0), "last_seq": max(ends["seq"], default=0), "rows": about.num_rows,
    }  # fmt: skip


def _is_present(place: Place) -> bool:
    """Whether a file has the present format."""
    return "generation" in pq.read_schema(place.local).names
