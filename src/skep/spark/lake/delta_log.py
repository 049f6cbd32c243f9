"""The transaction ids in the log of a Delta table, all at once. `deltalake` tells one at a time, and replays the log for each."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor

import msgspec
import pyarrow.compute as pc
import pyarrow.parquet as pq
from msgspec import Struct

from skep.errors import Code, SkepError
from skep.spark.lake.place import Place

LOG = "_delta_log"
LAST_CHECKPOINT = "_last_checkpoint"
FILES_AT_ONCE = 16


class _Checkpoint(Struct):
    version: int = -1
    parts: int | None = None


class _Transaction(Struct, rename="camel"):
    app_id: str
    version: int


class _Action(Struct):
    """A line of the log."""

    txn: _Transaction | None = None


class Transactions:
    """The transaction ids of a table, as far as its log was read."""

    def __init__(self, table: Place) -> None:
        self._log = table / LOG
        self._version = -1
        self._found: dict[str, int] = {}

    def at(self, version: int) -> dict[str, int]:
        """The transaction ids of a version of the table, and the version of each. Only what is new in the log is read."""
        if self._version >= 0:
            try:
                return self._with_commits(version)
            except FileNotFoundError:  # a checkpoint has taken the place of some commits
                self._found = {}
        self._found, self._version = _of_checkpoint(self._log)
        return self._with_commits(version)

    def _with_commits(self, version: int) -> dict[str, int]:
        names = [self._log / f"{number:020d}.json" for number in range(self._version + 1, version + 1)]
        with ThreadPoolExecutor(FILES_AT_ONCE) as pool:
            for data in pool.map(Place.read_bytes, names):
                self._found |= dict(_of_commit(data.splitlines()))
        self._version = max(self._version, version)
        return dict(self._found)


def _of_commit(lines: Iterable[bytes]) -> Iterator[tuple[str, int]]:
    for line in lines:
        if b'"txn"' in line:
            found = msgspec.json.decode(line, type=_Action).txn
            if found is not None:
                yield found.app_id, found.version


def _of_checkpoint(log: Place) -> tuple[dict[str, int], int]:
    """The transaction ids of the last checkpoint, and its version; -1 when there is none."""
    try:
        last = msgspec.json.decode((log / LAST_CHECKPOINT).read_bytes(), type=_Checkpoint)
    except FileNotFoundError:
        return {}, -1
    stem = f"{last.version:020d}.checkpoint"
    parts = [f"{stem}.{part:010d}.{last.parts:010d}" for part in range(1, (last.parts or 0) + 1)] or [stem]
    found: dict[str, int] = {}
    for name in parts:
        try:
            with (log / f"{name}.parquet").opened() as source:
                column = pq.read_table(source, columns=["txn"]).column("txn")
        except FileNotFoundError:
            raise SkepError(
                Code.INVALID_REQUEST,
                f"{log} has no checkpoint {name}.parquet, which {LAST_CHECKPOINT} names. If another program writes checkpoints of version 2, "
                "set the property delta.checkpointPolicy of the table to classic, and let it write one",
            ) from None
        there = column.filter(pc.is_valid(column))
        found |= zip(
            pc.struct_field(there, "appId").to_pylist(), pc.struct_field(there, "version").to_pylist(), strict=True
        )
    return found, last.version
