"""Ranges of the log out as columns, without a Python object per message.

PostgreSQL joins the values of each column into one (`reading.sql`), with their lengths beside them; numpy turns these into
offsets. What all messages of a range share, or none has, is seen first and not read. Nothing is held open between two calls.
"""

from __future__ import annotations

from collections.abc import Sequence

import asyncpg
import numpy as np
import pyarrow as pa
from msgspec import Struct

from skep.columns import LOG_SCHEMA, LogPiece, LogRange, column_of, ids_of, times_of
from skep.errors import Code, SkepError
from skep.model import QueueKey, Seq
from skep.store.postgres.connection import Connection
from skep.store.rules import PARTITION_WALK_SEQS
from skep.store.shapes import VARYING, Shape, implied
from skep.store.statements import load_statements

SQL = load_statements(__package__, "reading")

TRIES = 10
"""Retention may delete between two statements what the first has seen; so often it is looked again."""


class Found(Struct, frozen=True):
    """A range as PostgreSQL gave it: its columns follow in another thread."""

    shape: Shape | None
    values: dict[str, tuple[bytes, ...]]
    through: Seq


def shape_of(source: str) -> str:
    """What tells the shape of a range."""
    return f"{SQL['shape']} {SQL[source]}"


def fitting(source: str) -> str:
    """What finds the last seq of a range that is not too long; the bytes are the last parameter."""
    most = 4 if source == "range" else 6
    return f"{SQL['fitting']} {SQL[source]}) b WHERE b.through >= ${most} LIMIT 1"


def values_of(columns: Sequence[str], source: str) -> str:
    """What reads columns of a range."""
    return f"SELECT count(*), {', '.join(SQL[name] for name in columns)} {SQL[source]}"


async def read(connection: Connection, key: QueueKey, wanted: LogRange) -> Found:
    """As much of the range as fits, and at least one message if there is any."""
    for _ in range(TRIES):
        bounds = await connection.fetchrow(SQL["bounds"], key.tenant, key.name)
        if bounds is None:
            raise SkepError(Code.QUEUE_NOT_FOUND, f"there is no queue {key.name!r}", queue=key.name)
        low, high = max(wanted.first, bounds["first_seq"]), min(wanted.last, bounds["last_seq"])
        # So many seqs hold no more messages, and to bound these costs more.
        high = min(high, low + (wanted.max_rows if wanted.partitions is None else PARTITION_WALK_SEQS) - 1)
        if low > high:
            return Found(None, {}, wanted.last)
        found = await _read(connection, bounds["id"], wanted, low, high)
        if found is not None:
            return found
    raise SkepError(Code.STORE_BUSY, f"the log of {key.name!r} is being deleted while it is read")


async def _read(connection: Connection, queue_id: int, wanted: LogRange, low: int, high: int) -> Found | None:
    """None when something was deleted meanwhile."""
    source = "range" if wanted.partitions is None else "range_of_partitions"
    rest = [] if wanted.partitions is None else [list(wanted.partitions), wanted.max_rows]
    shape = _shape(await connection.fetchrow(shape_of(source), queue_id, low, high, *rest))
    is_cut = shape.payload_bytes > wanted.max_bytes
    if is_cut:
        last = await connection.fetchval(fitting(source), queue_id, low, high, *rest, wanted.max_bytes)
        if last is None:
            return None
        shape = _shape(await connection.fetchrow(shape_of(source), queue_id, low, last, *rest))
    if not shape.messages:
        return Found(None, {}, Seq(high))
    values: dict[str, tuple[bytes, ...]] = {}
    if names := shape.to_read(wanted.schema.names):
        row = await connection.fetchrow(values_of(names, source), queue_id, shape.first, shape.last, *rest)
        assert row is not None
        count, *parts = row
        if count != shape.messages:
            return None
        following = iter(parts)
        values = {n: (next(following), next(following)) if n in VARYING else (next(following),) for n in names}
    is_cut = is_cut or shape.messages == wanted.max_rows
    return Found(shape, values, Seq(shape.last if is_cut else high))


def _shape(row: asyncpg.Record | None) -> Shape:
    assert row is not None
    return Shape(**row)


def piece_of(wanted: LogRange, found: Found) -> LogPiece:
    """What was found, as columns."""
    shape = found.shape
    if shape is None:
        return LogPiece(pa.RecordBatch.from_pylist([], schema=wanted.schema), found.through)
    arrays = [_column(name, shape, found.values.get(shape.read_as(name))) for name in wanted.schema.names]
    return LogPiece(pa.record_batch(arrays, schema=wanted.schema), found.through)


def _column(name: str, shape: Shape, values: tuple[bytes, ...] | None) -> pa.Array:
    if values is None:
        return implied(name, shape)
    if name in VARYING:
        sizes, data = values
        return column_of(LOG_SCHEMA.field(name).type, np.frombuffer(sizes, ">i4").astype(np.int64), data)
    (data,) = values
    if name in ("message_id", "trace_id"):
        return ids_of(data)
    numbers = np.frombuffer(data, ">i8").astype(np.int64)
    return pa.array(numbers) if name == "seq" else times_of(numbers)
