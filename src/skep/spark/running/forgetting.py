"""Run `forget`: messages that a user chooses leave the log and the lake for good, with what computed tables have of them.

Spark finds the messages in the lake, and in the logs what is not in the lake yet, by their places and by an expression over their payloads. From then on only their queues,
generations and seqs count: these are noted, as files of ranges, before anything is deleted, so that a run that is killed is finished by the next one,
whatever that one is asked to forget. The note has no content of a message but its trace. The server forgets first, and keeps the seqs as tombstones;
without any choice, the lake forgets what the server has forgotten.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial, reduce
from itertools import chain
from operator import or_
from typing import TYPE_CHECKING

import msgspec
import pyarrow.parquet as pq
from msgspec import Struct
from pyspark.sql import functions as F  # noqa: N812 - as everyone writes it
from pyspark.sql.window import Window

from skep.errors import Code, SkepError
from skep.spark.lake.files import escaped
from skep.spark.lake.forgetting import TableFile, forget_in_tables, forget_rows, forget_traces
from skep.spark.lake.frames import write_frame
from skep.spark.lake.place import OWN, Place
from skep.spark.lake.reading import frame_of
from skep.spark.lake.table import MADE_BY
from skep.spark.lake.tombstones import Seqs, note_obeyed, obeyed, portions
from skep.spark.running.context import MOST_ROWS_SHOWN, Context, lake_dataset
from skep.spark.running.past import LETTERS
from skep.spark.running.replaying import fitting
from skep.spark.running.typed_table import REJECTS, ROWS, folder_of
from skep.wire.log import LogBoundsResponse as Bounds

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, Row

    from skep.spark.lake.files import LakeFile

NOTE = "forget.json"
RANGES, TRACES = "forget-ranges", "forget-traces"
"""The folders with the seqs and the traces of the messages."""
RANGES_ASKED = 5_000
"""The most ranges of seqs in one request."""
RANGES_READ = 10_000
"""The ranges of a file that are read at a time."""
BY_QUEUE = ("commands", "quarantine")
"""The tables with a folder for each queue, and a row for a message."""
COMPUTED_ANEW = ("dead_letters",)
"""Tables that have samples of payloads, and that each run of their pipeline computes anew."""
JOURNEYS = "journeys"


class PresentLog(Struct, frozen=True):
    """The present log of a queue, and how much of it is in the lake."""

    log: int
    generation: int
    """Its number in the lake, or the one that it will have there."""
    archived: int
    """The last seq that is in the lake, or was deleted from the log before it could be."""
    last: int


class Intent(Struct):
    """What is being forgotten."""

    ranges: list[str]
    """The files with the seqs of the messages, as ranges by queue and generation."""
    traces: list[str]
    """The files with the traces of these messages."""
    logs: dict[str, PresentLog]
    """The logs of the queues when the messages were found. A queue that was made anew since has none of them."""


def run_forget(context: Context) -> None:
    """Forget the chosen messages; a dry run only counts and shows them."""
    wishes = context.wishes
    with context.stage("forget") as stage:
        if not context.lake.files():
            raise SkepError(Code.INVALID_REQUEST, f"there is no lake in {context.root} yet; {MADE_BY}")
        if (left := _left(context)) is not None and not wishes.dry_run:
            stage.note = f"{_forget(context, left):,} messages that an earlier run had begun to forget are gone"
        files, logs = context.lake.files(queues=context.inputs.queues), _logs(context)
        found = (
            [_chosen(context, _everywhere(context, files, logs))]
            if wishes.chooses
            else _forgotten_in_log(context, files)
        )
        intent, count = _chosen_ranges(context, found, Intent([], [], logs))
        stage.rows_in = count
        context.read(lake_dataset(context, "messages", rows=count))
        if wishes.dry_run or not count:
            return
        (context.root / OWN / NOTE).write_whole(msgspec.json.encode(intent))
        stage.rows_out = _forget(context, intent)
        context.wrote(lake_dataset(context, "messages", rows=stage.rows_out))


def _chosen_ranges(context: Context, found: Iterable[DataFrame], intent: Intent) -> tuple[Intent, int]:
    """Write the seqs and traces of the chosen messages to files, show the first ones, and count all. A dry run writes nothing."""
    shown: list[Row] = []
    count = 0
    if not context.wishes.dry_run:
        _clear(context)
    for number, chosen in enumerate(found):
        rows = chosen.cache()  # it takes long to choose by payloads
        ranges = _ranges(rows).cache()
        shown += ranges.limit(MOST_ROWS_SHOWN - len(shown)).collect()
        count += ranges.agg(F.sum(F.col("last") - F.col("first") + 1)).collect()[0][0] or 0
        if not context.wishes.dry_run:
            traces = rows.where(F.col("trace_id").isNotNull()).select("trace_id").distinct()
            for frame, folder, named in ((ranges, RANGES, intent.ranges), (traces, TRACES, intent.traces)):
                named += [part.uri for part in write_frame(frame, context.root / OWN / folder / str(number))]
        ranges.unpersist()
        rows.unpersist()
    _show(context, shown)
    return intent, count


def _clear(context: Context) -> None:
    """Delete the note of an intent, and then its files."""
    (context.root / OWN / NOTE).delete()
    for folder in (RANGES, TRACES):
        (context.root / OWN / folder).delete_all()


def _logs(context: Context) -> dict[str, PresentLog]:
    """The present logs of the queues."""
    found = {}
    for queue, bounds in context.inputs.bounds().items():
        log, generation = context.lake.log_of(queue), context.lake.generation_of(queue)
        before = bounds.first_seq - 1
        archived = max(before, context.lake.through(queue) or 0) if log == bounds.log else before
        number = generation + 1 if log not in (None, bounds.log) else generation
        found[queue] = PresentLog(bounds.log, number, archived, bounds.last_seq)
    return found


def _everywhere(context: Context, files: Sequence[LakeFile], logs: Mapping[str, PresentLog]) -> DataFrame:
    """The messages of the lake, and those of the logs that are not in the lake yet."""
    lake = frame_of(context.spark, files, opening=context.opening())
    new = {queue: one for queue, one in logs.items() if one.archived < one.last}
    if not new:
        return lake
    start = {queue: one.archived for queue, one in new.items()}
    end = {queue: one.last for queue, one in new.items()}
    # What retention removes meanwhile need not be forgotten any more.
    rows = context.inputs.messages((), start, end, fails=False, fails_on_shredded=False)
    numbers = context.spark.createDataFrame(
        [(queue, one.generation) for queue, one in new.items()], "queue string, generation int"
    )
    return lake.unionByName(rows.join(F.broadcast(numbers), "queue"), allowMissingColumns=True)


def _chosen(context: Context, rows: DataFrame) -> DataFrame:
    """The rows that fit everything that was asked for."""
    wishes = context.wishes
    for column, value in (
        ("partition", wishes.partition),
        ("trace_id", wishes.trace),
        ("transaction_id", wishes.transaction),
    ):
        if value is not None:
            rows = rows.where(F.col(column) == value)
    if wishes.seqs:
        ranges = [F.col("seq").between(first, last) for first, last in wishes.seqs]
        rows = rows.where(_any(ranges))
    if wishes.since is not None:
        rows = rows.where(F.col("created_at") >= F.lit(wishes.since).cast("timestamp"))
    if wishes.until is not None:
        rows = rows.where(F.col("created_at") < F.lit(wishes.until).cast("timestamp"))
    if wishes.where is not None:
        rows = fitting(rows.drop("date"), wishes.where)
    return rows.select("queue", "generation", "seq", "trace_id")


def _any(conditions: Sequence[Column]) -> Column:
    return reduce(or_, conditions)


def _forgotten_in_log(context: Context, files: Sequence[LakeFile]) -> Iterator[DataFrame]:
    """The rows of the lake that the server has forgotten."""
    rows = frame_of(context.spark, files, ("queue", "generation", "seq", "trace_id"))
    numbers = {queue: _present(context, queue) for queue in sorted({file.queue for file in files})}
    tombstones = (
        (queue, Seqs(number, one.first_seq, one.last_seq))
        for queue, number in numbers.items()
        if number is not None
        for one in context.inputs.link.forgotten(queue)
    )
    is_gone = (
        (F.col("queue") == F.col("of"))
        & (F.col("generation") == F.col("number"))
        & F.col("seq").between(F.col("first"), F.col("last"))
    )
    for portion in portions(tombstones):
        told = [(queue, *one) for queue, seqs in portion.items() for one in seqs]
        gone = context.spark.createDataFrame(told, "of string, number int, first bigint, last bigint")
        yield rows.join(F.broadcast(gone), is_gone, "left_semi")


def _present(context: Context, queue: str) -> int | None:
    """The generation of the lake that is the present log of a queue; None when there is none."""
    bounds = context.inputs.bounds_of(queue) if queue in context.inputs.queues else None
    if bounds is None or context.lake.log_of(queue) != bounds.log:
        return None
    return context.lake.generation_of(queue)


def _ranges(rows: DataFrame) -> DataFrame:
    """The seqs of rows, as few ranges, in order."""
    order = Window.partitionBy("queue", "generation").orderBy("seq")
    island = (F.col("seq") - F.row_number().over(order)).alias("island")
    joined = rows.select("queue", "generation", "seq").distinct().select("queue", "generation", "seq", island)
    ranges = joined.groupBy("queue", "generation", "island").agg(
        F.min("seq").alias("first"), F.max("seq").alias("last")
    )
    return ranges.select("queue", "generation", "first", "last").orderBy("queue", "generation", "first")


def _portions(intent: Intent) -> Iterator[dict[str, list[Seqs]]]:
    """The seqs of an intent, from its files."""
    return portions(chain.from_iterable(map(_of_file, intent.ranges)))


def _of_file(uri: str) -> Iterator[tuple[str, Seqs]]:
    with Place(uri).opened() as source:
        for batch in pq.ParquetFile(source).iter_batches(RANGES_READ):
            for row in batch.to_pylist():
                yield row["queue"], Seqs(row["generation"], row["first"], row["last"])


def _left(context: Context) -> Intent | None:
    """What an earlier run had begun to forget."""
    try:
        return msgspec.json.decode((context.root / OWN / NOTE).read_bytes(), type=Intent)
    except FileNotFoundError:
        return None


def _forget(context: Context, intent: Intent) -> int:
    for seqs in _portions(intent):
        for queue in seqs.keys() & intent.logs:
            _forget_in_log(context, queue, intent.logs[queue], seqs[queue])
    count = sum(forget_everywhere(context, seqs) for seqs in _portions(intent))
    # The lake has the dead-letter queues, too, whose messages the server has forgotten with these.
    forget_as_the_log(context, context.inputs.link.bounds_of(sorted({file.queue for file in context.lake.files()})))
    journeys = [found.place for found in (context.root / JOURNEYS).below_it(".parquet")]
    forget_traces(context.spark, journeys, [Place(uri) for uri in intent.traces])
    _clear(context)
    return count


def forget_as_the_log(context: Context, bounds: Mapping[str, Bounds]) -> None:
    """Take out of the lake what the server has forgotten since the last time: the bounds of a log say whether there is anything."""
    known = obeyed(context.root)
    news = {
        queue: one
        for queue, one in bounds.items()
        if one.forgotten and known.get(queue) != (one.log, one.forgotten) and context.lake.log_of(queue) == one.log
    }
    through = {queue: context.lake.through(queue) or 0 for queue in news}
    latest = dict.fromkeys(news, 0)
    for seqs in portions(_tombstones(context, news, known)):
        for queue, found in seqs.items():
            latest[queue] = max(latest[queue], *(one.last for one in found))
        forget_everywhere(context, seqs)
    # In an object store another run may be about to add messages that it read before they were forgotten: those of later seqs.
    done = {queue: (one.log, one.forgotten) for queue, one in news.items() if latest[queue] <= through[queue]}
    if done:
        note_obeyed(context.root, known | done)


def _tombstones(
    context: Context, news: Mapping[str, Bounds], known: Mapping[str, tuple[int, int]]
) -> Iterator[tuple[str, Seqs]]:
    """What the server has forgotten of some queues, and the lake not yet."""
    for queue, bounds in news.items():
        log, position = known.get(queue, (bounds.log, 0))
        generation = context.lake.generation_of(queue)
        for one in context.inputs.link.forgotten(queue, position if log == bounds.log else 0):
            yield queue, Seqs(generation, one.first_seq, one.last_seq)


def forget_everywhere(context: Context, forgotten: Mapping[str, Sequence[Seqs]]) -> int:
    """Take messages out of the lake: out of the table of messages, and out of the tables that have a row for each."""
    count = forget_rows(context.spark, context.lake, forgotten)
    folders: list[tuple[Place, str | None]] = [(context.root / LETTERS, None)]
    for queue in forgotten:
        folders += [(context.root / table / f"queue={escaped(queue)}", queue) for table in BY_QUEUE]
        folders += [(context.root / table / folder_of(queue), queue) for table in (ROWS, REJECTS)]
    files = [TableFile(found.place, queue) for folder, queue in folders for found in folder.below_it(".parquet")]
    forget_in_tables(context.spark, files, forgotten)
    for table in COMPUTED_ANEW:
        (context.root / table).delete_all()
    return count


def _forget_in_log(context: Context, queue: str, log: PresentLog, seqs: Sequence[Seqs]) -> None:
    """Let the server forget the messages of a log, and all that stems from them. A log that is gone took its messages along."""
    link = context.inputs.link
    ranges = [(one.first, one.last) for one in seqs if one.generation == log.generation]
    for first in range(0, len(ranges), RANGES_ASKED):
        part = ranges[first : first + RANGES_ASKED]
        try:
            link.patiently(partial(link.client.forget, queue, part, log=log.log))
        except SkepError as error:
            if error.code not in (Code.LOG_REPLACED, Code.QUEUE_NOT_FOUND):
                raise
            return


def _show(context: Context, found: Sequence[Row]) -> None:
    rows = [(*one, one["last"] - one["first"] + 1) for one in found]
    title = "What would be forgotten" if context.wishes.dry_run else "What was forgotten"
    context.show(title, ("queue", "generation", "first seq", "last seq", "messages"), rows)
