"""The input of pipelines: messages, leases and dead letters as frames, and the ends of the logs."""

from __future__ import annotations

import json
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, NamedTuple

from msgspec.structs import replace

from skep.errors import Code, SkepError
from skep.spark.link import Link, link
from skep.spark.offsets import packed, split, stretches
from skep.spark.options import ServerConnection, source_options
from skep.spark.running.log_rows import LogRows
from skep.spark.running.sealing import SealedReason, sealed
from skep.spark.running.stretches import Stretch, merged
from skep.spark.source import Portion, QueuePart
from skep.wire.log import LogBoundsResponse as Bounds

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, DataFrameReader, SparkSession


TRACED = ("queue", "partition", "seq", "trace_id", "created_at")
BURIED = ("source_queue", "source_seq", "group", "partition", "trace_id", "reason", "created_at", "failed_at")
TRACED_SCHEMA = "queue string, partition string, seq bigint, trace_id string, created_at timestamp"
MOST_STRETCHES = 8
"""The most parts of a log that are read separately. Where there are more, the gaps between some of them are read, too."""


class Activity(NamedTuple):
    """The activity of some queues: leases and dead letters since a time, the messages of these leases, and new messages."""

    messages: DataFrame
    leases: DataFrame
    dead_letters: DataFrame
    through: dict[str, int]
    """The last seq of each queue."""
    logs: dict[str, int]
    """The log of each queue."""
    groups: list[tuple[str, str]]
    as_of: datetime | None
    """All activity up to this instant is included, except what was committed late."""
    rows: dict[str, int]
    """The numbers of messages and leases that were read."""


