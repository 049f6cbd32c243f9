"""The lake as a Delta table, written through `deltalake`: also on object stores, and for readers that know Delta.

How far each queue is in it is part of the same commit, as Delta's own transaction ids: the application is the queue, the version
the last seq. So a batch is in it whole or not at all, and once. Delta has no VARIANT here: `with_body` makes the body on reading.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from skep.errors import Code, SkepError
from skep.spark.pipelines.archive import PARTITION_COLUMNS, plain_archive, with_body
from skep.spark.running.files import read_rows
from skep.spark.running.lake import MADE_BY

if TYPE_CHECKING:
    from deltalake import DeltaTable
    from pyspark.sql import DataFrame, SparkSession


LOG = "-log"
BATCH_BYTES = 256 * 1024**2
"""A batch goes through the memory of this process, so it has no more payloads than this."""


class DeltaLake:
    """A lake that is one Delta table."""

    batch_bytes: int | None = BATCH_BYTES

    def __init__(self, root: str, tenant: str) -> None:
        self.root = root if "://" in root else str(Path(root).absolute() / "messages")
        self._tenant = tenant
        self._known: dict[str, int | None] = {}
        """How far each queue was when this process last looked or wrote."""

    def through(self, queue: str) -> int | None:
        """The last seq of a queue that is in it."""
        table = self._table()
        self._known[queue] = self._through(table, queue)
        return self._known[queue]

    def log_of(self, queue: str) -> int | None:
        """Which log of a queue is in it."""
        table = self._table()
        return None if table is None else table.transaction_version(self._application(queue, LOG))

    def append(self, messages: DataFrame, through: Mapping[str, int], logs: Mapping[str, int] | None = None) -> int:
        """One commit with the rows and how far each queue is then; refused when somebody else has written meanwhile."""
        from deltalake import CommitProperties, Transaction, write_deltalake
        from deltalake.exceptions import CommitFailedError

        rows = plain_archive(messages).toArrow()
        table = self._table()
        if any(self._through(table, queue) != self._known.get(queue) for queue in through):
            raise self._taken()
        marks = [Transaction(app_id=self._application(queue), version=seq) for queue, seq in sorted(through.items())]
        marks += [Transaction(self._application(queue, LOG), log) for queue, log in sorted((logs or {}).items())]
        try:
            # By the version that was looked at: two that write the same queue from there cannot both be committed.
            write_deltalake(
                table or self.root, rows, mode="append", partition_by=list(PARTITION_COLUMNS),
                commit_properties=CommitProperties(app_transactions=marks),
            )  # fmt: skip
        except CommitFailedError:
            raise self._taken() from None
        self._known |= through
        return int(rows.num_rows)

    def _taken(self) -> SkepError:
        return SkepError(Code.INVALID_REQUEST, f"another run is writing to {self.root}; wait for it, or end it")

    def _through(self, table: DeltaTable | None, queue: str) -> int | None:
        return None if table is None else table.transaction_version(self._application(queue))

    def compact(self, spark: SparkSession) -> int:  # noqa: ARG002 - Delta needs no Spark for it
        """Delta's own compaction; old files stay for readers of older versions."""
        table = self._table()
        if table is None:
            return 0
        figures = table.optimize.compact()
        return int(figures["numFilesRemoved"]) - int(figures["numFilesAdded"])

    def read(self, spark: SparkSession) -> DataFrame:
        """All that is in it: Spark reads the files that the table's newest version names."""
        table = self._table()
        if table is None:
            raise SkepError(Code.INVALID_REQUEST, f"there is no Delta table in {self.root} yet; {MADE_BY}")
        rows = read_rows(spark, *table.file_uris(), texts=PARTITION_COLUMNS, base=self.root)
        return with_body(rows.withColumn("date", rows["date"].cast("date")))

    def _application(self, queue: str, what: str = "") -> str:
        return f"skep{what}/{self._tenant}/{queue}"

    def _table(self) -> DeltaTable | None:
        from deltalake import DeltaTable
        from deltalake.exceptions import TableNotFoundError

        try:
            return DeltaTable(self.root)
        except TableNotFoundError:
            return None
