"""The functions of expressions as columns. Each gives the value of `skep.spec.functions`, or no value where that is not certain."""

from __future__ import annotations

import operator
import string
from collections.abc import Callable
from functools import reduce

from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812

from skep.spark.columns import instants
from skep.spark.columns.values import (
    ColumnValue,
    as_float,
    as_int,
    as_list,
    as_map,
    as_text,
    nothing,
    taken_as,
)
from skep.spec.functions import WHITE_SPACE
from skep.spec.signatures import OF_BOTH, OF_TIME
from skep.spec.types import BOOL, DURATION, FLOAT, INT, STRING, TIME, Type, TypeKind, list_of

Function = Callable[..., ColumnValue]

INT_PATTERN = r"\A[+-]?[0-9]{1,20}\z"
FLOAT_PATTERN = r"\A[+-]?(?:[0-9]{1,400}(?:\.[0-9]{0,400})?|\.[0-9]{1,400})(?:[eE][+-]?[0-9]{1,5})?\z"
PARTS_MAX = 1 << 30
"""No text has so many parts."""
DIGITS_CERTAIN = 15
"""Up to so many characters a float has one spelling; beyond, Java before 19 may print one digit too many."""


def size(value: ColumnValue) -> ColumnValue:
    """Characters of a string, elements of a list, keys of a map."""
    match value.kind:
        case TypeKind.STRING:
            found = F.length(value.column)
        case TypeKind.LIST | TypeKind.MAP:
            found = F.when(value.column.isNotNull(), F.size(value.column))
        case TypeKind.JSON:
            counted = [F.when(column.isNotNull(), F.size(column)) for column in (as_list(value), as_map(value))]
            found = F.coalesce(F.length(as_text(value)), *counted)
        case _:
            return ColumnValue(INT, nothing(INT))
    return ColumnValue(INT, found.cast("bigint"))


def _texts(*values: ColumnValue) -> list[Column]:
    return [taken_as(value, STRING) for value in values]


def _of_texts(type_: Type, function: Callable[..., Column]) -> Function:
    """A function of strings that Spark has itself."""
    return lambda *values: ColumnValue(type_, function(*_texts(*values)))


def _ascii_only(text: Column, ascii_way: Column, from_: str, to: str) -> Column:
    """LakeChange ASCII letters only. Spark's own function is quicker, but right only for texts that are all ASCII."""
    return F.when(F.octet_length(text) == F.length(text), ascii_way).otherwise(F.translate(text, from_, to))


def lower(value: ColumnValue) -> ColumnValue:
    """A string with A to Z in lower case."""
    (text,) = _texts(value)
    return ColumnValue(STRING, _ascii_only(text, F.lower(text), string.ascii_uppercase, string.ascii_lowercase))


def upper(value: ColumnValue) -> ColumnValue:
    """A string with a to z in upper case."""
    (text,) = _texts(value)
    return ColumnValue(STRING, _ascii_only(text, F.upper(text), string.ascii_lowercase, string.ascii_uppercase))


def replace(value: ColumnValue, old: ColumnValue, new: ColumnValue, limit: ColumnValue | None = None) -> ColumnValue:
    """A string with the first occurrences of one part replaced, up to a limit."""
    text, part, other = _texts(value, old, new)
    everywhere = F.replace(text, F.when(part != "", part), other)
    if limit is None:
        return ColumnValue(STRING, everywhere)
    most = taken_as(limit, INT)
    parts = F.split(text, _literally(part), F.when(~_no_limit(most), most + 1).cast("int"))
    some = F.when(other.isNotNull(), F.call_function("array_join", parts, other))
    return ColumnValue(
        STRING, F.when(_no_limit(most), everywhere).when(most == 0, _if_all(text, part, other)).otherwise(some)
    )


def _if_all(value: Column, *others: Column) -> Column:
    """A value where the others have one, too."""
    return F.when(reduce(operator.and_, [other.isNotNull() for other in others]), value)


def _literally(part: Column) -> Column:
    """A pattern that only this text matches; no value for an empty one, and for one that cannot be quoted."""
    return F.when((part != "") & ~F.contains(part, F.lit("\\E")), F.concat(F.lit("\\Q"), part, F.lit("\\E")))


def _no_limit(most: Column) -> Column:
    return (most < 0) | (most >= PARTS_MAX)


def _no_texts() -> Column:
    return F.array().cast("array<string>")


