"""Mappings: expressions by field, compiled together. They make a command's input, a follow-up message or an event."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct

from skep.spec.expressions import Expression, ExpressionError, compile_expression, evaluate_json
from skep.spec.ir import Expressions, Fields
from skep.spec.types import Type


class FieldMapping(Struct, frozen=True):
    """A compiled expression for each field."""

    fields: list[tuple[str, Expression]]


def compile_mapping(given: Expressions, variables: Mapping[str, Type], target: Fields | None = None) -> FieldMapping:
    """Compile a mapping of a spec; with a target, each expression must fit the type of its field."""
    return FieldMapping([
        (name, compile_expression(text, variables, target[name].type if target and name in target else None))
        for name, text in given.items()
    ])  # fmt: skip


def apply_mapping(mapping: FieldMapping, message: Mapping[str, object]) -> dict[str, object]:
    """The fields made from a message, as JSON values. The error of a field without a value names the field."""
    result: dict[str, object] = {}
    for name, expression in mapping.fields:
        try:
            result[name] = evaluate_json(expression, message)
        except ExpressionError as error:
            error.details["field"] = name
            raise
    return result
