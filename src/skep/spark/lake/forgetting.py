"""Forget messages in the lake: rewrite the files that have them, and delete the old ones.

Only the files that may have one of the seqs are opened, and only those that do have one are rewritten. Delta and Iceberg keep old
files for older versions; these are deleted here, since they hold what is to be forgotten. An older version that had them is then
not readable any more.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, NamedTuple, TypeVar

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from msgspec import Struct

from skep.spark.lake.files import FilePlan, LakeFile, write_files
from skep.spark.lake.place import OWN, Place
from skep.spark.lake.reading import rows_of_file
from skep.spark.lake.table import Lake, LakeChange, LakeTakenError, check_seen, undisturbed
from skep.spark.lake.tombstones import Seqs, is_forgotten

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

T = TypeVar("T")

FILES_AT_ONCE = 256
"""The most files that are rewritten in one commit."""
TRIES = 5
"""How often the files are looked up anew when another run has replaced some of them."""
PENDING = "forgetting.json"
"""The files that are deleted after a commit. It is written before the commit."""
OUTCOME = "old string, made string, forgotten bigint"


class _Rewritten(Struct):
    """What became of a file: the new files, and how many of its rows were left out."""

    old: LakeFile
    made: list[LakeFile]
    forgotten: int


def forget_rows(spark: SparkSession, lake: Lake, forgotten: Mapping[str, Sequence[Seqs]]) -> int:
    """Take messages out of the table, by queue; return their number. Killed at any time and called again, it does the rest."""
    count = 0
    for tries_left in reversed(range(TRIES)):
        lake.refresh()
        finish(lake)
        found = [file for file in lake.files(queues=forgotten) if _concerned(file, forgotten[file.queue])]
        try:
            for first in range(0, len(found), FILES_AT_ONCE):
                count += _rewrite(spark, lake, found[first : first + FILES_AT_ONCE], forgotten)
            return count
        except LakeTakenError:  # compaction has replaced some of them: their rows are in other files now
            if not tries_left:
                raise
    return count


def finish(lake: Lake) -> None:
    """Delete the files of the last commit that took rows out, if that was interrupted."""
    pending = lake.root / OWN / PENDING
    if not pending.exists():
        return
    there = {file.uri for file in lake.files()}
    noted = msgspec.json.decode(pending.read_bytes(), type=list[str])
    _delete(lake, [uri for uri in noted if uri not in there])  # where the commit took effect


def _delete(lake: Lake, uris: Sequence[str]) -> None:
    for uri in uris:
        Place(uri).delete()
    (lake.root / OWN / PENDING).delete()


def _rewrite(
    spark: SparkSession, lake: Lake, files: Sequence[LakeFile], forgotten: Mapping[str, Sequence[Seqs]]
) -> int:
    tasks = spark.range(0, len(files), 1, len(files))
    mine = {file.queue: list(forgotten[file.queue]) for file in files}
    with undisturbed(lake, files):
        rows = tasks.mapInArrow(partial(_rewrite_task, list(files), mine, lake.plan()), OUTCOME).collect()
    done = [
        _Rewritten(
            msgspec.json.decode(row["old"], type=LakeFile), msgspec.json.decode(row["made"], type=list[LakeFile]),
            row["forgotten"],
        )
        for row in rows
    ]  # fmt: skip
    changed = [one for one in done if one.forgotten]
    if changed:
        made = check_seen([file for one in changed for file in one.made])
        old = [one.old for one in changed]
        (lake.root / OWN / PENDING).write_whole(msgspec.json.encode([file.uri for file in old]))
        lake.commit(LakeChange(added=made, removed=old))
        _delete(lake, [file.uri for file in old])
    return sum(one.forgotten for one in changed)


def _rewrite_task(
    files: Sequence[LakeFile],
    forgotten: Mapping[str, Sequence[Seqs]],
    plan: FilePlan,
    batches: Iterator[pa.RecordBatch],
) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        for number in batch.column("id").to_pylist():
            file = files[number]
            seqs = [one for one in forgotten[file.queue] if one.first <= file.last_seq and one.last >= file.first_seq]
            count = sum(
                pc.sum(is_forgotten(rows, seqs)).as_py() or 0
                for rows in rows_of_file(file, ("generation", "seq"), between=_span(seqs))
            )
            made = list(write_files(_kept(file, seqs), plan)) if count else []
            yield pa.RecordBatch.from_pylist(
                [{"old": _json(file), "made": _json(made), "forgotten": count}],
                pa.schema([("old", pa.string()), ("made", pa.string()), ("forgotten", pa.int64())]),
            )


def _kept(file: LakeFile, seqs: Sequence[Seqs]) -> Iterator[pa.RecordBatch]:
    for rows in rows_of_file(file):
        kept = rows.filter(pc.invert(is_forgotten(rows, seqs)))
        if kept.num_rows:
            yield kept


def _concerned(file: LakeFile, seqs: Sequence[Seqs]) -> bool:
    return any(
        file.generation in (one.generation, None) and file.first_seq <= one.last and file.last_seq >= one.first
        for one in seqs
    )


def _span(seqs: Sequence[Seqs]) -> tuple[int, int]:
    return min(one.first for one in seqs), max(one.last for one in seqs)


def _json(value: object) -> str:
    return msgspec.json.encode(value).decode()


class TableFile(NamedTuple):
    """A file of a table beside the messages, whose rows have the seq of a message."""

    place: Place
    queue: str | None
    """The queue of all of its rows; None where they have a column `queue`."""


def forget_in_tables(spark: SparkSession, files: Sequence[TableFile], forgotten: Mapping[str, Sequence[Seqs]]) -> int:
    """Take the rows of some messages out of other tables; return their number. Spark's tasks rewrite the files that have such rows."""
    return _in_tasks(
        spark, files, partial(forget_in_file, forgotten={queue: list(forgotten[queue]) for queue in forgotten})
    )


