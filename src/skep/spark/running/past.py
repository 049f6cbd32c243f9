"""A past time as the lake has it: the activity of metrics and journeys, from the archived messages, leases and dead letters.

The frames have the columns of the server's tables, so pipelines compute the same from both. Seqs of an earlier generation are moved
far below those of the present one, so that no message is taken for one of another log; `SEQS` divides them again.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from msgspec import Struct
from pyspark.sql import functions as F  # noqa: N812 - as everyone writes it

from skep.errors import Code, SkepError
from skep.spark.lake.reading import frame_of
from skep.spark.lake.rows import FIRST
from skep.spark.pipelines.archive import by_queue
from skep.spark.pipelines.attempts import BIN_SEQS
from skep.spark.running.context import Context
from skep.spark.running.inputs import BURIED, TRACED, Activity
from skep.spark.running.keeping import KeptTable

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    from skep.spark.lake.files import LakeFile

LEASES, LETTERS = "leases", "letters"
"""The tables of the lake that the pipeline `history` keeps."""
ENDED = {LEASES: "settled_at", LETTERS: "failed_at"}
SEQS = 1 << 44
"""So many seqs lie between two generations of a queue."""
PLACED = ("queue", "generation", "partition", "seq", "trace_id", "created_at")
TIMES = "queue string, generation int, group string, partition_hash bigint"
COLUMNS = {
    LEASES: f"{TIMES}, position bigint, first_seq bigint, last_seq bigint, messages bigint, completed bigint, attempt bigint, "
    "leased_at timestamp, settled_at timestamp, outcome string, hour string",
    LETTERS: f"{TIMES}, seq bigint, reason string, attempts bigint, created_at timestamp, failed_at timestamp, "
    "dead_letter_queue string, dead_letter_seq bigint, hour string",
}


class PastTime(Struct, frozen=True):
    """A time that is computed again: from ``begin`` on, before ``end``."""

    begin: datetime
    end: datetime

    def has(self, column: str) -> Column:
        """Whether a time is in it."""
        return (F.col(column) >= F.lit(self.begin)) & (F.col(column) < F.lit(self.end))

    def widened(self, step_seconds: float) -> PastTime:
        """From a border between windows of this width to the next one."""
        begin = self.begin.timestamp() // step_seconds * step_seconds
        end = -(-self.end.timestamp() // step_seconds) * step_seconds
        return PastTime(datetime.fromtimestamp(begin, UTC), datetime.fromtimestamp(end, UTC))


def past_time(context: Context) -> PastTime | None:
    """The time that the user wants to be computed again (`--since`, `--until`); None for a usual pass."""
    since, until = context.wishes.since, context.wishes.until
    if since is None and until is None:
        return None
    begin = datetime(1970, 1, 1, tzinfo=UTC) if since is None else datetime.fromisoformat(since)
    return PastTime(begin, datetime.now(UTC) + timedelta(days=1) if until is None else datetime.fromisoformat(until))


def history_table(context: Context, name: str) -> KeptTable:
    """A table that the pipeline `history` keeps."""
    return KeptTable(context.spark, context.root, name, "hour")


def activity_in(context: Context, time: PastTime) -> Activity:
    """What happened in a time: the leases and dead letters that ended in it, their messages, and the messages pushed in it."""
    leases = _rows(context, LEASES, time.has(ENDED[LEASES])).cache()
    letters = _rows(context, LETTERS, time.has(ENDED[LETTERS])).cache()
    ends = leases.groupBy("queue", "generation").agg(F.min("first_seq").alias("first"), F.max("last_seq").alias("last"))
    reach = {(row["queue"], row["generation"]): (row["first"], row["last"]) for row in ends.collect()}

    def concerns(file: LakeFile) -> bool:
        if time.begin.date().isoformat() <= file.date <= time.end.date().isoformat():
            return True
        found = [reach[key] for key in reach if key[0] == file.queue and file.generation in (key[1], None)]
        return any(file.first_seq <= last and file.last_seq >= first for first, last in found)

    named = leases.select(
        "queue", "generation", F.explode(F.sequence(_bin("first_seq"), _bin("last_seq"))).alias("bin")
    )
    named = named.distinct().withColumn("named", F.lit(True))
    archived = _archived(context, [file for file in context.lake.files(queues=context.inputs.queues) if concerns(file)])
    rows = archived.withColumn("bin", _bin("seq")).join(named, ["queue", "generation", "bin"], "left")
    return _activity(context, rows.where(F.col("named") | time.has("created_at")).select(*PLACED), leases, letters)


def journeys_in(context: Context, time: PastTime) -> Activity:
    """What became of the traces that began in a time."""
    archived = _archived(context, context.lake.files(queues=context.inputs.queues))
    there = archived.where(time.has("created_at")).select("trace_id").distinct()
    rows = archived.join(there, "trace_id", "left_semi")
    began = rows.groupBy("trace_id").agg(F.min("created_at").alias("created_at")).where(time.has("created_at"))
    later = F.lit(time.begin)
    return _activity(
        context, rows.join(began.select("trace_id"), "trace_id", "left_semi"),
        _rows(context, LEASES, F.col(ENDED[LEASES]) >= later), _rows(context, LETTERS, F.col(ENDED[LETTERS]) >= later),
    )  # fmt: skip


def messages_in(context: Context, time: PastTime, queue: str) -> DataFrame:
    """The messages of a queue that were pushed in a time, with their payloads."""
    days = time.begin.date().isoformat(), time.end.date().isoformat()
    files = [file for file in context.lake.files(queues=[queue]) if days[0] <= file.date <= days[1]]
    return frame_of(context.spark, files, opening=context.opening()).where(time.has("created_at"))


def _rows(context: Context, name: str, chosen: Column) -> DataFrame:
    """The chosen rows of a table of history. It is an error when the lake has no such table."""
    table = history_table(context, name)
    if table.reach() is None:
        raise SkepError(
            Code.INVALID_REQUEST,
            f"a past time is computed from the lake, and {context.root} has no table {name} yet: run the pipeline history, best with each archive",
        )
    like = context.spark.createDataFrame([], COLUMNS[name])
    return table.rows(like).drop("hour").where(chosen & F.col("queue").isin(list(context.inputs.queues)))


def _archived(context: Context, files: Sequence[LakeFile]) -> DataFrame:
    return frame_of(context.spark, files, PLACED)


def _bin(seq: str) -> Column:
    return F.floor(F.col(seq) / BIN_SEQS)


def _activity(context: Context, rows: DataFrame, leases: DataFrame, letters: DataFrame) -> Activity:
    """Archived rows as the server would show them."""
    rows = rows.cache()
    lake = context.lake
    newest = F.coalesce(by_queue({one: lake.generation_of(one) for one in context.inputs.queues}, "int"), F.lit(FIRST))
    below = (newest - F.col("generation")).cast("bigint") * SEQS
    hashed = F.xxhash64("partition").alias("partition_hash")
    partitions = rows.select("queue", "generation", "partition", hashed).distinct()
    # A lease whose messages were forgotten has no partition any more.
    unnamed = F.coalesce("partition", F.col("partition_hash").cast("string"))

    def placed(frame: DataFrame, *seqs: str) -> DataFrame:
        found = frame.join(partitions, ["queue", "generation", "partition_hash"], "left").withColumn(
            "partition", unnamed
        )
        return found.withColumns({name: F.col(name) - below for name in seqs})

    messages = rows.withColumn("seq", F.col("seq") - below).select(*TRACED).cache()
    traced = rows.select("queue", "generation", "seq", "trace_id")
    dead = placed(letters.join(traced, ["queue", "generation", "seq"], "left"), "seq")
    dead = dead.withColumnsRenamed({"queue": "source_queue", "seq": "source_seq"}).select(*BURIED).cache()
    ended = placed(leases, "first_seq", "last_seq").drop("generation", "partition_hash").cache()
    groups = ended.select("queue", "group").distinct().collect()
    return Activity(
        messages, ended, dead, {}, {}, sorted((row["queue"], row["group"]) for row in groups), None,
        {"messages": messages.count(), "leases": ended.count()},
    )  # fmt: skip
