"""Reading files of the lake: by the executors as columns, or as a frame of Spark.

A local file is read by Spark itself. Spark knows object stores only with jars that it does not bring, so there the executors read files
by the same library that wrote them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq

from skep.spark.lake.files import LakeFile, folder_name
from skep.spark.lake.rows import DATA_KEY, FIRST, KEPT, LAKE, divided
from skep.spark.lake.sealed import OPENED_BY, Opening, has_sealed

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


def rows_of_file(
    file: LakeFile,
    columns: Sequence[str] = tuple(LAKE.names),
    *,
    between: tuple[int, int] | None = None,
    opening: Opening | None = None,
) -> Iterator[pa.RecordBatch]:
    """The rows of a file with some columns of the lake. Columns that files of earlier versions lack have their defaults.

    At least the rows ``between`` two seqs are read. Sealed payloads are opened if there is a way (``opening``).
    """
    with file.place.files.open_input_file(file.place.path) as source, pq.ParquetFile(source) as opened:
        there = set(opened.schema_arrow.names)
        is_sealed = opening is not None and "payload" in columns and has_sealed(opened.metadata)
        made = tuple(dict.fromkeys((*columns, *OPENED_BY))) if is_sealed else columns
        wanted = {*made, "seq"}
        read = [name for name in KEPT.names if name in there and name in wanted]
        groups = None if between is None else _groups(opened.metadata, *between)
        for batch in opened.iter_batches(READ_ROWS, row_groups=groups, columns=read):
            rows = batch if "payload_bytes" in there or "payload" not in wanted else _divided(batch)
            if not rows.num_rows:
                continue
            found = pa.RecordBatch.from_arrays(
                [_column(rows, file, name) for name in made], schema=pa.schema([LAKE.field(one) for one in made])
            )
            yield opening.opened(found).select(list(columns)) if is_sealed and opening is not None else found


def _groups(about: pq.FileMetaData, first: int, last: int) -> list[int]:
    """The row groups that may have some seqs."""
    place = next(n for n in range(about.num_columns) if about.schema.column(n).path == "seq")
    found = []
    for group in range(about.num_row_groups):
        ends = about.row_group(group).column(place).statistics
        if ends is None or not ends.has_min_max or (ends.min <= last and ends.max >= first):
            found.append(group)
    return found


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
