"""Reading files of the lake: by the executors as columns, or as a frame of Spark.

A local file is read by Spark itself. Spark knows object stores only with jars that it does not bring, so there the executors read files
by the same library that wrote them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC
from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from msgspec import Struct

from skep.errors import Code, SkepError
from skep.spark.lake.files import LakeFile, folder_name
from skep.spark.lake.rows import DATA_KEY, FIRST, KEPT, LAKE, divided
from skep.spark.lake.sealed import OPENED_BY, Opening, has_sealed
from skep.spark.lake.tombstones import Seqs, is_forgotten
from skep.spark.push_down import LAST_MICROS
from skep.wire.times import to_instant

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

TYPES = (
    "generation int, partition string, seq bigint, message_id string, transaction_id string, trace_id string, payload string, "
    "payload_bytes binary, headers map<string,string>, created_at timestamp, data_key string, queue string, date string"
)
"""The columns of the lake's files and folders as Spark reads them. Columns that files of the first format lack are null."""
COLUMNS = tuple(name for name in LAKE.names if name != "payload_bytes")
"""The columns of a read."""
READ_ROWS = 64 * 1024
READ_TASK_BYTES = 128 * 1024**2
"""About how much of the files one task reads."""


class RowChoice(Struct, frozen=True, kw_only=True):
    """The rows that a read wants of a file: those of one generation between two seqs that have one of the values of each column."""

    generation: int
    first: int
    last: int
    values: Mapping[str, Sequence[str]] = {}
    forgotten: Sequence[Seqs] = ()
    """Rows that are not wanted: their messages were forgotten, and the lake still has them."""

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that decide."""
        return ("generation", "seq", *self.values)

    def has(self, rows: pa.RecordBatch) -> pa.BooleanArray:
        """Whether each row is wanted."""
        seq = rows.column("seq")
        found = pc.and_(pc.greater_equal(seq, self.first), pc.less_equal(seq, self.last))
        found = pc.and_(found, pc.equal(rows.column("generation"), self.generation))
        for name, values in self.values.items():
            found = pc.and_(found, pc.is_in(rows.column(name), pa.array(values, pa.string())))
        return pc.and_not(found, is_forgotten(rows, self.forgotten)) if self.forgotten else found

    def may_be_in(self, about: pq.RowGroupMetaData) -> bool:
        """Whether a row group may have such rows, as its statistics say."""
        seqs = _ends(about, "seq")
        if seqs is not None and (seqs[0] > self.last or seqs[1] < self.first):
            return False
        ends = {name: _ends(about, name) for name in self.values}
        return all(
            found is None or any(found[0] <= value <= found[1] for value in self.values[name])
            for name, found in ends.items()
        )


def rows_of_file(
    file: LakeFile,
    columns: Sequence[str] = tuple(LAKE.names),
    *,
    between: tuple[int, int] | None = None,
    since: int | None = None,
    opening: Opening | None = None,
) -> Iterator[pa.RecordBatch]:
    """The rows of a file with some columns of the lake. Columns that files of earlier versions lack have their defaults.

    At least the rows ``between`` two seqs that were pushed ``since`` an instant are read. Sealed payloads are opened if there is a
    way (``opening``).
    """
    with _opened(file) as opened:
        groups = [
            group for group in range(opened.metadata.num_row_groups)
            if between is None or _reaches(opened.metadata.row_group(group), *between)
            if since is None or _last_instant(opened.metadata.row_group(group)) >= since
        ]  # fmt: skip
        yield from _rows(file, opened, groups, columns, opening)


def chosen_rows(
    file: LakeFile, columns: Sequence[str], chosen: RowChoice, opening: Opening | None = None
) -> Iterator[pa.RecordBatch]:
    """The chosen rows of a file with some columns. Row groups without such rows are not read, as far as their statistics and the
    columns that decide tell.
    """
    wanted = tuple(dict.fromkeys((*columns, *chosen.columns)))
    with _opened(file) as opened:
        for group in range(opened.metadata.num_row_groups):
            if not chosen.may_be_in(opened.metadata.row_group(group)):
                continue
            if chosen.values and not any(
                pc.any(chosen.has(rows)).as_py() for rows in _rows(file, opened, [group], chosen.columns)
            ):
                continue
            for rows in _rows(file, opened, [group], wanted, opening, chosen):
                yield rows.select(list(columns))


@contextmanager
def _opened(file: LakeFile) -> Iterator[pq.ParquetFile]:
    """An open file; an error with its name when it is damaged."""
    try:
        with file.place.opened() as source, pq.ParquetFile(source) as opened:
            yield opened
    except FileNotFoundError:
        raise  # compaction may have deleted it
    except (pa.ArrowException, OSError) as error:
        raise SkepError(
            Code.INVALID_REQUEST,
            f"the lake's file {file.place} cannot be read, or is damaged ({error}): look at the store, or restore the file from a backup",
        ) from error


def _rows(
    file: LakeFile,
    opened: pq.ParquetFile,
    groups: Sequence[int],
    columns: Sequence[str],
    opening: Opening | None = None,
    chosen: RowChoice | None = None,
) -> Iterator[pa.RecordBatch]:
    """The rows of some row groups, or those of them that are chosen."""
    there = set(opened.schema_arrow.names)
    is_sealed = opening is not None and "payload" in columns and has_sealed(opened.metadata)
    made = tuple(dict.fromkeys((*columns, *OPENED_BY))) if is_sealed else tuple(columns)
    wanted = {*made, "seq"}
    read = [name for name in KEPT.names if name in there and name in wanted]
    schema = pa.schema([LAKE.field(one) for one in made])
    for batch in opened.iter_batches(READ_ROWS, row_groups=list(groups), columns=read):
        rows = batch if "payload_bytes" in there or "payload" not in wanted else _divided(batch)
        found = pa.RecordBatch.from_arrays([_column(rows, file, name) for name in made], schema=schema)
        if chosen is not None and not pc.all(is_wanted := chosen.has(found)).as_py():
            found = found.filter(is_wanted)
        if found.num_rows:
            yield opening.opened(found).select(list(columns)) if is_sealed and opening is not None else found


def _reaches(about: pq.RowGroupMetaData, first: int, last: int) -> bool:
    """Whether a row group may have some seqs."""
    seqs = _ends(about, "seq")
    return seqs is None or (seqs[0] <= last and seqs[1] >= first)


def last_instant(file: LakeFile) -> int:
    """When the last message of a file was pushed, in microseconds, or later. Only the end of the file is read, if that."""
    if file.last_at is not None:
        return file.last_at
    with _opened(file) as opened:
        about = opened.metadata
        return max((_last_instant(about.row_group(group)) for group in range(about.num_row_groups)), default=0)


def _last_instant(about: pq.RowGroupMetaData) -> int:
    ends = _ends(about, "created_at")
    return LAST_MICROS if ends is None else to_instant(ends[1].replace(tzinfo=UTC))


def _ends(about: pq.RowGroupMetaData, name: str) -> tuple[Any, Any] | None:
    """The least and the greatest value of a column in a row group; None when they are not known."""
    found = next((about.column(n) for n in range(about.num_columns) if about.column(n).path_in_schema == name), None)
    ends = None if found is None else found.statistics
    return (ends.min, ends.max) if ends is not None and ends.has_min_max else None


def _divided(rows: pa.RecordBatch) -> pa.RecordBatch:
    """Rows of a file of the first format, which has all payloads in one column."""
    text, other = divided(rows.column("payload"))
    place = rows.schema.get_field_index("payload")
    return rows.set_column(place, "payload", text).append_column("payload_bytes", other)


def _column(rows: pa.RecordBatch, file: LakeFile, name: str) -> pa.Array:
    kind = LAKE.field(name).type
    if name in ("queue", "date"):
        return pa.repeat(pa.scalar(getattr(file, name)).cast(kind), rows.num_rows)
    if name not in rows.schema.names:
        return (
            pa.repeat(pa.scalar(FIRST, kind), rows.num_rows) if name == "generation" else pa.nulls(rows.num_rows, kind)
        )
    return rows.column(name).cast(kind)


def frame_of(
    spark: SparkSession,
    files: Sequence[LakeFile],
    columns: Sequence[str] = COLUMNS,
    opening: Opening | None = None,
) -> DataFrame:
    """The rows of files as a frame, with one payload column, as a read of the queue has it.

    Sealed payloads are opened if there is a way (``opening``). A row whose payload is still sealed has none, and its data key.
    """
    sealed = (
        [] if opening is None or "payload" not in columns else [one for one in files if one.queue in opening.queues]
    )
    if sealed and len(sealed) < len(files):
        others = [file for file in files if file not in sealed]
        return frame_of(spark, others, columns).unionByName(
            undivided(_fetched(spark, sealed, columns, opening), columns)
        )
    if not files:
        rows = spark.createDataFrame([], TYPES)
    elif not sealed and all(file.place.is_local and folder_name(*file.folder) in file.uri for file in files):
        root = files[0].uri.partition(folder_name(*files[0].folder))[0]
        # The schema makes folder names text: a queue named 2026 is no number.
        rows = spark.read.option("basePath", root).schema(TYPES).parquet(*(file.uri for file in files))
    else:
        rows = _fetched(spark, files, columns, opening)
    return undivided(rows, columns)


def undivided(rows: DataFrame, columns: Sequence[str] = COLUMNS) -> DataFrame:
    """Rows of the lake with some columns: with one payload, and with a generation, which files of the first format lack."""
    from pyspark.sql import functions as F  # noqa: N812 - as everyone writes it

    made = {
        "payload": F.when(F.col(DATA_KEY).isNull(), F.coalesce("payload", F.col("payload_bytes").cast("string"))),
        "generation": F.coalesce("generation", F.lit(FIRST)),
        "date": F.to_date("date"),
    }
    return rows.withColumns({name: made[name] for name in columns if name in made}).select(*columns)


def _fetched(
    spark: SparkSession, files: Sequence[LakeFile], columns: Sequence[str], opening: Opening | None = None
) -> DataFrame:
    """Files of an object store as a frame. Each task reads some hundred megabytes."""
    parts: list[list[LakeFile]] = []
    left = 0
    for file in sorted(files, key=lambda one: one.bytes, reverse=True):
        if left <= 0:
            parts.append([])
            left = READ_TASK_BYTES
        parts[-1].append(file)
        left -= file.bytes
    types = dict(column.split(" ", 1) for column in TYPES.split(", "))
    apart = ("payload_bytes", DATA_KEY) if "payload" in columns else ()
    wanted = [name for name in types if name in columns or name in apart]
    ddl = ", ".join(f"{name} {'date' if name == 'date' else types[name]}" for name in wanted)
    return spark.range(0, len(parts), 1, len(parts)).mapInArrow(partial(_read, parts, tuple(wanted), opening), ddl)


def _read(
    parts: Sequence[Sequence[LakeFile]],
    columns: Sequence[str],
    opening: Opening | None,
    batches: Iterator[pa.RecordBatch],
) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        for number in batch.column("id").to_pylist():
            for file in parts[number]:
                yield from rows_of_file(file, columns, opening=opening)
