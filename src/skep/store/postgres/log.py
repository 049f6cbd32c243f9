"""Reading ranges of the log as columns, without a Python object per message.

PostgreSQL joins the values of each column (`log.sql`), slice by slice, with their lengths beside them; numpy turns these
into offsets. One walk over a range finds its shape, and reads the columns that every message has. Columns that few have (traces,
headers) are read by a second walk, if there are any. Nothing is held open between two calls.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import asyncpg
import numpy as np
import pyarrow as pa
from msgspec import Struct, structs

from skep.arrow.log import LOG_SCHEMA, LogPiece, LogRange, column_of, ids_of, times_of
from skep.arrow.shape import VARYING, Shape, implied, together
from skep.errors import Code, SkepError
from skep.model import LOG_CHUNK, QueueKey, Seq
from skep.model.queue import no_queue
from skep.store.postgres.connection import Connection
from skep.store.postgres.log_chunks import within_chunk
from skep.store.rules import most_seqs
from skep.store.statements import load_statements

SQL = load_statements(__package__, "log")

COMMON = ("partition", "payload", "message_id", "created_at")
"""The columns that nearly always differ from message to message: they are read in the first walk."""
SLICE_ROWS = 250
"""Messages that are joined at once. Longer slices cost PostgreSQL fresh memory each time, shorter ones more overhead."""
SHAPE_FIELDS = len(Shape.__struct_fields__)
Values = dict[str, tuple[bytes, ...]]
"""By column, its values joined; before them their lengths, if these vary."""
TRIES = 10
"""How often a range is read again, when retention deleted some of it between two statements."""


class RawRange(Struct, frozen=True):
    """A range as PostgreSQL gave it; another thread turns it into columns."""

    shape: Shape | None
    values: Values
    through: Seq
    queue_id: int


def shape_of(source: str) -> str:
    """The statement that finds the shape of a range."""
    return f"{SQL['shape']} {SQL[source]}"


def fitting(source: str) -> str:
    """The statement that finds how far a range fits into some bytes, its last parameter."""
    most = 4 if source == "range" else 6
    return f"{SQL['fitting']} {SQL[source]}) b WHERE b.through >= ${most} LIMIT 1"


def values_of(columns: Sequence[str], source: str) -> str:
    """The statement that reads columns of a range, after the number of its messages and the first seq."""
    select = f"SELECT count(*), min(t.seq), {', '.join(SQL[name] for name in columns)}"
    return f"{SQL['in_slices']} {select} {SQL['slice']}" if source == "range" else f"{select} {SQL[source]}"


async def read(connection: Connection, key: QueueKey, wanted: LogRange) -> list[RawRange]:
    """As much of the range as fits, in parts that follow each other, and at least one message if there is any."""
    if wanted.partitions is None and (parts := await _read_in_parts(connection, key, within_chunk(wanted))):
        return parts
    for _ in range(TRIES):
        bounds = await _bounds(connection, key)
        low, high = max(wanted.first, bounds["first_seq"]), min(wanted.last, bounds["last_seq"])
        high = min(high, low + most_seqs(wanted.max_rows, wanted.partitions) - 1)
        if low > high:
            return [RawRange(None, {}, wanted.last, bounds["id"])]
        found = None
        if wanted.partitions is not None:
            found = await _read_of_partitions(connection, bounds["id"], wanted, low, high)
        found = found or await _read(connection, bounds["id"], wanted, low, high)
        if found is not None:
            return [found]
    raise SkepError(Code.STORE_BUSY, f"the log of {key.name!r} is being deleted while it is read")


async def _bounds(connection: Connection, key: QueueKey) -> asyncpg.Record:
    bounds = await connection.fetchrow(SQL["bounds"], key.tenant, key.name)
    if bounds is None:
        raise no_queue(key.name)
    return bounds


def at_once(columns: Sequence[str]) -> str:
    """The statement that finds the shapes of a range's slices and reads their columns, payloads if they are short."""
    return f"{SQL['in_slices_of_queue']} {', '.join([SQL['shape'], *_at_once(columns)])} {SQL['slice_of_queue']}"


def at_once_of_partitions(columns: Sequence[str], source: str) -> str:
    """The same for the messages of some partitions in a range, as one slice."""
    return f"{SQL['shape']}, {', '.join(_at_once(columns))} {SQL[source]}"


