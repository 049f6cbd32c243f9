"""Values in columns: the SQL type of each type of the spec, and how a value is taken as another type without a conversion.

| spec | SQL |
|---|---|
| string, uuid, enum | string |
| int, float, bool | bigint, double, boolean |
| time, duration | bigint, in microseconds |
| list<T>, map<K, T> | array, map<string, …>; elements that may be null are json |
| json | variant |

A null column means "no value here" (see the package). `ColumnValue.null` says where the value is CEL's null; a variant has its own null.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812 - the name everybody knows it by

from skep.spark.jvm import function_name
from skep.spec.types import BOOL, FLOAT, INT, JSON, STRING, TEXTUAL, Type, TypeKind, holds, list_of, map_of

LARGE = 9.2e18
"""From here on, a number of a variant may have been an int of more than 64 bits."""

_SQL = {
    TypeKind.STRING: "string", TypeKind.INT: "bigint", TypeKind.FLOAT: "double", TypeKind.BOOL: "boolean", TypeKind.TIME: "bigint",
    TypeKind.DURATION: "bigint", TypeKind.JSON: "variant", TypeKind.NULL: "string",
}  # fmt: skip


class Uncompiled(Exception):  # noqa: N818 - it says what is so, and nothing is wrong
    """An expression that is left to the evaluator, and why."""


@dataclass(frozen=True)
class ColumnValue:
    """A column with its type. ``null`` is true where the value is CEL's null, and None if it never is.

    ``finite`` is False for floats that may be infinite or NaN. ``base`` and ``path`` tell where a json was taken from, so that one
    call follows a whole path. ``layer`` is the number of layers of names that it needs (see `binding`). ``known`` is the type that a
    string was checked against when it was read. ``keys`` is the path of a json for our own functions (see `of_json`).
    """

    type: Type
    column: Column
    null: Column | None = None
    finite: bool = True
    base: Column | None = None
    path: str = ""
    layer: int = 0
    known: Type | None = None
    keys: tuple[str, ...] | None = None

    @property
    def kind(self) -> TypeKind:
        return self.type.kind

    def there(self) -> Column:
        """Whether it has a value; CEL's null is one."""
        return (
            self.column.isNotNull()
            if self.null is None
            else F.coalesce(self.null, F.lit(False)) | self.column.isNotNull()
        )


def held(type_: Type) -> Type:
    """The type that a column holds for a type of the spec: uuids and enums are strings, and elements that may be null are json."""
    if type_.kind in TEXTUAL:
        return STRING
    if type_.kind is TypeKind.LIST:
        return list_of(_inner(type_.element))
    if type_.kind is TypeKind.MAP:
        return map_of(STRING, _inner(type_.element))
    if type_.kind is TypeKind.RECORD:
        raise Uncompiled("records are not read by columns")
    return Type(type_.kind)


def _inner(element: Type | None) -> Type:
    return JSON if element is None or element.optional else held(element)


def sql_type(type_: Type) -> str:
    """The SQL type of a held type."""
    if type_.kind is TypeKind.LIST:
        return f"array<{sql_type(type_.element or JSON)}>"
    if type_.kind is TypeKind.MAP:
        return f"map<string,{sql_type(type_.element or JSON)}>"
    return _SQL[type_.kind]


def nothing(type_: Type) -> Column:
    """A column without a value."""
    return F.lit(None).cast(sql_type(type_))


def json_null() -> Column:
    """The null of JSON."""
    return F.parse_json(F.lit("null"))


def of_json(base: Column, path: str = "$", keys: tuple[str, ...] | None = None) -> ColumnValue:
    """The json at a path of a variant. ``keys`` is the same path, given if the session has our own functions."""
    column = base if path == "$" else F.try_variant_get(base, path, "variant")
    return ColumnValue(JSON, column, base=base, path=path, keys=keys)


def at_keys(value: ColumnValue, asked: str) -> Column:
    """The result of one of our own functions for the path of a json."""
    assert value.base is not None
    return F.call_function(function_name({asked: value.keys}), value.base)


def taken(value: ColumnValue, sql: str) -> Column:
    """A json cast by Spark. The cast may convert types, so the caller also checks the kind."""
    base = value.base if value.base is not None else value.column
    return F.try_variant_get(base, value.path or "$", sql)


def spelled(value: ColumnValue) -> Column:
    """The kind of a json's value, in Spark's words."""
    return F.schema_of_variant(value.column)


def as_text(value: ColumnValue) -> Column:
    """A json as a string. Only a string can be cast to bytes, so this takes one call."""
    if value.keys is not None:
        return at_keys(value, "text")
    return taken(value, "binary").cast("string")


