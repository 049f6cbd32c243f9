"""The table of messages as a Delta table, committed through `deltalake`: also in object stores, and for readers that know Delta.

The last archived seq of each queue is part of the same commit, as a transaction id of Delta: the application is the queue, the
version is the seq. So a batch is in the table whole or not at all, and once. Each generation of a queue is another application, whose
seqs begin at 1 again.
"""

from __future__ import annotations

import json
import time
from collections.abc import Collection, Mapping
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import CommitProperties, DeltaTable, Schema, Transaction
from deltalake.exceptions import CommitFailedError, DeltaError, TableNotFoundError
from deltalake.transaction import AddAction, RemoveAction, create_table_with_add_actions

from skep.clock import MICROS_PER_MS
from skep.errors import Code, SkepError
from skep.spark.lake.delta_log import Transactions
from skep.spark.lake.files import FilePlan, LakeFile
from skep.spark.lake.place import Place, s3_endpoint
from skep.spark.lake.rows import FIRST, FOLDERS, LAKE
from skep.spark.lake.table import COMMIT_TRIES, MESSAGES, Folder, LakeChange, LakeTakenError

if TYPE_CHECKING:
    from collections.abc import Iterator

LOG, GENERATION = "-log", "-generation"
VECTORS = "deletionVectors"
"""The feature of a table whose files may have rows that are deleted."""
SECONDS_OF_AN_HOUR = 3_600
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class DeltaLake:
    """A table of messages that is one Delta table."""

    def __init__(self, root: Place, tenant: str) -> None:
        self.root = root
        self._place = root / MESSAGES
        self._tenant = tenant
        self._opened: DeltaTable | None = None
        self._transactions = Transactions(self._place)
        self._marks: Mapping[str, int] | None = None
        """How far the queues were when this process last looked, and what it has committed since. Another run changes it, too."""

    def through(self, queue: str) -> int | None:
        return self._through(self._known(), queue)

    def log_of(self, queue: str) -> int | None:
        return self._known().get(self._application(queue, LOG))

    def generation_of(self, queue: str) -> int:
        return self._generation(self._known(), queue)

    def refresh(self) -> None:
        self._marks = self._newest_marks()

    def plan(self) -> FilePlan:
        return FilePlan(self._place, "part")

    def commit(self, change: LakeChange) -> None:
        """Commit files together with the last seqs."""
        marks = self._marked(change)
        for _ in range(COMMIT_TRIES):
            if self._has_committed(change, marks):
                # Where another run has archived other queues, this one has not seen it yet.
                self._marks = {**self._known(), **{mark.app_id: mark.version for mark in marks}}
                return
        raise LakeTakenError(self.root)

    def _has_committed(self, change: LakeChange, marks: list[Transaction]) -> bool:
        """Try a commit; false when another process was quicker."""
        newest, table = self._newest_marks(), self._opened
        before = None if table is None else table.version()
        if any(self._through(newest, queue) != self.through(queue) for queue in change.through):
            raise LakeTakenError(self.root)
        if not self._still_has(change.removed):  # replaced by another process, in files that this commit would leave
            raise LakeTakenError(self.root)
        try:
            self._write(table, change, marks)
        except (CommitFailedError, DeltaError) as error:
            if not self._has(change):
                if self._opened is None or self._opened.version() == before:
                    raise error from None
                return False
        return True

    def _write(self, table: DeltaTable | None, change: LakeChange, marks: list[Transaction]) -> None:
        """Write the next version of the table. Without retries, it is refused when there is a newer one than the one that was read."""
        properties = CommitProperties(app_transactions=marks, max_commit_retries=0)
        actions: list[Any] = [self._add(file, is_new=not change.is_rewrite) for file in change.added]
        now = int(time.time() * 1_000)
        for file in change.removed:
            folders: dict[str, str | None] = {"queue": file.queue, "date": file.date}
            actions.append(RemoveAction(self._place.below(file.place), not change.is_rewrite, now, file.bytes, folders))
        by, schema = list(FOLDERS.names), Schema.from_arrow(LAKE)
        if table is None:
            create_table_with_add_actions(
                self._place.uri, schema, actions, "error", by, storage_options=storage_options(self._place),
                commit_properties=properties,
            )  # fmt: skip
        else:
            self._add_missing_columns(table)
            table.create_write_transaction(actions, "append", schema, by, commit_properties=properties)

    def _has(self, change: LakeChange) -> bool:
        """Whether a commit took effect though it seemed to fail: its answer was lost, and tried again it met itself."""
        newest = self._newest_marks()
        there = {file.uri for file in self.files({file.folder for file in (*change.added, *change.removed)})}
        return (
            all(self._through(newest, queue) == seq for queue, seq in change.through.items())
            and all(file.uri in there for file in change.added)
            and not any(file.uri in there for file in change.removed)
        )

    def _still_has(self, files: Collection[LakeFile]) -> bool:
        if not files:
            return True
        return {file.uri for file in files} <= {file.uri for file in self.files(queues={file.queue for file in files})}

    def files(self, folders: Collection[Folder] | None = None, queues: Collection[str] | None = None) -> list[LakeFile]:
        table = self._table()
        if table is not None:
            _check_deletions(table)
        wanted = queues if folders is None else {queue for queue, _ in folders}
        found = [] if table is None else [_file(self._place, row) for row in _actions(table, wanted)]
        return found if folders is None else [file for file in found if file.folder in folders]

    def earlier(self) -> list[LakeFile]:
        """None: old rows have null in the columns that came later."""
        return []

    def is_upgraded(self) -> None:
        """There is nothing to note."""

    def vacuum(self, older_seconds: float) -> int:
        """Delete files that no version of this age or younger has, and the log of older versions."""
        table = self._table()
        if table is None:
            return 0
        hours = int(older_seconds // SECONDS_OF_AN_HOUR)
        deleted = table.vacuum(hours, dry_run=False, enforce_retention_duration=False, full=True)
        table.create_checkpoint()
        table.cleanup_metadata()
        return len(deleted)

    def _marked(self, change: LakeChange) -> list[Transaction]:
        given = {queue: self.generation_of(queue) for queue in change.through} | dict(change.generations)
        marks = [
            Transaction(app_id=self._application(queue, _of(given[queue])), version=seq)
            for queue, seq in sorted(change.through.items())
        ]
        marks += [Transaction(self._application(queue, LOG), log) for queue, log in sorted(change.logs.items())]
        later = {queue: number for queue, number in sorted(given.items()) if number != FIRST}
        return [*marks, *(Transaction(self._application(queue, GENERATION), number) for queue, number in later.items())]

    def _add(self, file: LakeFile, *, is_new: bool) -> AddAction:
        ends = [
            {"seq": seq, "generation": file.generation, "created_at": None if at is None else _instant(at)}
            for seq, at in (
                (file.first_seq, file.first_at),
                (file.last_seq, None if file.last_at is None else file.last_at + MICROS_PER_MS - 1),
            )
        ]
        least, most = ({name: value for name, value in one.items() if value is not None} for one in ends)
        stats = {"numRecords": file.rows, "minValues": least, "maxValues": most, "nullCount": dict.fromkeys(least, 0)}
        return AddAction(
            self._place.below(file.place), file.bytes, {"queue": file.queue, "date": file.date},
            int(time.time() * 1_000), is_new, json.dumps(stats),
        )  # fmt: skip

    def _add_missing_columns(self, table: DeltaTable) -> None:
        """Add the columns that a table of an earlier version lacks."""
        there = {one.name for one in table.schema().fields}
        missing = [one for one in Schema.from_arrow(LAKE).fields if one.name not in there]
        if missing:
            table.alter.add_columns(missing)

    def _through(self, marks: Mapping[str, int], queue: str) -> int | None:
        return marks.get(self._application(queue, _of(self._generation(marks, queue))))

    def _generation(self, marks: Mapping[str, int], queue: str) -> int:
        return marks.get(self._application(queue, GENERATION), FIRST)

    def _known(self) -> Mapping[str, int]:
        if self._marks is None:
            self._marks = self._newest_marks()
        return self._marks

    def _newest_marks(self) -> Mapping[str, int]:
        table = self._table()
        return {} if table is None else self._transactions.at(table.version())

    def _application(self, queue: str, what: str = "") -> str:
        return f"skep{what}/{self._tenant}/{queue}"

    def _table(self) -> DeltaTable | None:
        if self._opened is not None:  # reads only the new entries of Delta's log
            self._opened.update_incremental()
            return self._opened
        try:
            self._opened = DeltaTable(self._place.uri, storage_options=storage_options(self._place))
        except TableNotFoundError:
            return None
        return self._opened


def storage_options(place: Place) -> dict[str, str] | None:
    """What `deltalake` has to be told besides the environment: whether S3 may be asked without TLS."""
    if place.uri.startswith("s3://") and urlsplit(s3_endpoint() or "").scheme == "http":
        return {"AWS_ALLOW_HTTP": "true"}
    return None


def _check_deletions(table: DeltaTable) -> None:
    """Refuse a table of which single rows are deleted, while their files still have them."""
    if VECTORS not in (table.protocol().reader_features or ()):
        return
    if any(batch.num_rows for batch in pa.RecordBatchReader.from_stream(table.deletion_vectors())):
        raise SkepError(
            Code.INVALID_REQUEST,
            f"another program has deleted single rows of {table.table_uri} without rewriting their files (deletion vectors), and Skep would "
            "bring them back. Rewrite these files first (REORG TABLE … APPLY (PURGE)), and delete with skep lake forget",
        )


def _actions(table: DeltaTable, queues: Collection[str] | None) -> Iterator[dict[str, Any]]:
    """What the table knows of the files of some queues, or of all."""
    found = pa.table(table.get_add_actions(flatten=True))
    if queues is not None:
        found = found.filter(pc.is_in(found.column("partition.queue"), pa.array(list(queues), pa.string())))
    wanted = (
        "path", "size_bytes", "num_records", "partition.queue", "partition.date", "min.seq", "max.seq", "min.generation",
        "max.generation", "min.created_at", "max.created_at",
    )  # fmt: skip
    yield from found.select([name for name in wanted if name in found.column_names]).to_pylist()


def _file(place: Place, row: dict[str, Any]) -> LakeFile:
    path = unquote(row["path"])
    generation = row.get("min.generation", FIRST)
    first_at, last_at = row.get("min.created_at"), row.get("max.created_at")
    return LakeFile(
        uri=path if "://" in path else (place / path).uri, queue=row["partition.queue"], date=str(row["partition.date"]),
        generation=generation if generation == row.get("max.generation", FIRST) else None,
        first_seq=_or(row.get("min.seq"), 0), last_seq=_or(row.get("max.seq"), 2**63 - 1),
        first_at=None if first_at is None else _micros(first_at), last_at=None if last_at is None else _micros(last_at),
        rows=row["num_records"], bytes=row["size_bytes"],
    )  # fmt: skip


def _instant(micros: int) -> str:
    """An instant as Delta's statistics have it, which are cut to milliseconds."""
    whole = micros // MICROS_PER_MS * MICROS_PER_MS
    return (EPOCH + timedelta(microseconds=whole)).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _micros(at: datetime) -> int:
    return (at.replace(tzinfo=UTC) - EPOCH) // timedelta(microseconds=1)


def _or(value: int | None, default: int) -> int:
    return default if value is None else value


def _of(generation: int) -> str:
    return "" if generation == FIRST else f"-{generation}"