def _at_once(columns: Sequence[str]) -> list[str]:
    return [SQL["short_payload" if name == "payload" else name] for name in columns]


async def _read_in_parts(connection: Connection, key: QueueKey, wanted: LogRange) -> list[RawRange]:
    """The beginning of a range, each part read in one walk, as far as payloads are short enough for that."""
    parts: list[RawRange] = []
    rest, rows = wanted, LOG_CHUNK
    while rest.first <= rest.last and rest.max_rows > 0 and rest.max_bytes > 0:
        rows = min(rows, rest.max_rows, rest.last - rest.first + 1)
        found, is_long = await _read_at_once(connection, key, rest, rows)
        if found is not None and found.shape is not None:
            parts.append(found)
            rest = structs.replace(
                rest,
                first=Seq(found.through + 1),
                max_rows=rest.max_rows - found.shape.messages,
                max_bytes=rest.max_bytes - found.shape.payload_bytes,
            )
        if is_long and rows > SLICE_ROWS:
            rows = SLICE_ROWS  # fewer messages may be longer
        elif is_long or found is None or found.shape is None or found.shape.messages < rows:
            break
    return parts


async def _read_at_once(
    connection: Connection, key: QueueKey, wanted: LogRange, rows: int
) -> tuple[RawRange | None, bool]:
    """The beginning of so many seqs, read in one walk, and whether it ends at payloads that may be too long to fit.

    None when there is nothing, or something was deleted meanwhile.
    """
    common = _common(wanted)
    parameters = (key.tenant, key.name, wanted.first, wanted.first + rows - 1, SLICE_ROWS, *_longest(wanted, rows))
    slices: list[tuple[Shape, Values]] = []
    is_long = False
    rows_found = _in_order(await connection.fetch(at_once(common), *parameters), 1)
    for _, *row in rows_found:
        shape, values, is_long = _shape_and_values(common, row)
        if is_long:
            break
        slices.append((shape, values))
    if not slices:
        return None, is_long
    shape = together([shape for shape, _ in slices])
    values = {name: _joined([values[name] for _, values in slices]) for name in common}
    whole = await _with_others(connection, rows_found[0][0], wanted, shape, values, "range", [])
    return None if whole is None else RawRange(shape, whole, Seq(shape.last), rows_found[0][0]), is_long


async def _read_of_partitions(
    connection: Connection, queue_id: int, wanted: LogRange, low: int, high: int
) -> RawRange | None:
    """The messages of partitions in a range, read in one walk; None when payloads may be too long to fit, or something was deleted meanwhile."""
    common = ["seq", *_common(wanted)]
    source, chosen = _source(wanted)
    parameters = (queue_id, low, high, *chosen, *_longest(wanted, wanted.max_rows))
    (row,) = await connection.fetch(at_once_of_partitions(common, source), *parameters)
    if not row[0]:
        return RawRange(None, {}, Seq(high), queue_id)
    shape, values, is_long = _shape_and_values(common, row)
    if is_long:
        return None
    whole = await _with_others(connection, queue_id, wanted, shape, values, source, chosen)
    last = shape.last if shape.messages == wanted.max_rows else high
    return None if whole is None else RawRange(shape, whole, Seq(last), queue_id)


def _source(wanted: LogRange) -> tuple[str, list[Any]]:
    """The statement that has the messages of a range, and its parameters after the ends."""
    match wanted.partitions:
        case None:
            return "range", []
        case (partition,):
            return "range_of_partition", [partition, wanted.max_rows]
        case partitions:
            return "range_of_partitions", [list(partitions), wanted.max_rows]


def _common(wanted: LogRange) -> list[str]:
    """The wanted columns that are read in the first walk."""
    names = wanted.schema.names
    return [name for name in COMMON if name in names or (name == "message_id" and "trace_id" in names)]


