"""`write` and `writeStream` with `format("skep")`: rows become messages, each exactly once by default (option `delivery`).

Tasks stage their rows on the server, where nobody sees them, under the query, the epoch (the number of the batch), the
partition and the attempt. The driver's commit then publishes one attempt of each partition, all of them in one transaction
and once per query and epoch. So an epoch is there whole and once, whatever is retried, killed or restarted. Rows of an epoch
that was published before are passed over, but counted: another number of rows, or other queues, means another epoch. Their contents
are not compared: a query may rightly give other rows when it runs again.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING
from uuid import uuid4

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage

from skep.errors import Code, SkepError
from skep.spark.link import Link, SpreadCalls, link
from skep.spark.options import SinkOptions
from skep.spark.portions import STAGE_BYTES, encoded, gathered, without_nulls
from skep.wire.staging import Attempt, PublishedAnswer

if TYPE_CHECKING:
    from types import TracebackType

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
"""The columns of a row and their types. All but the payload may be missing or null."""
PUSH_ROWS, PUSH_BYTES = 10_000, 4 * 1024 * 1024
"""The most of one push: the server's limit of messages, and half of its limit of bytes, since headers are longer as JSON."""
QUERY_PROPERTY, EPOCH_PROPERTY = "sql.streaming.queryId", "streaming.sql.batchId"
"""Spark's properties of a streaming task: its query and its batch, the same after restarts. The writer is told neither."""

log = logging.getLogger("skep.spark")


@dataclass
class Written(WriterCommitMessage):
    """A task's commit message to the driver: how many rows it had, for which queues, and where they are staged. ``passed_over`` means
    that the epoch had been published before.
    """

    query: str
    epoch: int
    partition: int
    attempt: int
    rows: int = 0
    queues: frozenset[str] = frozenset()
    passed_over: bool = False

    def count(self, rows: Sequence[pa.RecordBatch], queue: str | None) -> None:
        """Count rows, and note their queues; ``queue`` is for rows that name none."""
        self.rows += sum(batch.num_rows for batch in rows)
        for batch in rows:
            named = batch.column("queue").unique().to_pylist() if "queue" in batch.schema.names else [None]
            self.queues |= {name for name in (one or queue for one in named) if name}


def checked(schema: StructType, options: SinkOptions, overwrite: bool) -> None:
    """Refuse rows that cannot become messages, before any row is read."""
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
        raise SkepError(
            Code.INVALID_REQUEST,
            'say where to write: .option("queue", "orders"), or a column queue; of a table that was made by CREATE TABLE Spark '
            "forgets the options: write a DataFrame instead",
        )


