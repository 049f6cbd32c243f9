"""The constant schemas of Spark's reads, and the conversion of the wire's columns.

Spark takes an Arrow batch only if its schema is exactly the expected one: names, order, types, nullability.
Nothing here makes a Python object per message, except for headers that differ from message to message.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from skep.errors import Code, SkepError
from skep.model import SEALED_TYPE

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

HEADERS = pa.map_(pa.field("key", pa.string(), nullable=False), pa.field("value", pa.string()))
INSTANT = pa.timestamp("us", tz="UTC")
MESSAGES = pa.schema(
    [
        ("queue", pa.string()),
        ("partition", pa.string()),
        ("seq", pa.int64()),
        ("message_id", pa.string()),
        ("transaction_id", pa.string()),
        ("trace_id", pa.string()),
        ("payload", pa.string()),
        ("headers", HEADERS),
        ("created_at", INSTANT),
    ]
)
"""A message as Spark sees it."""
FURTHER = pa.schema([("content_type", pa.string())])
"""Columns that are read only when the option `columns` names them."""


def _hex() -> np.ndarray[tuple[int], np.dtype[np.uint32]]:
    """A table from two bytes, as they lie in memory, to their four hexadecimal digits."""
    pairs = np.arange(65_536)
    nibbles = np.stack([pairs >> 4, pairs, pairs >> 12, pairs >> 8], axis=1) & 15
    digits = np.frombuffer(b"0123456789abcdef", np.uint8)
    return np.ascontiguousarray(digits[nibbles]).reshape(-1).view(np.uint32)


SQL_TYPES = {
    pa.string(): "string",
    pa.int64(): "bigint",
    pa.int32(): "int",
    pa.float64(): "double",
    pa.bool_(): "boolean",
    pa.binary(): "binary",
    pa.date32(): "date",
    INSTANT: "timestamp",
    HEADERS: "map<string,string>",
}
_HEX = _hex()
_DASHES = (8, 13, 18, 23)
_decode_headers = msgspec.json.Decoder(dict[str, str]).decode


def schema_of(names: Sequence[str]) -> pa.Schema:
    """The schema of some columns of a message, in the order of the names; the usual columns when none is named."""
    return part_of(pa.schema([*MESSAGES, *FURTHER]), names) if names else MESSAGES


def part_of(schema: pa.Schema, names: Sequence[str]) -> pa.Schema:
    """Some columns of a schema, in the order of the names; all of it when none is named."""
    if not names:
        return schema
    known = {field.name: field for field in schema}
    for name in names:
        if name not in known:
            raise SkepError(Code.INVALID_REQUEST, f"there is no column {name!r} here; there are {', '.join(known)}")
    if len(set(names)) < len(names):
        raise SkepError(Code.INVALID_REQUEST, "the option columns names a column twice")
    return pa.schema([known[name] for name in names])


def ddl(schema: pa.Schema) -> str:
    """The schema in Spark's DDL."""
    return ", ".join(f"`{field.name}` {sql_type(field.type)}" for field in schema)


def sql_type(type_: pa.DataType) -> str:
    """Spark's word for a type of Arrow."""
    if type_ in SQL_TYPES:
        return SQL_TYPES[type_]
    if pa.types.is_map(type_):
        return f"map<{sql_type(type_.key_type)},{sql_type(type_.item_type)}>"
    if pa.types.is_list(type_):
        return f"array<{sql_type(type_.value_type)}>"
    fields = [type_.field(index) for index in range(type_.num_fields)]
    return f"struct<{','.join(f'{field.name}:{sql_type(field.type)}' for field in fields)}>"


def wanted(schema: StructType, offered: pa.Schema) -> pa.Schema:
    """The source's columns that a user's schema names; an error for an unknown column, or one of another type."""
    known = {field.name: field for field in offered}
    for field in schema.fields:
        mine = known.get(field.name)
        if mine is None:
            raise SkepError(
                Code.INVALID_REQUEST,
                f"the schema has a column {field.name!r} that is not there; there are {', '.join(known)}",
            )
        if field.dataType.simpleString() != sql_type(mine.type):
            raise SkepError(
                Code.INVALID_REQUEST,
                f"the column {field.name} is {sql_type(mine.type)}, not {field.dataType.simpleString()}; "
                "read it so, and cast it in the query",
            )
    fields = [known[field.name].with_nullable(field.nullable) for field in schema.fields]
    return pa.schema(fields)


