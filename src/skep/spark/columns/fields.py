"""The fields of messages as the columns of a table, by our reader in Java: with their own SQL types, and json as its text.

`skep.spark.typed.fields` reads the same in Python, and reads all that is left here: messages for which the struct is null, and
messages of types or sessions that have no reader.
"""

from __future__ import annotations

import msgspec
from msgspec import UNSET
from pyspark.sql import Column, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from skep.spark.columns.reading import can_read, constant, described, has_reader
from skep.spark.jvm import function_name
from skep.spec.ir import Queue
from skep.spec.types import STRING, Field, Type, TypeKind, holds

TEXT = "text"
"""The reader's kind for any JSON as its own text."""


def field_struct(spark: SparkSession, queue: Queue, payload: Column) -> Column | None:
    """The fields of a payload as a struct, null where it is not certain that the payload fits; None when there is no reader."""
    if not (can_read(queue) and has_reader(spark)):
        return None
    return F.call_function(function_name(described(queue, json_as=TEXT)), payload)


def field_columns(row: Column, queue: Queue) -> dict[str, Column]:
    """The columns of the fields in such a struct."""
    return {name: _column(row[name], field) for name, field in queue.message_type.items()}


def _column(column: Column, field: Field) -> Column:
    """A field of the struct, or its default where the message lacks it."""
    if field.default is not UNSET and not (field.default is None and field.type.optional):
        default = constant(_with_texts(field.default, field.type), _textual(field.type))
        column = F.coalesce(column, default)
    return _converted(column, field.type)


def _converted(column: Column, type_: Type) -> Column:
    """A value of the reader in the SQL type of a table."""
    if type_.kind is TypeKind.TIME:
        return F.timestamp_micros(column)
    if type_.kind is TypeKind.JSON and type_.optional:
        return F.nullif(column, F.lit("null"))
    inner = type_.element
    if inner is None or not (holds(inner, TypeKind.TIME) or _holds_null(inner)):
        return column
    if type_.kind is TypeKind.MAP:
        return F.transform_values(column, lambda _, value: _converted(value, inner))
    return F.transform(column, lambda value: _converted(value, inner))


def _holds_null(type_: Type) -> bool:
    """Whether a part of a value may be a null of JSON, of which the reader has the text."""
    return (type_.kind is TypeKind.JSON and type_.optional) or (
        type_.element is not None and _holds_null(type_.element)
    )


def _textual(type_: Type) -> Type:
    """The type with texts for json."""
    if type_.kind is TypeKind.JSON:
        return STRING
    return type_ if type_.element is None else msgspec.structs.replace(type_, element=_textual(type_.element))


def _with_texts(value: object, type_: Type) -> object:
    """A default with texts for json."""
    if type_.kind is TypeKind.JSON:
        return msgspec.json.encode(value).decode()
    inner = type_.element
    if inner is None:
        return value
    if isinstance(value, dict):
        return {key: _with_texts(one, inner) for key, one in value.items()}
    return [_with_texts(one, inner) for one in value] if isinstance(value, list) else value