class Inputs:
    """A server and some of its queues, as Spark sees them."""

    def __init__(
        self,
        spark: SparkSession,
        connection: ServerConnection,
        queues: Sequence[str] = (),
        *,
        skip: Sequence[str] = (),
        fail_on_data_loss: bool = True,
    ) -> None:
        self._spark = spark
        self.connection = connection
        self._fails = fail_on_data_loss
        self._skip = frozenset(skip)
        self.link: Link = link(connection)
        self.queues: list[str] = []
        self.gone: set[str] = set()
        """Queues that were deleted during the run. A new queue of the same name is left out, too."""
        self._missed: list[str] = []
        self._sealed: Mapping[str, SealedReason] | None = None
        self._known: set[str] = set()
        self._seen: list[tuple[datetime | None, Mapping[str, int], Activity]] = []
        self.refresh(queues)

    def refresh(self, queues: Sequence[str]) -> list[str]:
        """Forget the known activity and list the queues again; return the queues that were deleted."""
        for _, _, activity in self._seen:
            activity.messages.unpersist()
            activity.leases.unpersist()
            activity.dead_letters.unpersist()
        self._seen = []
        there = set(self.link.bounds_of(queues)) if queues else set(self.link.queue_names())
        lost = sorted({*self.take_missed(), *(self._known - there).intersection(self.queues)})
        self.gone |= set(lost)
        self._known |= there
        # A queue that the user named and that never existed stays: reading it raises the error.
        self.queues = [queue for queue in queues or sorted(there) if queue not in self.gone | self._skip]
        self._sealed = None
        return lost

    def sealed(self) -> Mapping[str, SealedReason]:
        """The queues whose payloads the server keeps encrypted, and why."""
        if self._sealed is None:
            self._sealed = sealed(self.link.queues())
        return self._sealed

    def bounds(self) -> dict[str, Bounds]:
        """The present bounds of each log, without queues that were deleted meanwhile."""
        together = self.looked_at_together()
        found = {queue: together.get(queue) or self.bounds_of(queue) for queue in list(self.queues)}
        return {queue: one for queue, one in found.items() if one is not None}

    def looked_at_together(self) -> dict[str, Bounds]:
        """The present bounds of the logs, some hundreds in a request. Ask for a missing queue alone, so that its error names that queue."""
        try:
            return self.link.bounds_of(self.queues)
        except SkepError as error:
            if error.retryable or error.code is Code.UNAUTHENTICATED:
                raise
            return {}

    def bounds_of(self, queue: str) -> Bounds | None:
        """The present bounds of a log; None when the queue was deleted meanwhile."""
        try:
            return self.link.bounds(queue)
        except SkepError as error:
            if error.code is Code.QUEUE_NOT_FOUND and self.miss(queue):
                return None
            raise

    def miss(self, queue: str) -> bool:
        """Whether a queue was deleted since the run began. If so, it is left out from now on."""
        if queue not in self._known or self.link.bounds_of([queue]):
            return False
        if queue in self.queues:
            self.queues.remove(queue)
            self.gone.add(queue)
            self._missed.append(queue)
        return True

    def take_missed(self) -> list[str]:
        """The queues that were found deleted since the last call."""
        missed, self._missed = self._missed, []
        return missed

    def messages(
        self,
        columns: Sequence[str] = (),
        start: Mapping[str, int] | None = None,
        end: Mapping[str, int] | None = None,
        *,
        fails: bool | None = None,
        fails_on_shredded: bool = True,
    ) -> DataFrame:
        """The messages after the seqs ``start`` up to the seqs ``end``; without them, all messages.

        What cannot be opened, since its key was destroyed, is an error, or has no payload.
        """
        queues = list(end if end is not None else self.queues)
        reader = self._reader(self._fails if fails is None else fails).option("subscribe", json.dumps(queues))
        reader = reader.option("failOnShredded", str(fails_on_shredded))
        if columns:
            reader = reader.option("columns", ",".join(columns))
        if start is not None:
            reader = reader.option("startingOffsets", json.dumps(dict(start)))
        if end is not None:
            reader = reader.option("endingOffsets", json.dumps(dict(end)))
        return reader.load()

    def log_rows(
        self,
        start: Mapping[str, int],
        end: Mapping[str, int],
        logs: Mapping[str, int],
        generations: Mapping[str, int],
        plain: Sequence[str] = (),
        cores: int | None = None,
    ) -> list[LogRows]:
        """The messages after the seqs ``start`` up to the seqs ``end``, as the tasks of the archive fetch them: so many that all ``cores`` (by
        default, those of Spark) have work. Encrypted queues stay sealed, but for the ``plain`` ones.
        """
        given = {**options_of(self.connection), "subscribe": json.dumps(list(end)), "failOnDataLoss": str(self._fails)}
        options, cores = replace(source_options(given), plain=frozenset(plain)), cores or _cores(self._spark)
        tasks = packed(split(stretches(start, end), None, cores), None, cores)
        return [
            LogRows(options, Portion([QueuePart(one, logs[one.queue]) for one in task]), generations) for task in tasks
        ]

    def activity(self, since: datetime | None = None, through: Mapping[str, int] | None = None) -> Activity:
        """The activity since a time, and all messages after some seqs. It is read once a pass, for all pipelines.

        Without both it is all that the server has.
        """
        through = through or {}
        for known_since, known_through, known in self._seen:
            if (known_since, known_through) == (since, through):
                return known
        found = self._look(since, through)
        self._seen.append((since, dict(through), found))
        return found

    def _look(self, since: datetime | None, through: Mapping[str, int]) -> Activity:
        from pyspark.sql import functions as F  # noqa: N812 - as everyone writes it

        from skep.spark.pipelines.journeys import expired

        bounds, began = self.bounds(), time.monotonic()
        leases = self.leases(since).cache()
        of_leases: dict[str, list[Stretch]] = defaultdict(list)
        if since is not None:  # else all messages are read, whatever leases name
            for row in named_by(leases, MOST_STRETCHES).collect():
                of_leases[row["queue"]].append(Stretch(row["first"], row["last"]))
        took = timedelta(seconds=time.monotonic() - began)
        letters = self.dead_letters(since).select(*BURIED).cache()
        # A group whose messages all expired has no leases.
        unleased = (
            expired(letters).select(F.col("source_queue").alias("queue"), "group").withColumn("settled_at", F.lit(None))
        )
        groups = (
            leases.select("queue", "group", "settled_at")
            .unionByName(unleased)
            .groupBy("queue", "group")
            .agg(F.count("settled_at").alias("leases"), F.max("settled_at").alias("newest"))
            .collect()
        )
        begins = self._begins(bounds, since, through)
        stretches = {
            queue: _wanted(held, begins.get(queue), through.get(queue, 0), of_leases[queue])
            for queue, held in bounds.items()
            if held.last_seq >= held.first_seq
        }
        messages = self._stretches(stretches).cache()
        # Everything that was committed before the logs, or before the leases, were read is included.
        instants = [held.last_created_at for held in bounds.values() if held.last_created_at is not None]
        instants += [row["newest"].astimezone(UTC) - took for row in groups if row["newest"] is not None]
        return Activity(
            messages, leases, letters, {queue: held.last_seq for queue, held in bounds.items()},
            {queue: held.log for queue, held in bounds.items()},
            sorted((row["queue"], row["group"]) for row in groups), max(instants, default=None),
            {"messages": messages.count(), "leases": sum(row["leases"] for row in groups)},
        )  # fmt: skip

    def _begins(
        self, bounds: Mapping[str, Bounds], since: datetime | None, through: Mapping[str, int]
    ) -> dict[str, int]:
        """The first seq of each log since a time. Logs that were never seen, or were deleted and made anew since then, are left out."""
        if since is None:
            return {}
        seen = {queue: held for queue, held in bounds.items() if 0 < through.get(queue, 0) <= held.last_seq}
        # Where nothing was pushed since then, the server need not be asked for the seq of that time.
        quiet = {
            queue: held.last_seq + 1
            for queue, held in seen.items()
            if held.last_created_at is not None and held.last_created_at < since
        }
        return quiet | self.link.first_seqs_at([queue for queue in seen if queue not in quiet], since)

    def _stretches(self, wanted: Mapping[str, Sequence[Stretch]]) -> DataFrame:
        found = self._spark.createDataFrame([], TRACED_SCHEMA)
        for place in range(max(map(len, wanted.values()), default=0)):
            parts = {queue: each[place] for queue, each in wanted.items() if place < len(each)}
            start = {queue: part.first - 1 for queue, part in parts.items()}
            end = {queue: part.last for queue, part in parts.items()}
            # What retention removes meanwhile is no loss for these tables.
            found = found.unionByName(self.messages(TRACED, start, end, fails=False))
        return found

    def leases(self, since: datetime | None = None) -> DataFrame:
        """How the leases of the queues ended, as far as the server remembers."""
        return self._table("leases", since)

    def dead_letters(self, since: datetime | None = None) -> DataFrame:
        """The present dead letters of the queues."""
        # The same letter comes with its queue and with its dead-letter queue.
        letters = self._table("dead_letters", since).dropDuplicates(["queue", "seq"])
        return letters.where(letters["source_queue"].isin(self.queues))

    def _table(self, name: str, since: datetime | None) -> DataFrame:
        # A queue that is deleted meanwhile is no loss here.
        reader = self._reader(False).option("table", name).option("subscribe", json.dumps(self.queues))
        return (reader if since is None else reader.option("startingTimestamp", since.isoformat())).load()

    def stream(self, queue: str, most_rows: int) -> DataFrame:
        """The messages of a queue as a stream."""
        reader = self._spark.readStream.format("skep").options(
            **options_of(self.connection), failOnDataLoss=self._fails
        )
        return reader.option("maxOffsetsPerTrigger", most_rows).load(queue)

    def _reader(self, fails: bool) -> DataFrameReader:
        return self._spark.read.format("skep").options(**options_of(self.connection), failOnDataLoss=fails)


