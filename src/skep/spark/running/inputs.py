"""What pipelines read of a server: messages, leases and dead letters as frames, and how far the logs go."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from msgspec import Struct

from skep.client import Client
from skep.spark.link import Link, link
from skep.spark.options import Connection

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, DataFrameReader, DataFrameWriter, SparkSession


class Bounds(Struct, frozen=True):
    """Which seqs a log holds."""

    first: int
    last: int


TRACED = ("queue", "partition", "seq", "trace_id", "created_at")


class Activity(NamedTuple):
    """What happened in some queues."""

    messages: DataFrame
    leases: DataFrame
    dead_letters: DataFrame


class Inputs:
    """A server and some of its queues, as Spark sees them."""

    def __init__(
        self, spark: SparkSession, connection: Connection, queues: Sequence[str] = (), *, fail_on_data_loss: bool = True
    ) -> None:
        self._spark = spark
        self.connection = connection
        self._fails = str(fail_on_data_loss).lower()
        self.link: Link = link(connection)
        self.queues: list[str] = []
        self._activity: Activity | None = None
        self.refresh(queues)

    def refresh(self, queues: Sequence[str]) -> None:
        """Look anew: which queues there are, when none were named, and what happened in them."""
        if self._activity is not None:
            for frame in self._activity:
                frame.unpersist()
            self._activity = None
        self.queues = list(queues) or sorted(self.link.queue_names())

    @property
    def client(self) -> Client:
        """A client of the same server."""
        return self.link.client

    def bounds(self) -> dict[str, Bounds]:
        """How far each log goes now."""
        found = {queue: self.link.bounds(queue) for queue in self.queues}
        return {queue: Bounds(one.first_seq, one.last_seq) for queue, one in found.items()}

    def messages(
        self,
        columns: Sequence[str] = (),
        start: Mapping[str, int] | None = None,
        end: Mapping[str, int] | None = None,
    ) -> DataFrame:
        """The messages after some seqs up to others; all there are when none are given."""
        queues = list(end if end is not None else self.queues)
        reader = self._reader().option("subscribe", json.dumps(queues))
        if columns:
            reader = reader.option("columns", ",".join(columns))
        if start is not None:
            reader = reader.option("startingOffsets", json.dumps(dict(start)))
        if end is not None:
            reader = reader.option("endingOffsets", json.dumps(dict(end)))
        return reader.load()

    def activity(self) -> Activity:
        """Messages without their payloads, and what became of them: read once, however many pipelines want it."""
        if self._activity is None:
            messages = self.messages(TRACED)
            self._activity = Activity(messages.cache(), self.leases().cache(), self.dead_letters().cache())
        return self._activity

    def leases(self) -> DataFrame:
        """How leases ended."""
        return self._table("leases")

    def dead_letters(self) -> DataFrame:
        """What was given up on, and is neither replayed nor purged."""
        # A queue and its dead-letter queue name the same letters.
        letters = self._table("dead_letters").dropDuplicates(["queue", "seq"])
        return letters.where(letters["source_queue"].isin(self.queues))

    def _table(self, name: str) -> DataFrame:
        return self._reader().option("table", name).option("subscribe", json.dumps(self.queues)).load()

    def stream(self, queue: str, most_rows: int) -> DataFrame:
        """The messages of a queue as a stream."""
        reader = self._spark.readStream.format("skep").options(**self._options(), failOnDataLoss=self._fails)
        return reader.option("maxOffsetsPerTrigger", most_rows).load(queue)

    def writer(self, frame: DataFrame) -> DataFrameWriter:
        """What writes rows into queues of the server."""
        return frame.write.format("skep").options(**self._options())

    def _reader(self) -> DataFrameReader:
        return self._spark.read.format("skep").options(**self._options(), failOnDataLoss=self._fails)

    def _options(self) -> dict[str, str]:
        connection = self.connection
        options = {
            "url": ",".join(connection.urls), "tenant": connection.tenant, "retrySeconds": str(connection.retry_seconds),
        }  # fmt: skip
        return options if connection.token is None else {**options, "token": connection.token}