def split(value: ColumnValue, separator: ColumnValue, limit: ColumnValue | None = None) -> ColumnValue:
    """The parts of a string between separators, up to a limit; without a separator, its characters."""
    text, mark = _texts(value, separator)
    letters = F.transform(F.sequence(F.lit(1), F.length(text)), lambda at: F.substring(text, at, F.lit(1)))
    characters = F.when(F.length(text) == 0, _no_texts()).otherwise(letters)
    everywhere = F.when(mark == "", characters).otherwise(F.split(text, _literally(mark), F.lit(-1)))
    if limit is None:
        return ColumnValue(list_of(STRING), everywhere)
    most = taken_as(limit, INT)
    some = F.split(text, _literally(mark), F.when(~_no_limit(most), most).cast("int"))
    none = _if_all(_no_texts(), text, mark)
    return ColumnValue(list_of(STRING), F.when(_no_limit(most), everywhere).when(most == 0, none).otherwise(some))


def join(value: ColumnValue, separator: ColumnValue | None = None) -> ColumnValue:
    """The strings of a list as one."""
    parts = taken_as(value, list_of(STRING))
    if separator is None:
        return ColumnValue(STRING, F.array_join(parts, ""))
    (mark,) = _texts(separator)
    return ColumnValue(STRING, F.when(mark.isNotNull(), F.call_function("array_join", parts, mark)))


def substring(value: ColumnValue, start: ColumnValue, end: ColumnValue | None = None) -> ColumnValue:
    """The characters of a string from one position up to another."""
    (text,) = _texts(value)
    first = taken_as(start, INT)
    last = F.length(text).cast("bigint") if end is None else taken_as(end, INT)
    fine = (first >= 0) & (first <= last) & (last <= F.length(text))
    return ColumnValue(
        STRING,
        F.when(fine, F.substring(text, F.try_add(first, F.lit(1)).try_cast("int"), (last - first).try_cast("int"))),
    )


def char_at(value: ColumnValue, at: ColumnValue) -> ColumnValue:
    """The character of a string at a position; empty at its end."""
    (text,) = _texts(value)
    start = _position(text, at)
    return ColumnValue(STRING, F.substring(text, start + 1, F.lit(1)))


def index_of(value: ColumnValue, part: ColumnValue, start: ColumnValue | None = None) -> ColumnValue:
    """The first position of a part in a string, from a position on; -1 when there is none."""
    text, wanted = _texts(value, part)
    first = F.lit(0) if start is None else _position(text, start)
    found = F.call_function("locate", wanted, text, first + 1) - 1
    found = F.when(wanted == "", first).otherwise(found).cast("bigint")
    return ColumnValue(INT, _if_all(found, text, wanted, first))  # `locate` has a value without a position


def last_index_of(value: ColumnValue, part: ColumnValue, start: ColumnValue | None = None) -> ColumnValue:
    """The last position of a part in a string, up to a position; -1 when there is none. Found from the front of the reversed string."""
    text, wanted = _texts(value, part)
    length, size_ = F.length(text), F.length(wanted)
    last = length if start is None else _position(text, start)
    passed = F.greatest(length - size_ - last, F.lit(0))
    found = F.call_function("locate", F.reverse(wanted), F.reverse(text), passed + 1)
    at = F.when(found == 0, F.lit(-1)).otherwise(length - size_ - found + 1)
    at = F.when(wanted == "", last).otherwise(at).cast("bigint")
    return ColumnValue(INT, _if_all(at, text, wanted, last))


def _position(text: Column, at: ColumnValue) -> Column:
    """A position in a string, its end included; elsewhere no value."""
    asked = taken_as(at, INT)
    return F.when((asked >= 0) & (asked <= F.length(text)), asked).cast("int")


def to_string(value: ColumnValue) -> ColumnValue:
    """A value's spelling."""
    match value.kind:
        case TypeKind.STRING:
            found = value.column
        case TypeKind.INT | TypeKind.BOOL:
            found = value.column.cast("string")
        case TypeKind.FLOAT:
            found = _print_float(value.column)
        case TypeKind.TIME:
            found = instants.print_time(value.column)
        case TypeKind.DURATION:
            found = instants.print_duration(value.column)
        case TypeKind.JSON:
            spelled = (as_int(value).cast("string"), taken_as(value, BOOL).cast("string"))
            found = F.coalesce(as_text(value), *spelled, _print_float(as_float(value)))
        case _:
            found = nothing(STRING)
    return ColumnValue(STRING, found)


def _print_float(number: Column) -> Column:
    size_ = F.abs(number)
    text = F.regexp_replace(number.cast("string"), r"\.0\z", "")
    usual = ((size_ >= 1e-3) & (size_ < 1e7)) | (size_ == 0.0)
    return F.when(usual & (F.length(text) <= DIGITS_CERTAIN), text)


