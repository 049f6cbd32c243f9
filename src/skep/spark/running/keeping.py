"""Tables that are computed pass by pass: a pass replaces the folders that it changed, and notes how far the table reaches.

A pass writes the changed folders anew, aside or (in an object store) under names of its own, and then the note, which names the files
that come and go: that is the commit. Only then are files moved and deleted; if that is interrupted, the next pass does the rest. A
pass that is killed before its note counts for nothing, and the next one computes the same rows again.

In a folder, the lake is locked. In an object store, a pass takes a turn before it writes, and another one that names its note: that is
the commit there. A run that another one has overtaken is refused, and what it wrote does not count.
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
from skep.spark.lake.table import LakeTakenError
from skep.spark.running.inputs import Activity

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from skep.spark.lake.turns import WriteTurns

REACH, REACH_OF = "_reach.json", "_reach-{}.json"
"""The note; in an object store each pass has its own."""


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
        self.place = root / name
        self.folder = folder
        self._turns = None if root.is_local else self._turns_of(name)
        self._recover()

    def _turns_of(self, name: str) -> WriteTurns:
        from skep.spark.lake.turns import WriteTurns

        return WriteTurns(self._own / f"turns-{name}", self.place)

    def reach(self) -> TableReach | None:
        """How far the table reaches; None when there is no note."""
        try:
            return msgspec.json.decode(self._noted().read_bytes(), type=TableReach)
        except (FileNotFoundError, msgspec.DecodeError):
            return None

    def _noted(self) -> Place:
        """The note of the last pass that was committed."""
        done = "" if self._turns is None else self._turns.last.done
        return self.place / (REACH_OF.format(done) if done else REACH)

    def has_rows(self) -> bool:
        return bool(self._files())

    def _files(self) -> list[Place]:
        """The files in folders, without those of a pass that is not committed."""
        found = [one.place for one in self.place.below_it(".parquet") if "/" in self.place.below(one.place)]
        if self._turns is None or not self._turns.last.is_open:
            return found
        return [place for place in found if self._turns.last.began not in place.name]

    def rows(self, like: DataFrame) -> DataFrame:
        """The rows, with the folders as a column; none when the table is empty or has other columns."""
        files = self._files()
        if not files or {**columns_of_file(files[0]), self.folder: "string"} != dict(like.dtypes):
            return self._spark.createDataFrame([], like.schema)
        return read_parts(self._spark, [place.uri for place in files], like.schema, self.folder)

    def replace(self, rows: DataFrame, folders: Iterable[str], reach: TableReach) -> None:
        """Replace the contents of some folders by these rows, then write the note, which names the files that come and go."""
        pass_id = uuid4().hex
        aside = self._fresh if self.place.is_local else self.place
        self._begin(pass_id)
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
        self._commit(
            msgspec.structs.replace(
                reach, pass_id=pass_id,
                moves=[self._fresh.below(part.place) for part in made] if self.place.is_local else [],
                removals=[self.place.below(place) for place in old],
            )
        )  # fmt: skip
        self._recover()

    def _begin(self, pass_id: str) -> None:
        """Take the turn of a pass in an object store, and take back one that was killed: from now on it could not commit."""
        if self._turns is None:
            return
        before = self._turns.last
        self._turns.take(pass_id, before.done)
        if before.is_open:
            self._take_back(before.began)

    def _take_back(self, pass_id: str) -> None:
        """Delete what a pass wrote that is not committed."""
        for found in self.place.below_it():
            if pass_id in found.place.name:
                found.place.delete()

    def _commit(self, reach: TableReach) -> None:
        """Write the note of a pass."""
        if self._turns is None:
            self._note(reach)
            return
        before = self._noted()
        (self.place / REACH_OF.format(reach.pass_id)).write_whole(msgspec.json.encode(reach))
        try:
            self._turns.take(reach.pass_id, reach.pass_id)
        except LakeTakenError:
            self._take_back(reach.pass_id)
            raise
        before.delete()

    def _note(self, reach: TableReach) -> None:
        self._noted().write_whole(msgspec.json.encode(reach))

    def _recover(self) -> None:
        """Finish the last pass, whose note is written. Each step may have been done before."""
        reach = self.reach()
        if reach is not None and (reach.moves or reach.removals):
            for name in reach.moves:
                (self._fresh / name).move(self.place / name)
            for name in reach.removals:
                (self.place / name).delete()
            self._note(msgspec.structs.replace(reach, moves=[], removals=[]))
