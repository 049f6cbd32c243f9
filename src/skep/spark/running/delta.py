"""The lake as a Delta table, written through `deltalake`: also on object stores, and for readers that know Delta.

The last archived seq of each queue is part of the same commit, as a transaction id of Delta: the application is the queue, the
version is the seq. So a batch is in the table whole or not at all, and once. Each generation of a queue is another application, whose
seqs begin at 1 again.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from skep.errors import Code, SkepError
from skep.spark.pipelines.archive import FIRST, LAKE_TYPES, PARTITION_COLUMNS, archive, no_rows, undivided
from skep.spark.running.files import MADE_BY

if TYPE_CHECKING:
    from deltalake import DeltaTable
    from pyspark.sql import DataFrame, SparkSession


LOG, GENERATION = "-log", "-generation"
BATCH_BYTES = 256 * 1024**2
"""The most payloads of a batch: they go through the memory of this process."""


class DeltaLake:
    """A lake that is one Delta table."""

    batch_bytes: int | None = BATCH_BYTES

    def __init__(self, root: str, tenant: str) -> None:
        self.root = root if "://" in root else str(Path(root).absolute() / "messages")
        self._tenant = tenant
        self._known: dict[str, int | None] = {}
        """The last archived seq of each queue when this process last read or wrote it."""
        self._opened: DeltaTable | None = None
        self._touched: set[str] = set()

    def through(self, queue: str) -> int | None:
        table = self._table()
        self._known[queue] = self._through(table, queue)
        return self._known[queue]

    def log_of(self, queue: str) -> int | None:
        table = self._table()
        return None if table is None else table.transaction_version(self._application(queue, LOG))

    def generation_of(self, queue: str) -> int:
        return self._generation(self._table(), queue)

    def append(
        self,
        messages: DataFrame,
        through: Mapping[str, int],
        logs: Mapping[str, int] | None = None,
        generations: Mapping[str, int] | None = None,
    ) -> int:
        """Commit the rows together with the last seqs. Refused when another process has written meanwhile."""
        from deltalake import CommitProperties, Transaction, write_deltalake
        from deltalake.exceptions import CommitFailedError

        table = self._table()
        given = {queue: self._generation(table, queue) for queue in through} | dict(generations or {})
        rows = archive(messages, given).toArrow()
        table = self._table()
        if any(self._through(table, queue) != self._known.get(queue) for queue in through):
            raise self._taken()
        before = self._files()
        marks = [
            Transaction(app_id=self._application(queue, _of(given[queue])), version=seq)
            for queue, seq in sorted(through.items())
        ]
        marks += [Transaction(self._application(queue, LOG), log) for queue, log in sorted((logs or {}).items())]
        later = {queue: number for queue, number in sorted(given.items()) if number != FIRST}
        marks += [Transaction(self._application(queue, GENERATION), number) for queue, number in later.items()]
        try:
            # This writes from the version that was read: of two writers of the same queue only one can commit.
            write_deltalake(
                table or self.root, rows, mode="append", schema_mode="merge", partition_by=list(PARTITION_COLUMNS),
                commit_properties=CommitProperties(app_transactions=marks),
            )  # fmt: skip
        except CommitFailedError:
            raise self._taken() from None
        self._known |= through
        self._touched |= {_folder(file) for file in self._files() - before}
        return int(rows.num_rows)

    def _files(self) -> set[str]:
        table = self._table()
        return set() if table is None else set(table.file_uris())

    def _taken(self) -> SkepError:
        return SkepError(Code.INVALID_REQUEST, f"another run is writing to {self.root}; wait for it, or end it")

    def _through(self, table: DeltaTable | None, queue: str) -> int | None:
        if table is None:
            return None
        return table.transaction_version(self._application(queue, _of(self._generation(table, queue))))

    def _generation(self, table: DeltaTable | None, queue: str) -> int:
        found = None if table is None else table.transaction_version(self._application(queue, GENERATION))
        return FIRST if found is None else found

    def upgrade(self, spark: SparkSession) -> int:  # noqa: ARG002 - a table of Delta gets new columns with the next batch
        """There is nothing to do: old rows have null in the new columns."""
        return 0

    def touched(self) -> set[str]:
        found, self._touched = self._touched, set()
        return found

    def compact(self, spark: SparkSession, folders: Collection[str] | None = None) -> int:  # noqa: ARG002 - Delta needs neither
        """Delta's own compaction; old files stay for readers of older versions."""
        table = self._table()
        if table is None:
            return 0
        figures = table.optimize.compact()
        return int(figures["numFilesRemoved"]) - int(figures["numFilesAdded"])

    def read(self, spark: SparkSession, folders: Collection[str] | None = None) -> DataFrame:
        """The rows of the table; Spark reads the files of its newest version."""
        if folders is not None and not folders:
            return no_rows(spark)
        table = self._table()
        if table is None:
            raise SkepError(Code.INVALID_REQUEST, f"there is no Delta table in {self.root} yet; {MADE_BY}")
        reader = spark.read.option("basePath", self.root).schema(LAKE_TYPES)
        files = [file for file in table.file_uris() if folders is None or _folder(file) in folders]
        return undivided(reader.parquet(*files))

    def _application(self, queue: str, what: str = "") -> str:
        return f"skep{what}/{self._tenant}/{queue}"

    def _table(self) -> DeltaTable | None:
        from deltalake import DeltaTable
        from deltalake.exceptions import TableNotFoundError

        if self._opened is not None:  # reads only the new entries of Delta's log
            self._opened.update_incremental()
            return self._opened
        try:
            self._opened = DeltaTable(self.root)
        except TableNotFoundError:
            return None
        return self._opened


def _folder(file: str) -> str:
    """The folder of a file: that of one queue and one date."""
    return file.rpartition("/")[0]


def _of(generation: int) -> str:
    return "" if generation == FIRST else f"-{generation}"
