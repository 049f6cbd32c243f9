"""The table of messages, in whichever format, and what is done to it: messages are added, small files are joined, files are rewritten.

Spark's executors write files. Nothing of them counts until `commit`, which adds and removes files and notes the last seq of each queue,
all at once. So each message is in the table once, wherever a run is killed: the log is in order and without gaps, and the last archived
seq says what comes next.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple, Protocol

from msgspec import Struct

from skep.errors import Code, SkepError
from skep.spark.lake.files import TARGET_BYTES, FilePlan, LakeFile
from skep.spark.lake.place import Place
from skep.spark.lake.tasks import FileRows, RowSource, written

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = logging.getLogger(__name__)

MESSAGES = "messages"
SMALL_BYTES = 32 * 1024**2
MANY_FILES = 8
"""From so many small files on, a folder is compacted."""
FOLDERS_AT_ONCE = 64
"""The most folders that are compacted in one commit."""
COMMIT_TRIES = 20
"""How often a commit is tried while other processes commit something else at the same moment."""
MADE_BY = "skep pipeline run archive makes one as soon as a queue has messages, in the same run if it is named before"
Folder = tuple[str, str]
"""A queue and a day."""


class LakeChange(Struct, frozen=True, kw_only=True):
    """A commit: files that come and go, and the last seqs that are in the table then."""

    added: Sequence[LakeFile] = ()
    removed: Sequence[LakeFile] = ()
    through: Mapping[str, int] = {}
    logs: Mapping[str, int] = {}
    """The log that each of these seqs belongs to."""
    generations: Mapping[str, int] = {}

    @property
    def is_rewrite(self) -> bool:
        """Whether the same rows are in other files."""
        return not self.through and bool(self.removed)


class Archived(NamedTuple):
    """How far a queue is in the lake."""

    log: int
    generation: int
    through: int


class LakeTakenError(SkepError):
    """Another process has changed what a commit was made from."""

    def __init__(self, root: Place) -> None:
        super().__init__(Code.INVALID_REQUEST, f"another run is writing to {root}; wait for it, or end it")


class LakeView(Protocol):
    """The table of messages as readers see it."""

    def archived(self, queue: str) -> Archived | None:
        """How far a queue is in the lake; None when it is not, or its log is not known."""

    def files(self, folders: Collection[Folder] | None = None, queues: Collection[str] | None = None) -> list[LakeFile]:
        """The files of some folders or queues, or all files."""


class Lake(Protocol):
    """The table of messages as the one process that writes to it sees it."""

    @property
    def root(self) -> Place:
        """The folder, or URI, of the whole lake."""

    def through(self, queue: str) -> int | None:
        """The last archived seq of a queue; None when there is none."""

    def log_of(self, queue: str) -> int | None:
        """The log of a queue that was archived last; None when that is not known."""

    def generation_of(self, queue: str) -> int:
        """The number of that log: 1, and one more each time the queue was deleted and made anew."""

    def refresh(self) -> None:
        """Look again how far the queues are, and which files there are: in an object store other processes commit, too."""

    def plan(self) -> FilePlan:
        """Where and how the files of the next commit are written."""

    def commit(self, change: LakeChange) -> None:
        """Commit atomically. Refused (`LakeTakenError`) when another run has archived one of these queues since the last look, or has
        replaced one of the files that go. What else was committed meanwhile stays, and is no hindrance.
        """

    def files(self, folders: Collection[Folder] | None = None, queues: Collection[str] | None = None) -> list[LakeFile]:
        """The files of some folders or queues, or all files."""

    def earlier(self) -> list[LakeFile]:
        """The files in a format of an earlier version, which are rewritten once."""

    def is_upgraded(self) -> None:
        """There are no such files any more."""

    def vacuum(self, older_seconds: float) -> int:
        """Forget versions that are older, and delete the files that no version has any more; return the number of files."""


def append(
    spark: SparkSession,
    lake: Lake,
    sources: Sequence[RowSource],
    through: Mapping[str, int],
    logs: Mapping[str, int] | None = None,
    generations: Mapping[str, int] | None = None,
) -> list[LakeFile]:
    """Add messages; ``through`` has the last seq of each queue among them. Return the new files."""
    files = check_seen(written(spark, sources, lake.plan()))
    lake.commit(LakeChange(added=files, through=through, logs=logs or {}, generations=generations or {}))
    return files


def compact(spark: SparkSession, lake: Lake, folders: Collection[Folder] | None = None) -> int:
    """Join the small files of a folder where there are many, in some folders or in all; return by how many files there are fewer.
    Large files stay as they are.
    """
    lake.refresh()
    small: dict[tuple[Folder, int | None], list[LakeFile]] = defaultdict(list)
    for file in lake.files(folders):
        if file.bytes < SMALL_BYTES:
            small[file.folder, file.generation].append(file)
    groups = [files for files in small.values() if len(files) >= MANY_FILES]
    fewer = 0
    for first in range(0, len(groups), FOLDERS_AT_ONCE):
        part = groups[first : first + FOLDERS_AT_ONCE]
        try:
            fewer += rewrite(spark, lake, part)
        except LakeTakenError:  # who forgets messages, or compacts, has replaced some: a later run looks again
            log.info("files of %s were replaced by another run; they are compacted later", lake.root)
    return fewer


def upgrade(spark: SparkSession, lake: Lake) -> int:
    """Rewrite files of earlier formats, some hundred megabytes at a time; return their number. A killed run leaves the rest to the next."""
    old = lake.earlier()
    for files in _portions(old):
        rewrite(spark, lake, [[file] for file in files])
    lake.is_upgraded()
    return len(old)


def rewrite(spark: SparkSession, lake: Lake, groups: Sequence[Sequence[LakeFile]]) -> int:
    """Write the rows of each group of files anew, in one commit; return by how many files there are fewer."""
    old = [file for files in groups for file in files]
    with undisturbed(lake, old):
        made = check_seen(written(spark, [FileRows(files) for files in groups], lake.plan()))
    if sum(file.rows for file in made) != sum(file.rows for file in old):
        raise SkepError(
            Code.INTERNAL, f"rewriting {len(old)} files of {lake.root} would have changed its rows; it is as it was"
        )
    lake.commit(LakeChange(added=made, removed=old))
    return len(old) - len(made)


@contextmanager
def undisturbed(lake: Lake, files: Collection[LakeFile]) -> Iterator[None]:
    """Read files of the table. If that fails, and another process has replaced some of them, the error is LakeTakenError."""
    try:
        yield
    except Exception as error:
        lake.refresh()
        there = {file.uri for file in lake.files(queues={file.queue for file in files})}
        if all(file.uri in there for file in files):
            raise
        raise LakeTakenError(lake.root) from error


def check_seen(files: list[LakeFile]) -> list[LakeFile]:
    """The files, if this machine sees them: rows on the disks of other machines must not count as written."""
    missing = [file for file in files if file.place.is_local and file.place.size() != file.bytes]
    if missing:
        wrote, seen = sum(file.rows for file in files), sum(file.rows for file in files if file not in missing)
        raise SkepError(
            Code.INVALID_REQUEST,
            f"Spark wrote {wrote} rows, and this machine sees {seen} of them below {missing[0].place.parent}: the executors write to "
            "disks of their own. Put --lake on a file system that all of them and this machine share, or into an object store",
        )
    return files


def _portions(files: Iterable[LakeFile]) -> Iterator[list[LakeFile]]:
    """Groups of files that are rewritten together."""
    portion: list[LakeFile] = []
    taken = 0
    for file in files:
        portion.append(file)
        taken += file.bytes
        if taken >= TARGET_BYTES:
            yield portion
            portion, taken = [], 0
    if portion:
        yield portion