def forget_traces(spark: SparkSession, files: Sequence[Place], traces: Sequence[Place]) -> int:
    """Take the rows of some traces out of a table; return their number. The traces are in files with a column `trace_id`."""
    return _in_tasks(spark, files, partial(_forget_traces_in_file, traces=list(traces)))


def _in_tasks(spark: SparkSession, files: Sequence[T], forget: Callable[[T], int]) -> int:
    """The sum of what a function returns for each file, called in a task of Spark."""
    if not files:
        return 0

    def forgotten(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            counts = [forget(files[number]) for number in batch.column("id").to_pylist()]
            yield pa.RecordBatch.from_pydict({"forgotten": pa.array(counts, pa.int64())})

    tasks = spark.range(0, len(files), 1, len(files))
    return sum(row["forgotten"] for row in tasks.mapInArrow(forgotten, "forgotten bigint").collect())


def forget_in_file(file: TableFile, forgotten: Mapping[str, Sequence[Seqs]]) -> int:
    """Take the rows of some messages out of a file; return their number. A table without a column `generation` is of the present one."""
    table = _table(file.place)
    if "seq" not in table.column_names or not table.num_rows:
        return 0
    is_gone = np.zeros(table.num_rows, bool)
    for queue, seqs in forgotten.items():
        if file.queue not in (None, queue):
            continue
        newest = pa.repeat(pa.scalar(max(one.generation for one in seqs), pa.int32()), table.num_rows)
        generation = table.column("generation").combine_chunks() if "generation" in table.column_names else newest
        seq = table.column("seq").combine_chunks().cast(pa.int64())
        mine = is_forgotten(pa.RecordBatch.from_pydict({"seq": seq, "generation": generation}), seqs)
        if file.queue is None:
            mine = pc.and_(mine, pc.equal(table.column("queue").combine_chunks(), queue))
        is_gone |= mine.to_numpy(zero_copy_only=False)
    return _without(file.place, table, pa.array(is_gone))


def _forget_traces_in_file(place: Place, traces: Sequence[Place]) -> int:
    table = _table(place)
    is_gone = pa.array(np.zeros(table.num_rows, bool))
    for some in traces:
        gone = _table(some).column("trace_id").combine_chunks()
        is_gone = pc.or_(is_gone, pc.is_in(table.column("trace_id").combine_chunks(), gone))
    return _without(place, table, is_gone)


def _table(place: Place) -> pa.Table:
    with place.opened() as source:
        return pq.read_table(source)


def _without(place: Place, table: pa.Table, is_gone: pa.BooleanArray) -> int:
    count = int(pc.sum(is_gone).as_py() or 0)
    if count:
        with place.writing() as file:
            pq.write_table(table.filter(pc.invert(is_gone)), file, store_schema=False)
    return count
