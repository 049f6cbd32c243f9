"""Tables that are computed pass by pass: a pass replaces the folders that it changed, and notes how far the table reaches.

A pass writes the changed folders anew, aside or (in an object store) under names of its own, and then the note, which names the files
that come and go: that is the commit. Only then are files moved and deleted; if that is interrupted, the next pass does the rest. A
pass that is killed before its note counts for nothing, and the next one computes the same rows again.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from datetime import datetime
from typing import TYPE_CHECKING
from uuid import uuid4

import msgspec
from msgspec import Struct, field

from skep.spark.lake.files import escaped
from skep.spark.lake.frames import columns_of_file, read_parts, write_frame
from skep.spark.lake.place import OWN, Place
from skep.spark.running.inputs import Activity

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
    pass_id: str = ""
    """The pass that wrote this. Its files have this in their names."""
    moves: list[str] = field(default_factory=list)
    """Files of this pass that are still to be put into their places."""
    removals: list[str] = field(default_factory=list)
    """Files that are still to be deleted: those of this pass are in their places."""

    def is_of(self, logs: Mapping[str, int]) -> bool:
        """Whether the seqs belong to these logs: a queue that was deleted and made anew has another log, whatever its length."""
        return all(self.logs.get(queue, log) == log for queue, log in logs.items())

    def covers(self, queues: Collection[str], made_with: str) -> bool:
        """Whether all of these queues were seen before, with the same options."""
        seen = all(queue in self.through and queue in self.as_of for queue in queues)
        return bool(queues) and seen and self.made_with == made_with

    def with_groups(self, seen: Activity) -> TableReach:
        """The same reach, with the groups of a past time."""
        return msgspec.structs.replace(self, known_groups=sorted({*self.known_groups, *seen.groups}))

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

    def __init__(self, spark: SparkSession, root: Place, name: str, folder: str) -> None:
        self._spark = spark
        self._own = root / OWN
        self._fresh = self._own / f"fresh-{name}"
        self._intent = self._own / f"writing-{name}.json"
        self.place = root / name
        self.folder = folder
        self._recover()

    def reach(self) -> TableReach | None:
        """How far the table reaches; None when there is no note."""
        try:
            return msgspec.json.decode((self.place / REACH).read_bytes(), type=TableReach)
        except (FileNotFoundError, msgspec.DecodeError):
            return None

    def has_rows(self) -> bool:
        return any("/" in self.place.below(found.place) for found in self.place.below_it(".parquet"))

    def rows(self, like: DataFrame) -> DataFrame:
        """The rows, with the folders as a column; none when the table is empty or has other columns."""
        files = [found.place for found in self.place.below_it(".parquet") if "/" in self.place.below(found.place)]
        if not files or {**columns_of_file(files[0]), self.folder: "string"} != dict(like.dtypes):
            return self._spark.createDataFrame([], like.schema)
        return read_parts(self._spark, [place.uri for place in files], like.schema, self.folder)

    def replace(self, rows: DataFrame, folders: Iterable[str], reach: TableReach) -> None:
        """Replace the contents of some folders by these rows, then write the note, which names the files that come and go."""
        pass_id = uuid4().hex
        aside = self._fresh if self.place.is_local else self.place
        if not self.place.is_local:
            self._intent.write_whole(msgspec.json.encode(pass_id))
        before = {found.place for found in self.place.below_it(".parquet")}
        self._fresh.delete_all()
        made = write_frame(rows, aside, self.folder, pass_id)
        changed = {f"{self.folder}={escaped(name)}" for name in {*folders, *(str(part.folder) for part in made)}}
        # Files that are in no folder are of an older version.
        old = [
            place
            for place in before
            if (name := self.place.below(place)).partition("/")[0] in changed or "/" not in name
        ]
        self._note(
            msgspec.structs.replace(
                reach, pass_id=pass_id,
                moves=[self._fresh.below(part.place) for part in made] if self.place.is_local else [],
                removals=[self.place.below(place) for place in old],
            )
        )  # fmt: skip
        self._recover()

    def _note(self, reach: TableReach) -> None:
        (self.place / REACH).write_whole(msgspec.json.encode(reach))

    def _recover(self) -> None:
        """Finish the last pass, whose note is written, or take back one that was killed before. Each step may have been done before."""
        reach = self.reach()
        if self._intent.exists():
            began = msgspec.json.decode(self._intent.read_bytes(), type=str)
            if reach is None or reach.pass_id != began:
                for found in self.place.below_it(".parquet"):
                    if began in found.place.name:
                        found.place.delete()
        if reach is not None and (reach.moves or reach.removals):
            for name in reach.moves:
                (self._fresh / name).move(self.place / name)
            for name in reach.removals:
                (self.place / name).delete()
            self._note(msgspec.structs.replace(reach, moves=[], removals=[]))
        self._intent.delete()
