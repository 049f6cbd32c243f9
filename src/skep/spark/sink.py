"""`write` and `writeStream` with `format("skep")`: rows become messages, each exactly once if nothing else is asked for.

Tasks stage their rows on the server, where nobody sees them, under the query, the epoch (the number of the batch), the
partition and the attempt. The driver's commit then makes one attempt of each partition visible, all of them in one transaction
and once per query and epoch. So whatever is tried again, killed or restarted, an epoch is there whole and once.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING
from uuid import uuid4

import pyarrow as pa
import pyarrow.compute as pc
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage

from skep.client.exchange import Answer
from skep.errors import Code, SkepError
from skep.model import DEFAULT_PARTITION
from skep.spark.link import Link, link
from skep.spark.options import SinkOptions
from skep.wire.staging import Attempt

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

TYPES = {
    "queue": ("string",),
    "partition": ("string",),
    "payload": ("string", "binary"),
    "headers": ("map<string,string>",),
    "trace_id": ("string",),
    "transaction_id": ("string",),
    "deliver_at": ("timestamp",),
    "priority": ("int", "bigint", "smallint", "tinyint"),
    "content_type": ("string",),
}
"""What a row may have; all but the payload may be missing or null."""
PLAIN = frozenset({"partition", "payload"})
PUSH_ROWS = 10_000
"""In one push of more than partitions and payloads; the server takes no more."""
STAGE_BYTES = 16 * 1024 * 1024
"""What a task gathers before it sends it; less than the server takes at once."""
QUERY_PROPERTY, EPOCH_PROPERTY = "sql.streaming.queryId", "streaming.sql.batchId"
"""How Spark tells tasks of a stream whose they are, over restarts the same. It tells the writer itself neither."""

log = logging.getLogger("skep.spark")


@dataclass
class Written(WriterCommitMessage):
    """What a task tells the driver: where its rows are staged, if it staged any."""

    query: str
    epoch: int
    partition: int
    attempt: int
    rows: int


def checked(schema: StructType, options: SinkOptions, overwrite: bool) -> None:
    """Refuse rows that cannot become messages, before any of them is touched."""
    if overwrite:
        raise SkepError(Code.INVALID_REQUEST, 'a queue cannot be overwritten; write with .mode("append")')
    found = {field.name: field.dataType.simpleString() for field in schema.fields}
    if "payload" not in found:
        raise SkepError(
            Code.INVALID_REQUEST,
            f"there is no column payload among {', '.join(found) or 'none'}; make one, such as "
            'F.to_json(F.struct("*")).alias("payload")',
        )
    if unknown := found.keys() - TYPES.keys():
        raise SkepError(
            Code.INVALID_REQUEST,
            f"a message has no {', '.join(sorted(unknown))}; leave it out, or put it into the payload. "
            f"There are {', '.join(TYPES)}",
        )
    for name, kind in found.items():
        if kind not in TYPES[name]:
            raise SkepError(
                Code.INVALID_REQUEST, f"the column {name} is {' or '.join(TYPES[name][:2])}, not {kind}; cast it"
            )
    if options.queue is None and "queue" not in found:
        raise SkepError(Code.INVALID_REQUEST, 'say where to write: .option("queue", "orders"), or a column queue')


class Writing:
    """What writers of tables and of streams have in common."""

    def __init__(self, options: SinkOptions) -> None:
        self._options = options

    def written(self, batches: Iterator[pa.RecordBatch], query: str, epoch: int) -> Written:
        """Stage the rows of a task, or push them where once at least is enough."""
        context = TaskContext.get()
        partition = 0 if context is None else context.partitionId()
        # The number of Spark's own attempt begins anew with every restart of the driver.
        told = Written(query, epoch, partition, uuid4().int >> 65, 0)
        server = link(self._options.connection)
        if self._options.delivery == "at-least-once":
            told.rows = self._push(server, batches)
            return told
        if server.patiently(lambda: server.client.staging(query, epoch)).published:
            return _passed_over(batches, told)
        for chunk, rows in enumerate(gathered(batches, self._options.stage_rows)):
            try:
                self._stage(server, told, chunk, encoded(rows))
            except SkepError as error:
                if error.code is Code.EPOCH_PUBLISHED:
                    return _passed_over(batches, told)
                raise
            told.rows += sum(batch.num_rows for batch in rows)
        return told

    def _stage(self, server: Link, told: Written, chunk: int, rows: bytes) -> None:
        where = (told.query, told.epoch, told.partition, told.attempt)
        server.patiently(lambda: server.client.stage(*where, rows, chunk=chunk, queue=self._options.queue))

    def _push(self, server: Link, batches: Iterator[pa.RecordBatch]) -> int:
        count = 0
        query = {} if self._options.queue is None else {"queue": self._options.queue}
        for batch in batches:
            # More columns than these go message by message, in smaller portions.
            plain = self._options.queue is not None and set(batch.schema.names) <= PLAIN
            most = batch.num_rows if plain else PUSH_ROWS
            for start in range(0, batch.num_rows, most or 1):
                part = batch.slice(start, most)
                server.send("/api/v1/push", encoded([without_nulls(part)]), _stored, query)
                count += part.num_rows
        return count

    def publish(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Make visible what the tasks of an epoch staged."""
        told = [message for message in messages if isinstance(message, Written) and message.rows]
        if told and self._options.delivery == "exactly-once":
            server = link(self._options.connection)
            attempts = [Attempt(message.partition, message.attempt, message.rows) for message in told]
            server.patiently(lambda: server.client.publish(told[0].query, told[0].epoch, attempts))

    def forget(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Drop what the tasks of an epoch staged; what cannot be dropped now the server's reaper does."""
        told = [message for message in messages if isinstance(message, Written)]
        if told and self._options.delivery == "exactly-once":
            try:
                link(self._options.connection).client.abort_staging(told[0].query, told[0].epoch)
            except SkepError as error:
                log.warning("what was staged stays until the server clears it: %s", error)


def _passed_over(batches: Iterator[pa.RecordBatch], told: Written) -> Written:
    """A batch is run again after all of it was done: its rows are read to their end, as Spark expects, and left alone."""
    for _ in batches:
        pass
    told.rows = 0
    return told


class TableWriter(DataSourceArrowWriter):
    """Writes a table: one epoch of a query of its own, or of the one that `writeId` names."""

    def __init__(self, options: SinkOptions) -> None:
        self._writing = Writing(options)
        self._query = f"write-{options.write_id or uuid4().hex}"

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        """In a task: stage its rows."""
        return self._writing.written(iterator, self._query, 0)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """On the driver: make them visible."""
        self._writing.publish(messages)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """On the driver: drop them."""
        self._writing.forget(messages)


class StreamWriter(DataSourceStreamArrowWriter):
    """Writes a stream, batch by batch."""

    def __init__(self, options: SinkOptions) -> None:
        self._writing = Writing(options)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        """In a task: stage its rows under the query and the epoch that Spark's own properties name."""
        context = TaskContext.get()
        query = None if context is None else context.getLocalProperty(QUERY_PROPERTY)
        epoch = None if context is None else context.getLocalProperty(EPOCH_PROPERTY)
        if query is None or epoch is None:
            raise SkepError(
                Code.INTERNAL,
                f"this Spark does not tell its tasks which query they belong to ({QUERY_PROPERTY}); write with "
                "delivery=at-least-once, or by foreachBatch with a writeId of the query and the batch",
            )
        return self._writing.written(iterator, query, int(epoch))

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: ARG002, N803 - Spark's
        """On the driver, in a process of its own: make them visible."""
        self._writing.publish(messages)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: ARG002, N803 - Spark's
        """On the driver: drop them."""
        self._writing.forget(messages)


def gathered(batches: Iterator[pa.RecordBatch], most_rows: int) -> Iterator[list[pa.RecordBatch]]:
    """Batches in portions of so many rows, and not too many bytes; a batch is cut where it alone would be too much."""
    portion: list[pa.RecordBatch] = []
    rows = size = 0
    for batch in batches:
        for piece in _pieces(batch, most_rows):
            if portion and (rows + piece.num_rows > most_rows or size + piece.nbytes > STAGE_BYTES):
                yield portion
                portion, rows, size = [], 0, 0
            portion.append(piece)
            rows += piece.num_rows
            size += piece.nbytes
    if portion:
        yield portion


def _pieces(batch: pa.RecordBatch, most_rows: int) -> Iterator[pa.RecordBatch]:
    if not batch.num_rows:
        return
    fitting = max(1, int(batch.num_rows * min(1.0, STAGE_BYTES / max(1, batch.nbytes))))
    for start in range(0, batch.num_rows, min(most_rows, fitting)):
        yield batch.slice(start, min(most_rows, fitting))


def without_nulls(batch: pa.RecordBatch) -> pa.RecordBatch:
    """A null partition is the default one."""
    index = batch.schema.get_field_index("partition")
    if index < 0 or not batch.column(index).null_count:
        return batch
    filled = pc.fill_null(batch.column(index), DEFAULT_PARTITION)
    return batch.set_column(index, "partition", filled)


def encoded(batches: Sequence[pa.RecordBatch]) -> bytes:
    """Batches as one Arrow stream."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batches[0].schema) as writer:
        for batch in batches:
            writer.write_batch(batch)
    return bytes(sink.getvalue())


def _stored(answer: Answer) -> None:
    """A push that was answered well is stored, or safe in the server's hands."""
