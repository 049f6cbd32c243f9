"""Values as JSON text, for the input of a command or any row of JSON, and checked against the wanted type."""

from __future__ import annotations

from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812

from skep.spark.columns.instants import TIME_PATTERN, parse_time, print_duration, print_time
from skep.spark.columns.values import (
    ColumnValue,
    as_bool,
    as_float,
    as_int,
    as_json,
    as_text,
    nothing,
    spelled,
)
from skep.spec.types import STRING, Type, TypeKind, holds

UUID_PATTERN = r"\A[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}\z"
UNQUOTABLE = frozenset('"\\' + "".join(map(chr, range(32))))
"""The characters that JSON escapes."""
_KEEP_NULLS = {"ignoreNullFields": "false"}


def json_text(value: ColumnValue, wanted: Type | None, plain: bool = False) -> Column:
    """The value as JSON; no value where it does not fit ``wanted``.

    ``plain`` promises that no text of the message has a character that JSON escapes; then texts are copied.
    """
    text = _fitting(value, wanted, plain) if wanted is not None else _written(value, plain)
    if value.null is None:
        return text
    takes_null = wanted is None or wanted.optional or wanted.kind is TypeKind.JSON
    return F.when(value.null, F.lit("null")).otherwise(text) if takes_null else text


def json_parts(value: ColumnValue, wanted: Type | None, plain: bool) -> list[Column | str]:
    """The value as JSON, in parts that are joined later."""
    fits = wanted is None or wanted.kind in (TypeKind.STRING, TypeKind.JSON) or _is_known(value.known, wanted)
    if plain and fits and value.kind is TypeKind.STRING and value.null is None:
        return ['"', value.column, '"']
    return [json_text(value, wanted, plain)]


def quoted(text: Column, plain: bool) -> Column:
    """A string in quotes."""
    if plain:
        return _in_quotes(text)
    # The text between the brackets starts and ends with a quote, so only the brackets are trimmed.
    return F.when(text.isNotNull(), F.btrim(F.to_json(F.array(text)), F.lit("[]")))


def _written(value: ColumnValue, plain: bool) -> Column:
    match value.kind:
        case TypeKind.STRING:
            return quoted(value.column, plain)
        case TypeKind.INT | TypeKind.BOOL:
            return value.column.cast("string")
        case TypeKind.FLOAT:
            return _number(value)
        case TypeKind.TIME:
            return _in_quotes(print_time(value.column))
        case TypeKind.DURATION:
            return _in_quotes(print_duration(value.column))
        case TypeKind.NULL:
            return F.lit("null")
        case TypeKind.JSON:
            return _json(value)
    return _container(value)


def _in_quotes(text: Column) -> Column:
    return F.concat(F.lit('"'), text, F.lit('"'))


def _number(value: ColumnValue) -> Column:
    text = value.column.cast("string")
    return text if value.finite else F.when(F.abs(value.column) < float("inf"), text)


def _json(value: ColumnValue) -> Column:
    """A json as text. A variant writes 1.0 as 1, so json with such floats has no value here."""
    kind = spelled(value)
    floats = kind.rlike(r"DECIMAL\([0-9]+,0\)|DOUBLE|VARIANT|ARRAY<.*DECIMAL")
    return F.when(~floats, F.to_json(value.column))


def _container(value: ColumnValue) -> Column:
    element = value.type.element
    assert element is not None
    match element.kind:
        case TypeKind.STRING | TypeKind.INT | TypeKind.BOOL:
            return F.when(value.column.isNotNull(), F.to_json(value.column, _KEEP_NULLS))
        case TypeKind.TIME | TypeKind.DURATION:
            printing = print_time if element.kind is TypeKind.TIME else print_duration
            if value.kind is TypeKind.LIST:
                return F.to_json(F.transform(value.column, printing))
            return F.to_json(F.transform_values(value.column, lambda _, item: printing(item)))
        case TypeKind.FLOAT:
            items = value.column if value.kind is TypeKind.LIST else F.map_values(value.column)
            finite = F.forall(items, lambda item: F.abs(item) < float("inf"))
            return F.when(finite, F.to_json(value.column))
        case TypeKind.LIST | TypeKind.MAP if holds(element, TypeKind.FLOAT, TypeKind.TIME, TypeKind.DURATION):
            return nothing(STRING)
    return _json(as_json(value))


def _fitting(value: ColumnValue, wanted: Type, plain: bool) -> Column:
    if wanted.kind is TypeKind.JSON:
        return _written(value, plain)
    if value.kind is TypeKind.JSON:
        return _fitting_json(value, wanted, plain)
    match wanted.kind:
        case TypeKind.STRING | TypeKind.UUID | TypeKind.ENUM if value.kind is TypeKind.STRING:
            fits = _is_known(value.known, wanted)
            return quoted(value.column if fits else fitting_text(value.column, wanted), plain)
        case TypeKind.LIST | TypeKind.MAP if value.kind is wanted.kind:
            return _written(value, plain) if _fits_inside(value.type, wanted) else nothing(STRING)
        case TypeKind.DURATION | TypeKind.RECORD | TypeKind.NULL:
            return nothing(STRING)
    return _written(value, plain) if value.kind is wanted.kind else nothing(STRING)


def _is_known(known: Type | None, wanted: Type) -> bool:
    """Whether a string was checked against the type, or a narrower one, when it was read."""
    return known is not None and known.kind is wanted.kind and set(known.choices) <= set(wanted.choices)


def _fits_inside(given: Type, wanted: Type) -> bool:
    """Whether elements fit by their types alone. Elements that would have to be checked one by one are left to the evaluator."""
    one, other = given.element, wanted.element
    if one is None or other is None or (wanted.key is not None and wanted.key.kind is not TypeKind.STRING):
        return False
    if other.kind is TypeKind.JSON:
        return True
    if one.kind is not other.kind:
        return False
    return one.kind in (TypeKind.STRING, TypeKind.INT, TypeKind.BOOL, TypeKind.FLOAT, TypeKind.TIME) or _fits_inside(
        one, other
    )


def fitting_text(text: Column, wanted: Type) -> Column:
    """The string if it fits the type, else no value."""
    if wanted.kind is TypeKind.UUID:
        return F.when(text.rlike(UUID_PATTERN), text)
    if wanted.kind is TypeKind.ENUM:
        return F.when(text.isin(*wanted.choices), text)
    if wanted.kind is TypeKind.TIME:
        return F.when(text.rlike(TIME_PATTERN) & parse_time(text).isNotNull(), text)
    return text


def _fitting_json(value: ColumnValue, wanted: Type, plain: bool) -> Column:
    match wanted.kind:
        case TypeKind.STRING | TypeKind.UUID | TypeKind.ENUM | TypeKind.TIME:
            text = quoted(fitting_text(as_text(value), wanted), plain)
        case TypeKind.INT:
            text = as_int(value).cast("string")
        case TypeKind.BOOL:
            text = as_bool(value).cast("string")
        case TypeKind.FLOAT:
            text = F.coalesce(as_int(value).cast("string"), as_float(value).cast("string"))
        case _:
            is_loose = wanted.element is not None and wanted.element.kind is TypeKind.JSON
            if not is_loose or (wanted.key is not None and wanted.key.kind is not TypeKind.STRING):
                return nothing(STRING)
            text = F.when(
                spelled(value).startswith("ARRAY" if wanted.kind is TypeKind.LIST else "OBJECT"), _json(value)
            )
    return F.when(F.is_variant_null(value.column), F.lit("null")).otherwise(text) if wanted.optional else text
