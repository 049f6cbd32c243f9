"""A whole mapping as one column: the JSON text of a command's input, null where any of its fields has no value."""

from __future__ import annotations

from typing import NamedTuple

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812

from skep.entities import encoded
from skep.spark.columns.compiler import compile_column
from skep.spark.columns.message import MessageColumns
from skep.spark.columns.output import json_text
from skep.spark.columns.values import Uncompiled, nothing
from skep.spec.expressions import Expression
from skep.spec.mapping import FieldMapping
from skep.spec.types import STRING, Kind


class MappedColumn(NamedTuple):
    """The column, the frame it is for, and what it left to the evaluator: the expressions by field, each with the reason."""

    column: Column
    frame: DataFrame
    left_out: dict[str, str]


def mapping_column(mapping: FieldMapping, message: MessageColumns) -> MappedColumn:
    """The fields of a mapping as one JSON object."""
    parts: list[Column] = []
    sure, left_out = message.fits, dict[str, str]()
    for index, (name, expression) in enumerate(mapping.fields):
        try:
            text, within = _field(expression, message)
        except Uncompiled as reason:
            left_out[name] = str(reason)
            continue
        sure &= within
        parts += [F.lit(f"{',' if index else '{'}{encoded(name).decode()}:"), text]
    if left_out:
        return MappedColumn(nothing(STRING), message.frame, left_out)
    made = F.concat(*parts, F.lit("}")) if parts else F.lit("{}")
    return MappedColumn(F.when(sure, made), message.binder.applied(message.frame), left_out)


def _field(expression: Expression, message: MessageColumns) -> tuple[Column, Column]:
    compiled = compile_column(expression, message)
    wanted = expression.wanted
    if wanted is not None and wanted.kind is Kind.RECORD:
        raise Uncompiled("a record is wanted")
    return json_text(compiled.value, wanted, message.plain if compiled.copies else None), compiled.sure