def _longest(wanted: LogRange, rows: int) -> list[int]:
    """The parameter of a first walk over so many messages that reads payloads: how long one may be, so that all of them fit."""
    return [wanted.max_bytes // rows] if "payload" in wanted.schema.names else []


def _shape_and_values(common: Sequence[str], row: Iterable[Any]) -> tuple[Shape, Values, bool]:
    """What a first walk found, and whether it left out payloads because they are too long."""
    fields = list(row)
    shape, values = Shape(*fields[:SHAPE_FIELDS]), _parts(common, fields[SHAPE_FIELDS:])
    is_long = "payload" in values and len(values["payload"][1] or b"") != shape.payload_bytes
    return shape, values, is_long


async def _with_others(
    connection: Connection, queue_id: int, wanted: LogRange, shape: Shape, values: Values, source: str, rest: list[Any]
) -> Values | None:
    """The values of a first walk with those of the columns that few messages have; None when some of its messages are gone."""
    left = [name for name in shape.to_read(wanted.schema.names) if name not in values]
    more = await _values(connection, queue_id, shape, left, source, rest)
    return None if more is None else values | more


async def _read(connection: Connection, queue_id: int, wanted: LogRange, low: int, high: int) -> RawRange | None:
    """Find the shape first, then read what fits; None when something was deleted meanwhile."""
    source, rest = _source(wanted)
    shape = _shape(await connection.fetchrow(shape_of(source), queue_id, low, high, *rest))
    is_cut = shape.payload_bytes > wanted.max_bytes
    if is_cut:
        last = await connection.fetchval(fitting(source), queue_id, low, high, *rest, wanted.max_bytes)
        if last is None:
            return None
        shape = _shape(await connection.fetchrow(shape_of(source), queue_id, low, last, *rest))
    if not shape.messages:
        return RawRange(None, {}, Seq(high), queue_id)
    values = await _values(connection, queue_id, shape, shape.to_read(wanted.schema.names), source, rest)
    if values is None:
        return None
    is_cut = is_cut or shape.messages == wanted.max_rows
    return RawRange(shape, values, Seq(shape.last if is_cut else high), queue_id)


async def _values(
    connection: Connection, queue_id: int, shape: Shape, names: Sequence[str], source: str, rest: list[Any]
) -> Values | None:
    """Columns of a range whose shape is known; None when some of its messages are gone."""
    if not names:
        return {}
    parameters = (queue_id, shape.first, shape.last, *(rest or [SLICE_ROWS]))
    rows = _in_order(await connection.fetch(values_of(names, source), *parameters), 0)
    if sum(row[0] for row in rows) != shape.messages:
        return None
    return _parts(names, _joined([row[2:] for row in rows]))


def _in_order(rows: Sequence[asyncpg.Record], count: int) -> list[asyncpg.Record]:
    """Slices with messages, in the order of the log. ``count`` is the field that counts them; the next one is their first seq."""
    return sorted((row for row in rows if row[count]), key=lambda row: int(row[count + 1]))


def _joined(slices: Sequence[Sequence[bytes | None]]) -> tuple[bytes, ...]:
    """The values of slices, one after the other."""
    return tuple(b"".join(filter(None, values)) for values in zip(*slices, strict=True))


def _parts(names: Sequence[str], parts: Sequence[bytes]) -> Values:
    following = iter(parts)
    return {n: (next(following), next(following)) if n in VARYING else (next(following),) for n in names}


def _shape(row: asyncpg.Record | None) -> Shape:
    assert row is not None
    return Shape(**row)


def piece_of(wanted: LogRange, parts: Sequence[RawRange]) -> LogPiece:
    """The parts of a range, as columns."""
    batches = [_batch(wanted, found) for found in parts]
    if len(batches) > 1:
        batches = pa.Table.from_batches(batches, wanted.schema).combine_chunks().to_batches()
    return LogPiece(batches[0], parts[-1].through)


def _batch(wanted: LogRange, found: RawRange) -> pa.RecordBatch:
    shape = found.shape
    if shape is None:
        return pa.RecordBatch.from_pylist([], schema=wanted.schema)
    arrays = [_column(name, shape, found.values.get(shape.read_as(name))) for name in wanted.schema.names]
    return pa.record_batch(arrays, schema=wanted.schema)


def _column(name: str, shape: Shape, values: tuple[bytes, ...] | None) -> pa.Array:
    if values is None:
        return implied(name, shape)
    if name in VARYING:
        sizes, data = values
        return column_of(LOG_SCHEMA.field(name).type, np.frombuffer(sizes, ">i4").astype(np.int64), data or b"")
    (data,) = values
    if name in ("message_id", "trace_id"):
        return ids_of(data)
    numbers = np.frombuffer(data, ">i8").astype(np.int64)
    return pa.array(numbers) if name == "seq" else times_of(numbers)
