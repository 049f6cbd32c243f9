"""A whole mapping as one column: the JSON text of a command's input, null where a field has no value."""

from __future__ import annotations

from collections.abc import Mapping
from functools import reduce
from typing import NamedTuple

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812

from skep.entities import encoded
from skep.entities.inputs import InputMapping
from skep.spark.columns.binding import MessageColumns
from skep.spark.columns.compiler import Compiled, compile_column
from skep.spark.columns.output import json_parts
from skep.spark.columns.values import Uncompiled, nothing
from skep.spec.expressions import Expression
from skep.spec.types import STRING, TypeKind


class MappedColumn(NamedTuple):
    """The column, its frame, and the fields that are left to the evaluator, each with the reason."""

    column: Column
    frame: DataFrame
    left_out: dict[str, str]


def mapping_column(mapping: InputMapping, message: MessageColumns) -> MappedColumn:
    """The fields of a command's input as one JSON object."""
    found: dict[str, Compiled] = {}
    left_out: dict[str, str] = {}
    for name, expression in mapping.mapping.fields:
        try:
            found[name] = _field(expression, message)
        except Uncompiled as reason:
            left_out[name] = str(reason)
    if left_out:
        return MappedColumn(nothing(STRING), message.frame, left_out)
    constants = {name: encoded(value).decode() for name, value in mapping.constants.items()}
    fits = message.binder.name(message.fits, 0)
    sure = reduce(lambda one, other: one & other, [one.sure for one in found.values()], fits)
    # Nearly all messages need no JSON escapes; the text of the others is made in a slower way.
    plain = _object(found, constants, plain=True)
    made = F.when(sure & message.plain, plain).when(sure, _object(found, constants, plain=False))
    return MappedColumn(made, message.binder.applied(message.frame), left_out)


def _field(expression: Expression, message: MessageColumns) -> Compiled:
    if expression.wanted is not None and expression.wanted.kind is TypeKind.RECORD:
        raise Uncompiled("a record is wanted")
    return compile_column(expression, message)


def _object(fields: Mapping[str, Compiled], constants: Mapping[str, str], plain: bool) -> Column:
    """The text of an object; null when one of its parts is null, which concat_ws would skip."""
    parts: list[Column | str] = []
    for name, one in fields.items():
        parts += [f",{encoded(name).decode()}:", *json_parts(one.value, one.expression.wanted, plain and one.copies)]
    parts += [f",{encoded(name).decode()}:{value}" for name, value in constants.items()]
    parts[:1] = [str(parts[0])[1:]] if parts else []
    return F.concat(*[F.lit(one) if isinstance(one, str) else one for one in _merged(["{", *parts, "}"])])


def _merged(parts: list[Column | str]) -> list[Column | str]:
    """The same parts, with neighbouring constants joined."""
    merged: list[Column | str] = []
    for part in parts:
        if isinstance(part, str) and merged and isinstance(merged[-1], str):
            merged[-1] += part
        else:
            merged.append(part)
    return merged