def to_int(value: ColumnValue) -> ColumnValue:
    """A whole number: a float is cut towards zero, a time is its seconds since 1970."""
    match value.kind:
        case TypeKind.INT:
            found = value.column
        case TypeKind.FLOAT:
            found = _cut(value.column)
        case TypeKind.STRING:
            found = _read_int(value.column)
        case TypeKind.TIME:
            found = instants.floor(value.column, instants.SECOND)
        case TypeKind.JSON:
            found = F.coalesce(as_int(value), _cut(as_float(value)), _read_int(as_text(value)))
        case _:
            found = nothing(INT)
    return ColumnValue(INT, found)


def _cut(number: Column) -> Column:
    return F.when((number > -(2.0**63)) & (number < 2.0**63), number).try_cast("bigint")


def _read_int(text: Column) -> Column:
    return F.when(text.rlike(INT_PATTERN), text).try_cast("bigint")


def to_double(value: ColumnValue) -> ColumnValue:
    """A float, also from an int or a spelling."""
    match value.kind:
        case TypeKind.INT:
            return ColumnValue(FLOAT, value.column.cast("double"))
        case TypeKind.FLOAT:
            return value
        case TypeKind.STRING:
            return ColumnValue(FLOAT, _read_float(value.column), finite=False)
        case TypeKind.JSON:
            found = F.coalesce(as_int(value).cast("double"), as_float(value), _read_float(as_text(value)))
            return ColumnValue(FLOAT, found, finite=False)
    return ColumnValue(FLOAT, nothing(FLOAT))


def _read_float(text: Column) -> Column:
    return F.when(text.rlike(FLOAT_PATTERN), text).try_cast("double")


def to_bool(value: ColumnValue) -> ColumnValue:
    """A bool, from its usual spellings too."""
    if value.kind is TypeKind.BOOL:
        return value
    (text,) = _texts(value)
    spelled = F.when(text.isin("1", "t", "true", "TRUE", "True"), F.lit(True)).when(
        text.isin("0", "f", "false", "FALSE", "False"), F.lit(False)
    )
    return ColumnValue(BOOL, F.coalesce(taken_as(value, BOOL), spelled) if value.kind is TypeKind.JSON else spelled)


def to_time(value: ColumnValue) -> ColumnValue:
    """A time, from RFC 3339 or seconds since 1970."""
    match value.kind:
        case TypeKind.TIME:
            return value
        case TypeKind.INT:
            found = _since_1970(value.column)
        case TypeKind.STRING:
            found = instants.parse_time(value.column)
        case TypeKind.JSON:
            found = F.coalesce(instants.parse_time(as_text(value)), _since_1970(as_int(value)))
        case _:
            found = nothing(TIME)
    return ColumnValue(TIME, found)


def _since_1970(seconds: Column) -> Column:
    return instants.within_years(F.try_multiply(seconds, F.lit(instants.SECOND).cast("bigint")))


def to_duration(value: ColumnValue) -> ColumnValue:
    """A duration. It has many spellings; the evaluator reads those that are not literals of the expression."""
    return value if value.kind is TypeKind.DURATION else ColumnValue(DURATION, nothing(DURATION))


def part(name: str) -> Function:
    """A part of a time or a duration."""

    def found(value: ColumnValue) -> ColumnValue:
        if value.kind is TypeKind.TIME:
            return ColumnValue(INT, instants.part_of_time(name, value.column))
        if value.kind is TypeKind.DURATION and name in OF_BOTH:
            return ColumnValue(INT, instants.part_of_duration(name, value.column))
        return ColumnValue(INT, nothing(INT))

    return found


FUNCTIONS: dict[str, Function] = {
    "size": size, "contains": _of_texts(BOOL, F.contains), "startsWith": _of_texts(BOOL, F.startswith),
    "endsWith": _of_texts(BOOL, F.endswith), "lowerAscii": lower, "upperAscii": upper,
    "trim": _of_texts(STRING, lambda text: F.btrim(text, F.lit(WHITE_SPACE))), "replace": replace, "split": split,
    "join": join, "substring": substring, "charAt": char_at, "indexOf": index_of, "lastIndexOf": last_index_of,
    "reverse": _of_texts(STRING, F.reverse),
    "string": to_string, "int": to_int, "double": to_double, "bool": to_bool, "timestamp": to_time, "duration": to_duration,
    "dyn": lambda value: value, **{name: part(name) for name in (*OF_TIME, *OF_BOTH)},
}  # fmt: skip
"""All functions but the operators and `matches`, which needs the pattern itself and not its column."""
