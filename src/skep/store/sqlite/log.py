"""Reading ranges of the log as columns, without a Python object per message.

SQLite joins the values of each column (`log.sql`); numpy turns lengths into offsets. A column with the same value in all messages,
or with none, is found first and not read. Each call is a short transaction of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa

from skep.arrow.log import LOG_SCHEMA, LogPiece, LogRange, column_of, ids_of, times_of
from skep.arrow.shape import VARYING, Shape, implied
from skep.model import QueueKey, Seq
from skep.store.rules import most_seqs
from skep.store.sqlite.session import QueueRow, Row, Session
from skep.store.statements import load_statements

SQL = load_statements(__package__, "log")

COMMON = ("seq", "partition", "payload", "message_id", "created_at")
SHAPE_FIELDS = len(Shape.__struct_fields__)


def read_piece(session: Session, key: QueueKey, wanted: LogRange) -> LogPiece:
    """The messages of a range that fit, as columns; at least one message if there is any."""
    queue = session.queue(key)
    low, high = max(wanted.first, queue.first_seq), min(wanted.last, queue.last_seq)
    high = min(high, low + most_seqs(wanted.max_rows, wanted.partitions) - 1)
    if low > high:
        return _empty(wanted, wanted.last)
    source, parameters = _source(queue, wanted, low, high)
    row, values = _at_once(session, wanted, source, parameters)
    if row[0] and row[5] > wanted.max_bytes:
        row, values = _cut(session, source, parameters, wanted.max_bytes), {}
    if not row[0]:
        return _empty(wanted, Seq(high))
    shape = Shape(*row)
    is_cut = shape.messages == wanted.max_rows or shape.payload_bytes >= wanted.max_bytes
    left = [name for name in shape.to_read(wanted.schema.names) if name not in values]
    values |= _values(session, left, source, (parameters[0], queue.base | shape.last, *parameters[2:]))
    arrays = [_column(name, shape, values.get(shape.read_as(name))) for name in wanted.schema.names]
    return LogPiece(pa.record_batch(arrays, schema=wanted.schema), Seq(shape.last if is_cut else high))


def _empty(wanted: LogRange, through: Seq) -> LogPiece:
    return LogPiece(pa.RecordBatch.from_pylist([], schema=wanted.schema), through)


def _source(queue: QueueRow, wanted: LogRange, low: int, high: int) -> tuple[str, tuple[int | str, ...]]:
    """The range in SQL, with its parameters."""
    ends = (queue.base | low, queue.base | high)
    match wanted.partitions:
        case None:
            return SQL["range"], ends
        case (partition,):
            return SQL["range_of_partition"], (*ends, partition, wanted.max_rows)
        case partitions:
            return SQL["range_of_partitions"], (*ends, msgspec.json.encode(partitions).decode(), wanted.max_rows)


def _at_once(
    session: Session, wanted: LogRange, source: str, parameters: tuple[int | str, ...]
) -> tuple[Row, dict[str, tuple[Any, ...]]]:
    """The shape of a range. Where it is one of partitions, also the columns that nearly always differ, payloads only if they are short:
    each of its messages may be on another page, and a second walk would look at all pages again.
    """
    names = wanted.schema.names
    common = [name for name in COMMON if name in names and wanted.partitions is not None]
    parts = [SQL["short_payload" if name == "payload" else name] for name in common]
    longest = (wanted.max_bytes // wanted.max_rows,) if "payload" in common else ()
    row = session.one(f"{', '.join([SQL['shape'], *parts])} {source}", (*parameters, *longest))
    shape, values = row[:SHAPE_FIELDS], _parts(common, row[SHAPE_FIELDS:])
    if "payload" in values and len(values["payload"][1] or b"") != shape[5]:
        del values["payload"]
    return shape, values


def _cut(session: Session, source: str, parameters: tuple[int | str, ...], max_bytes: int) -> Row:
    """The shape of the range up to the message that reaches ``max_bytes``."""
    bound = (*parameters, *([None] * (4 - len(parameters))), max_bytes)
    last = session.one(f"{SQL['fitting']} {source})", bound)[0]
    return session.one(f"{SQL['shape']} {source}", (parameters[0], last, *parameters[2:]))


def _values(
    session: Session, names: Sequence[str], source: str, parameters: tuple[int | str, ...]
) -> dict[str, tuple[Any, ...]]:
    """The values of some columns, in one walk over the range."""
    if not names:
        return {}
    return _parts(names, session.one(f"SELECT {', '.join(SQL[name] for name in names)} {source}", parameters))


def _parts(names: Sequence[str], row: Row) -> dict[str, tuple[Any, ...]]:
    parts = iter(row)
    return {name: (next(parts), next(parts)) if name in VARYING else (next(parts),) for name in names}


def _column(name: str, shape: Shape, values: tuple[Any, ...] | None) -> pa.Array:
    kind = LOG_SCHEMA.field(name).type
    if values is None:
        return implied(name, shape)
    match values:
        case (bytes() as ids,):
            return ids_of(ids)
        case (str() as numbers,):
            return pa.array(_numbers(numbers)) if name == "seq" else times_of(_numbers(numbers))
        case (str() as sizes, data):
            return column_of(kind, _numbers(sizes), data or b"")
    raise AssertionError(f"{name} came as {[type(value) for value in values]}")


def _numbers(text: str) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    return np.fromstring(text, np.int64, sep=",")