def as_int(value: ColumnValue) -> Column:
    """A json as an int."""
    return F.when(spelled(value) == "BIGINT", taken(value, "bigint"))


def is_float(value: ColumnValue) -> Column:
    """Whether a json is a float, or an int of more than 64 bits."""
    kind = spelled(value)
    return kind.startswith("DECIMAL") | (kind == "DOUBLE")


def as_float(value: ColumnValue) -> Column:
    """A json as a float. Zeros, and numbers that may be ints of more than 64 bits, have no value: a variant does not tell these apart."""
    number = taken(value, "double")
    return F.when(is_float(value) & (F.abs(number) < LARGE) & (number != 0.0), number)


def as_number(value: ColumnValue) -> Column:
    """A number as a float."""
    if value.kind is TypeKind.JSON:
        return F.coalesce(as_int(value).cast("double"), as_float(value))
    return value.column.cast("double")


def as_bool(value: ColumnValue) -> Column:
    """A json as a bool."""
    return F.when(spelled(value) == "BOOLEAN", taken(value, "boolean"))


def as_list(value: ColumnValue) -> Column:
    """A json as a list of json."""
    return taken(value, "array<variant>")


def as_map(value: ColumnValue) -> Column:
    """A json as a map of json. Its keys are sorted, not in the order of the message."""
    return taken(value, "map<string,variant>")


def is_map(value: ColumnValue) -> Column:
    """Whether a json is an object."""
    return spelled(value).startswith("OBJECT")


_AS: dict[TypeKind, Callable[[ColumnValue], Column]] = {
    TypeKind.STRING: as_text, TypeKind.INT: as_int, TypeKind.FLOAT: as_float, TypeKind.BOOL: as_bool,
}  # fmt: skip


def taken_as(value: ColumnValue, wanted: Type) -> Column:
    """The column of a value if it has the type, else no value."""
    if value.kind is wanted.kind:
        if value.type != wanted and value.kind in (TypeKind.LIST, TypeKind.MAP):
            return _inside_as(value, wanted)
        return value.column
    if wanted.kind is TypeKind.JSON:
        return as_json(value).column
    if value.kind is not TypeKind.JSON:
        return nothing(wanted)
    if wanted.kind in _AS:
        return _AS[wanted.kind](value)
    if wanted.kind is TypeKind.LIST:
        return _inside_as(ColumnValue(list_of(JSON), as_list(value)), wanted)
    if wanted.kind is TypeKind.MAP:
        return _inside_as(ColumnValue(map_of(STRING, JSON), as_map(value)), wanted)
    return nothing(wanted)


def _inside_as(value: ColumnValue, wanted: Type) -> Column:
    """A list or map with its elements taken as another type; no value when one element does not have it."""
    given, inner = value.type.element or JSON, wanted.element or JSON
    if given == inner:
        return value.column

    def look(item: Column) -> Column:
        return taken_as(ColumnValue(given, item), inner)

    if value.kind is TypeKind.LIST:
        found = F.transform(value.column, look)
        return F.when(F.forall(found, lambda item: item.isNotNull()), found)
    found = F.transform_values(value.column, lambda _, item: look(item))
    return F.when(F.forall(F.map_values(found), lambda item: item.isNotNull()), found)


def as_json(value: ColumnValue) -> ColumnValue:
    match value.kind:
        case TypeKind.JSON:
            return value
        case TypeKind.NULL:
            return ColumnValue(JSON, json_null())
        case TypeKind.LIST | TypeKind.MAP:
            if holds(value.type, TypeKind.TIME, TypeKind.DURATION):
                raise Uncompiled("times and durations are not mixed with json")
            column = F.to_variant_object(value.column)
        case TypeKind.TIME | TypeKind.DURATION:
            raise Uncompiled("times and durations are not mixed with json")
        case _:
            column = value.column.cast("variant")
    return ColumnValue(
        JSON, column if value.null is None else F.when(value.null, json_null()).otherwise(column), finite=value.finite
    )


def constant(value: object) -> ColumnValue:
    """A constant of an expression."""
    match value:
        case None:
            return ColumnValue(Type(TypeKind.NULL), nothing(STRING), F.lit(True))
        case bool():
            return ColumnValue(BOOL, F.lit(value))
        case int():
            return ColumnValue(INT, F.lit(value).cast("bigint"))
        case float():
            return ColumnValue(FLOAT, F.lit(value).cast("double"), finite=abs(value) < float("inf"))
        case _:
            return ColumnValue(STRING, F.lit(str(value)))
