"""Tables about queues beside their logs: lease history, dead letters, queues and groups."""

from __future__ import annotations

import os
from collections.abc import Iterator
from datetime import datetime
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.datasource import DataSourceReader, InputPartition

from skep.errors import Code, SkepError
from skep.spark import offset_ranges
from skep.spark.link import Link, link
from skep.spark.options import SourceOptions, Table
from skep.spark.push_down import EPOCH, Filter, instant
from skep.spark.schema import HEADERS, INSTANT, fitted, header_maps

_TEXT, _COUNT, _FLAG, _NUMBER = pa.string(), pa.int64(), pa.bool_(), pa.float64()

LEASE_ROWS = 50_000
LETTER_ROWS = 1_000
"""Rows of one page; few, since a dead letter may have a payload of any size."""
TASKS_PER_CORE = 4
"""Several tasks for each core: how many rows a queue has is not known beforehand."""


def _schema(**columns: pa.DataType) -> pa.Schema:
    return pa.schema(list(columns.items()))


TABLES: dict[Table, pa.Schema] = {
    "leases": _schema(
        position=_COUNT, queue=_TEXT, group=_TEXT, partition=_TEXT, first_seq=_COUNT, last_seq=_COUNT, messages=_COUNT,
        completed=_COUNT, attempt=_COUNT, leased_at=INSTANT, settled_at=INSTANT, outcome=_TEXT,
    ),
    "dead_letters": _schema(
        seq=_COUNT, queue=_TEXT, source_queue=_TEXT, source_seq=_COUNT, partition=_TEXT, group=_TEXT, reason=_TEXT,
        error=_TEXT, attempts=_COUNT, message_id=_TEXT, transaction_id=_TEXT, trace_id=_TEXT, payload=_TEXT,
        content_type=_TEXT, headers=HEADERS, created_at=INSTANT, failed_at=INSTANT,
    ),
    "queues": _schema(
        queue=_TEXT, namespace=_TEXT, task=_TEXT, ordering=_TEXT, paused=_FLAG, holds_dead_letters=_FLAG,
        first_seq=_COUNT, last_seq=_COUNT, depth=_COUNT, scheduled=_COUNT, in_flight=_COUNT, dead_letters=_COUNT,
        oldest_age_seconds=_NUMBER, created_at=INSTANT, updated_at=INSTANT,
    ),
    "groups": _schema(
        queue=_TEXT, group=_TEXT, external=_FLAG, progress_seq=_COUNT, pushed=_COUNT, completed=_COUNT, pending=_COUNT,
        in_flight=_COUNT, dead=_COUNT, expired=_COUNT, retried=_COUNT, lag=_COUNT, lag_seconds=_NUMBER,
        oldest_at=INSTANT, created_at=INSTANT,
    ),
}  # fmt: skip


class _Pages(NamedTuple):
    """How a table is read queue by queue and page by page: the column that tells where the next page begins, the rows of a page, and
    the column of the time from which rows can be asked for.
    """

    column: str
    rows: int
    time: str


_PLACES: dict[Table, _Pages] = {
    "leases": _Pages("position", LEASE_ROWS, "settled_at"),
    "dead_letters": _Pages("seq", LETTER_ROWS, "failed_at"),
}


def filters(options: SourceOptions) -> dict[str, Filter]:
    """The columns of a table whose filters reach the server. Dead letters may be named by the queue that they come from."""
    if options.table not in _PLACES:
        return {}
    found: dict[str, Filter] = {_PLACES[options.table].time: "range"}
    if options.table == "leases" or not (options.queues or options.pattern):
        found["queue"] = "set"
    return found


def _since(table: Table, options: SourceOptions) -> datetime | None:
    """The time from which rows are wanted, by an option or a filter."""
    if table not in _PLACES:
        return None
    low, _ = options.push_down.ranges.get(_PLACES[table].time, (None, None))
    return options.starting_at if low is None else max(options.starting_at or EPOCH, instant(low))


class TableReader(DataSourceReader):
    """Reads a table: a long one in several tasks, each with some queues, a short one in one task."""

    def __init__(self, table: Table, options: SourceOptions, schema: pa.Schema) -> None:
        if options.starting_at is not None and table not in _PLACES:
            raise SkepError(Code.INVALID_REQUEST, f"the option startingTimestamp says nothing of the table {table}")
        self._since = _since(table, options)
        self._table = table
        self._options = options
        self._schema = schema

    def partitions(self) -> list[InputPartition]:
        """For a long table, the queues of each task; else one task."""
        if self._table not in _PLACES:
            return [InputPartition(None)]
        queues = self._queues(link(self._options.connection))
        count = max(TASKS_PER_CORE * (os.cpu_count() or 1), self._options.min_partitions or 0)
        return [InputPartition(tuple(queues[place::count])) for place in range(min(count, len(queues)))]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of the task's queues; of a short table, all wanted rows."""
        server = link(self._options.connection)
        if self._table not in _PLACES:
            wanted = pa.array(self._queues(server), pa.string()) if self._named else None
            for batch in server.table(self._table):
                yield self._rows(batch if wanted is None else batch.filter(pc.is_in(batch.column("queue"), wanted)))
            return
        for queue in partition.value or ():  # Spark makes one partition without a value where there is no queue
            try:
                for batch in self._pages(server, queue):
                    yield self._rows(batch)
            except SkepError as error:
                if error.code is not Code.QUEUE_NOT_FOUND or self._options.fail_on_data_loss:
                    raise
                offset_ranges.lose(self._options, offset_ranges.deleted(queue))

    @property
    def _named(self) -> bool:
        return bool(self._options.queues) or self._options.pattern is not None

    def _queues(self, server: Link) -> list[str]:
        """The subscribed queues; without a subscription all queues, for dead letters all dead-letter queues."""
        if self._named:
            names = list(offset_ranges.subscribed(server, self._options))
        else:
            names = [one.name for one in server.queues() if self._table != "dead_letters" or one.holds_dead_letters]
        wanted = self._options.push_down.sets.get("queue")
        return [name for name in names if wanted is None or name in wanted]

    def _pages(self, server: Link, queue: str) -> Iterator[pa.RecordBatch]:
        column, page_rows, _ = _PLACES[self._table]
        since = {} if self._since is None else {"since": self._since.isoformat()}
        after = 0
        while True:
            rows = 0
            for batch in server.table(self._table, queue=queue, after=str(after), limit=str(page_rows), **since):
                if batch.num_rows:
                    rows += batch.num_rows
                    after = batch.column(column)[-1].as_py()
                    yield batch
            if rows < page_rows:
                return

    def _rows(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        columns = [
            header_maps(batch.column("headers"))
            if field.name == "headers"
            else fitted(batch.column(field.name), field.type)
            for field in self._schema
        ]
        return pa.RecordBatch.from_arrays(columns, schema=self._schema)