def _cores(spark: SparkSession) -> int | None:
    """How many tasks Spark runs at once; None when that is not known, as over Spark Connect."""
    try:
        return int(spark.sparkContext.defaultParallelism)
    except Exception:  # Spark Connect has no context, and says so by errors of its own
        return None


def named_by(leases: DataFrame, most: int) -> DataFrame:
    """The stretches of each queue that leases are about, at most so many: parts with the smallest gaps between them are joined, as by
    `merged`. Spark does it, since there is a part for each thousand messages.
    """
    from pyspark.sql import Window
    from pyspark.sql import functions as F  # noqa: N812 - as everyone writes it

    from skep.spark.pipelines.attempts import BIN_SEQS, in_bins

    begin = F.col("bin") * BIN_SEQS
    parts = (
        in_bins(leases)
        .groupBy("queue", "bin")
        .agg(
            F.min(F.greatest("first_seq", begin)).alias("first"),
            F.max(F.least("last_seq", begin + (BIN_SEQS - 1))).alias("last"),
        )
    )
    by_queue = Window.partitionBy("queue")
    gap = F.col("first") - F.lag("last").over(by_queue.orderBy("bin"))
    place = F.row_number().over(by_queue.orderBy(F.col("gap").desc_nulls_last()))
    parts = parts.withColumn("gap", gap).withColumn(
        "begins", F.when((place < most) & (F.col("gap") > 1), 1).otherwise(0)
    )
    numbered = parts.withColumn("number", F.sum("begins").over(by_queue.orderBy("bin")))
    return numbered.groupBy("queue", "number").agg(F.min("first").alias("first"), F.max("last").alias("last"))


def _wanted(held: Bounds, begin: int | None, after: int, named: Sequence[Stretch]) -> list[Stretch]:
    """The needed parts of a log: the messages of leases, those from ``begin`` on, and those after ``after``; without a beginning, all."""
    whole = Stretch(held.first_seq, held.last_seq)
    if begin is None:
        return [whole]
    return merged([*named, Stretch(min(after + 1, begin), whole.last)], whole, MOST_STRETCHES)


def options_of(connection: ServerConnection) -> dict[str, str]:
    """A connection as options of source and sink."""
    options = {
        "url": ",".join(connection.urls), "tenant": connection.tenant, "retrySeconds": str(connection.retry_seconds),
    }  # fmt: skip
    return options if connection.token is None else {**options, "token": connection.token}