def rows_of(batch: pa.RecordBatch, queue: str, schema: pa.Schema) -> pa.RecordBatch:
    """A batch of the log, from the form of the wire to the form that Spark takes."""
    columns: dict[str, pa.Array] = {}
    for field in schema:
        columns[field.name] = _column(batch, field, queue, columns)
    return pa.RecordBatch.from_arrays(list(columns.values()), schema=schema)


def without_sealed(batch: pa.RecordBatch) -> pa.RecordBatch:
    """A batch of the log whose payloads are null where the server could not open them (`SealedPayloads`: blank)."""
    is_sealed = pc.fill_null(pc.equal(batch.column("content_type"), SEALED_TYPE), False)
    if not pc.any(is_sealed).as_py():
        return batch
    place, payload = batch.schema.get_field_index("payload"), batch.column("payload")
    return batch.set_column(place, pa.field("payload", payload.type), pc.if_else(is_sealed, None, payload))


def _column(batch: pa.RecordBatch, field: pa.Field, queue: str, before: dict[str, pa.Array]) -> pa.Array:
    if field.name == "queue":
        return pa.repeat(pa.scalar(queue), batch.num_rows)
    index = batch.schema.get_field_index(field.name)
    if index < 0:
        raise SkepError(
            Code.INTERNAL, f"the server did not send the column {field.name}; is it older than this client?"
        )
    column = batch.column(index)
    if field.name == "headers":
        return header_maps(column)
    if field.name == "trace_id" and "message_id" in before and column.equals(batch.column("message_id")):
        return before["message_id"]  # most messages have no trace of their own
    return fitted(column, field.type)


def fitted(column: pa.Array, kind: pa.DataType) -> pa.Array:
    """A column as another type: ids in their written form, bytes as text, the rest by a cast."""
    if column.type == kind:
        return column
    if pa.types.is_fixed_size_binary(column.type) and kind == pa.string():
        return id_texts(column)
    if pa.types.is_binary(column.type) and kind == pa.string():
        # Spark's strings are bytes. They are not validated here, so that a payload stays the same to the last byte.
        return pa.Array.from_buffers(kind, len(column), column.buffers(), column.null_count, column.offset)
    return column.cast(kind)


def id_texts(column: pa.FixedSizeBinaryArray) -> pa.StringArray:
    """Ids of 16 bytes as UUID text; null stays null."""
    raw = np.frombuffer(column.buffers()[1], "<u2", 8 * len(column), 16 * column.offset).reshape(-1, 8)
    digits = _HEX[raw].view(np.uint8).reshape(-1, 32)
    texts = np.empty((len(raw), 36), np.uint8)
    texts[:, _DASHES] = ord("-")
    for place, begin, end in ((0, 0, 8), (9, 8, 12), (14, 12, 16), (19, 16, 20), (24, 20, 32)):
        texts[:, place : place + end - begin] = digits[:, begin:end]
    offsets = np.arange(len(raw) + 1, dtype=np.int32) * 36
    present = np.packbits(column.is_valid(), bitorder="little") if column.null_count else None
    validity = None if present is None else pa.py_buffer(present)
    return pa.StringArray.from_buffers(len(raw), pa.py_buffer(offsets), pa.py_buffer(texts), validity)


def header_maps(column: pa.Array) -> pa.MapArray:
    """Headers as maps. They arrive as JSON. Many messages have the same headers, so each distinct text is decoded once."""
    if column.null_count == len(column):
        return pa.nulls(len(column), HEADERS)
    coded = column.dictionary_encode()
    read = [_decode_headers(text) for text in coded.dictionary.to_pylist()]
    offsets = np.zeros(len(read) + 1, np.int32)
    np.cumsum([len(one) for one in read], out=offsets[1:])
    keys = pa.array([key for one in read for key in one], pa.string())
    values = pa.array([value for one in read for value in one.values()], pa.string())
    maps = pa.MapArray.from_arrays(pa.array(offsets), keys, values).cast(HEADERS)
    return maps.take(coded.indices)