class Writing:
    """The common part of the writers of tables and of streams."""

    def __init__(self, options: SinkOptions) -> None:
        self._options = options

    def written(self, batches: Iterator[pa.RecordBatch], query: str, epoch: int) -> Written:
        """Stage the rows of a task; with delivery at-least-once, push them."""
        context = TaskContext.get()
        partition = 0 if context is None else context.partitionId()
        # Spark's own attempt numbers start again with every restart of the driver.
        told = Written(query, epoch, partition, uuid4().int >> 65)
        server = link(self._options.connection)
        batches = map(without_nulls, batches)
        if self._options.delivery == "at-least-once":
            self._push(server, batches, told)
            return told
        calls = self._calls(server, told)
        told.passed_over = server.patiently(lambda: calls.staging(query, epoch)).published
        with OneAhead() as sender:
            for chunk, rows in enumerate(gathered(batches, self._options.stage_rows, STAGE_BYTES)):
                if not told.passed_over:
                    sender.send(partial(self._stage, server, told, chunk, encoded(rows)))
                told.count(rows, self._options.queue)
        return told

    def _stage(self, server: Link, told: Written, chunk: int, rows: bytes) -> None:
        """Stage a portion. If the epoch was published meanwhile, note that instead."""
        where, calls = (told.query, told.epoch, told.partition, told.attempt), self._calls(server, told)
        try:
            server.patiently(lambda: calls.stage(*where, rows, chunk=chunk, queue=self._options.queue))
        except SkepError as error:
            if error.code is not Code.EPOCH_PUBLISHED:
                raise
            told.passed_over = True

    def _push(self, server: Link, batches: Iterator[pa.RecordBatch], told: Written) -> None:
        query = {} if self._options.queue is None else {"queue": self._options.queue}
        with OneAhead() as sender:
            for rows in gathered(batches, min(PUSH_ROWS, self._options.stage_rows), PUSH_BYTES):
                stream = encoded(rows)
                # A push that was answered well is stored, or safe in the server's hands.
                sender.send(partial(server.push, stream, lambda _: None, query, self._calls(server, told)))
                told.count(rows, self._options.queue)

    def _calls(self, server: Link, told: Written) -> SpreadCalls:
        """The calls of a task, all to the same server, and those of other tasks to others."""
        return server.about(told.query, told.epoch, told.partition)

    def publish(self, messages: Sequence[WriterCommitMessage | None], cure: str) -> None:
        """Publish what the tasks of an epoch staged. Refuse an epoch that was published before with other rows."""
        told = [
            message for message in messages if isinstance(message, Written) and (message.rows or message.passed_over)
        ]
        if not told or self._options.delivery == "at-least-once":
            return
        server = link(self._options.connection)
        query, epoch = told[0].query, told[0].epoch
        calls = server.about(query, epoch)
        staged = [Attempt(one.partition, one.attempt, one.rows) for one in told if not one.passed_over]
        answer = (
            server.patiently(lambda: calls.publish(query, epoch, staged))
            if staged
            else server.patiently(lambda: calls.staging(query, epoch)).answer
        )
        check_same(told, answer or PublishedAnswer(query, epoch), cure)

    def forget(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Drop what the tasks of an epoch staged. If that fails, the server's reaper drops it later."""
        told = [message for message in messages if isinstance(message, Written)]
        if told and self._options.delivery == "exactly-once":
            try:
                link(self._options.connection).client.abort_staging(told[0].query, told[0].epoch)
            except SkepError as error:
                log.warning("what was staged stays until the server clears it: %s", error)


class OneAhead:
    """Sends a portion while the next one is gathered, so that Spark makes rows and the server stores rows at the same time.

    The next send, or the exit, raises the error of a failed portion. The exit always waits for the last portion, also after an
    error: the next task of this process uses the same connection.
    """

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(1, "skep-sink")
        self._sent: Future[None] | None = None

    def __enter__(self) -> OneAhead:
        return self

    def send(self, portion: Callable[[], None]) -> None:
        """Wait until the previous portion is sent, then start to send this one."""
        if self._sent is not None:
            self._sent.result()
        self._sent = self._thread.submit(portion)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._thread.shutdown()
        if error is None and self._sent is not None:
            self._sent.result()


def check_same(told: Sequence[Written], answer: PublishedAnswer, cure: str) -> None:
    """Refuse an epoch whose number of rows or whose queues differ from what was published under its number."""
    now = sum(one.rows for one in told), sorted(frozenset().union(*(one.queues for one in told)))
    then = answer.messages + answer.duplicates + answer.scheduled, sorted(answer.queues)
    if now != then:
        raise SkepError(
            Code.EPOCH_PUBLISHED,
            f"epoch {answer.epoch} of {answer.query!r} was written before, as {_said(*then)}, and now it is {_said(*now)}. "
            f"What it is now is not written: {cure}",
            query=answer.query, epoch=answer.epoch,
        )  # fmt: skip


def _said(rows: int, queues: Sequence[str]) -> str:
    shown = ", ".join(queues[:3]) + (f" and {len(queues) - 3} more" if len(queues) > 3 else "")
    return f"{rows} row{'' if rows == 1 else 's'} for {shown}" if rows else "no rows"


class TableWriter(DataSourceArrowWriter):
    """Writes a table, as the one epoch of a query. `writeId` names that query; by default it is a new one."""

    def __init__(self, options: SinkOptions) -> None:
        self._writing = Writing(options)
        self._query = f"write-{options.write_id or uuid4().hex}"

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        """In a task: stage its rows."""
        return self._writing.written(iterator, self._query, 0)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """On the driver: make them visible."""
        self._writing.publish(messages, "a writeId is for one write; give this one another.")

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """On the driver: drop them."""
        self._writing.forget(messages)


class StreamWriter(DataSourceStreamArrowWriter):
    """Writes a stream, batch by batch."""

    def __init__(self, options: SinkOptions) -> None:
        self._writing = Writing(options)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        """In a task: stage its rows under the query and the epoch that Spark's properties name."""
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
        self._writing.publish(
            messages,
            "the checkpoint was put back to an older state, or what the query reads gives other rows when it is read again. "
            "Start it with a checkpointLocation of its own, and with startingOffsets where the rows begin that are still to "
            "be written.",
        )

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: ARG002, N803 - Spark's
        """On the driver: drop them."""
        self._writing.forget(messages)
