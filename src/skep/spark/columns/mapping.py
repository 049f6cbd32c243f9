"""A whole mapping as one column: the JSON text of a command's input, null where any of its fields has no value."""

from __future__ import annotations

from typing import NamedTuple

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812

from skep.entities import encoded
from skep.entities.inputs import InputMapping
from skep.spark.columns.compiler import compile_column
from skep.spark.columns.message import MessageColumns
from skep.spark.columns.output import json_text
from skep.spark.columns.values import Uncompiled, nothing
from skep.spec.expressions import Expression
from skep.spec.types import STRING, Kind


class MappedColumn(NamedTuple):
    """The column, the frame it is for, and what it left to the evaluator: the expressions by field, each with the reason."""

    column: Column
    frame: DataFrame
    left_out: dict[str, str]


def mapping_column(mapping: InputMapping, message: MessageColumns) -> MappedColumn:
    """The fields of a command's input as one JSON object."""
    members: list[Column] = []
    sure, left_out = message.fits, dict[str, str]()
    for name, expression in mapping.mapping.fields:
        try:
            text, within = _field(expression, message)
        except Uncompiled as reason:
            left_out[name] = str(reason)
            continue
        sure &= within
        members.append(F.concat(F.lit(f"{encoded(name).decode()}:"), text))
    if left_out:
        return MappedColumn(nothing(STRING), message.frame, left_out)
    members += [F.lit(encoded({name: value}).decode()[1:-1]) for name, value in mapping.constants.items()]
    # concat is null as soon as one of its parts is, which concat_ws would pass over.
    commas = [part for member in members for part in (F.lit(","), member)][1:]
    made = F.concat(F.lit("{"), *commas, F.lit("}"))
    return MappedColumn(F.when(sure, made), message.binder.applied(message.frame), left_out)


def _field(expression: Expression, message: MessageColumns) -> tuple[Column, Column]:
    compiled = compile_column(expression, message)
    wanted = expression.wanted
    if wanted is not None and wanted.kind is Kind.RECORD:
        raise Uncompiled("a record is wanted")
    return json_text(compiled.value, wanted, message.plain if compiled.copies else None), compiled.sure
