"""Tables that are computed pass by pass: a pass replaces the folders that it changed, and notes how far the table reaches.

A pass writes the changed folders aside, puts them in place one by one, and writes the note last. A pass that is killed before that
leaves the old note. The next pass goes on from it and computes the same rows again, which changes nothing where they are
already there.
"""

from __future__ import annotations

import shutil
from collections.abc import Collection, Iterable, Mapping
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote

import msgspec
from msgspec import Struct, field

from skep.spark.running.files import read_rows, replace_folder, uri, write_rows, write_whole
from skep.spark.running.inputs import Activity
from skep.spark.running.lake import OWN

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

REACH = "_reach.json"


class TableReach(Struct, kw_only=True, frozen=True):
    """How far a table reaches: the next pass goes on from here."""

    made_with: str
    """The options that its rows depend on. With other options everything is read again."""
    through: dict[str, int] = field(default_factory=dict)
    """The last seen seq of each queue."""
    logs: dict[str, int] = field(default_factory=dict)
    """The log that each of these seqs belongs to."""
    known_groups: list[tuple[str, str]] = field(default_factory=list)
    """Queue and group of all seen leases."""
    as_of: dict[str, datetime] = field(default_factory=dict)
    """The instant up to which each queue was seen, except what was committed late."""

    def is_of(self, logs: Mapping[str, int]) -> bool:
        """Whether the seqs belong to these logs: a queue that was deleted and made anew has another log, whatever its length."""
        return all(self.logs.get(queue, log) == log for queue, log in logs.items())

    def covers(self, queues: Collection[str], made_with: str) -> bool:
        """Whether all of these queues were seen before, with the same options."""
        seen = all(queue in self.through and queue in self.as_of for queue in queues)
        return bool(queues) and seen and self.made_with == made_with

    def grown(self, queues: Collection[str], seen: Activity, made_with: str) -> TableReach:
        """How far the table reaches after one more look at some queues."""
        instants = {} if seen.as_of is None else dict.fromkeys(queues, seen.as_of)
        return TableReach(
            made_with=made_with, through=self.through | seen.through, logs=self.logs | seen.logs,
            known_groups=sorted({*self.known_groups, *seen.groups}),
            as_of=self.as_of | {queue: max(at, self.as_of.get(queue, at)) for queue, at in instants.items()},
        )  # fmt: skip


class KeptTable:
    """A computed table of the lake, in folders by one column."""

    def __init__(self, spark: SparkSession, tables: Path, name: str, folder: str) -> None:
        self._spark = spark
        self._fresh = tables / OWN / f"fresh-{name}"
        self.path = tables / name
        self.folder = folder
        self._recover()

    def reach(self) -> TableReach | None:
        """How far the table reaches; None when there is no note."""
        try:
            return msgspec.json.decode((self.path / REACH).read_bytes(), type=TableReach)
        except (FileNotFoundError, msgspec.DecodeError):
            return None

    def has_rows(self) -> bool:
        return any(self.path.glob(f"{self.folder}=*/*.parquet"))

    def rows(self, like: DataFrame) -> DataFrame:
        """The rows, with the folders as a column; none when the table is empty or has other columns."""
        empty = self._spark.createDataFrame([], like.schema)
        if not self.has_rows():
            return empty
        found = read_rows(self._spark, uri(self.path), texts=[self.folder])
        same = dict(found.dtypes) == dict(like.dtypes)
        return found.select(*like.columns) if same else empty

    def replace(self, rows: DataFrame, folders: Iterable[str], reach: TableReach) -> None:
        """Replace the contents of some folders by these rows, then write the note."""
        write_rows(rows.repartition(self.folder), self._fresh, [self.folder])
        made = {unquote(one.name.partition("=")[2]): one for one in self._fresh.glob(f"{self.folder}=*")}
        for name in {*folders, *made}:
            target = self.path / f"{self.folder}={name}"
            if name in made:
                replace_folder(made[name], target)
            else:
                shutil.rmtree(target, ignore_errors=True)
        self.path.mkdir(parents=True, exist_ok=True)
        for stray in self.path.glob("*.parquet"):  # of an older version, which had no folders
            stray.unlink()
        write_whole(self.path / REACH, msgspec.json.encode(reach))

    def _recover(self) -> None:
        """Put back the folders that a killed pass had moved away and not yet replaced."""
        for old in self.path.glob("_*.old"):
            target = old.with_name(old.name[1:].removesuffix(".old"))
            if target.exists():
                shutil.rmtree(old)
            else:
                old.rename(target)
