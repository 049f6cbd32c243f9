"""Expressions: compiled once against the types of their variables, then evaluated for each message.

They are CEL, with our own parser, checker and evaluator (see docs/adr/0011). They have the spec's types and a budget, and can read
nothing but their variables. An evaluation has no side effects.
"""

from __future__ import annotations

import math
import reprlib
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from itertools import islice
from typing import Any

from msgspec import Struct

from skep.errors import Code, SkepError
from skep.spec.allowance import ALLOWED, NotAtOnceError
from skep.spec.ast import Comprehension, FunctionCall, ListOf, MapOf, Node, walk
from skep.spec.cel import parse
from skep.spec.checker import check
from skep.spec.evaluator import build
from skep.spec.faults import TextError
from skep.spec.instants import print_duration, print_time
from skep.spec.scope import BUDGET, BudgetError, NoValueError, Scope
from skep.spec.types import INT_MAX, INT_MIN, Type, TypeKind, holds

RESULT_PARTS = 200_000
"""The most values in a result, including those in its lists and maps."""
PLAIN_CHARACTERS = 256
"""A shorter string needs no check of its size."""
SHOWN_CHARACTERS = 200


class ExpressionError(SkepError):
    """The error of an expression that is wrong, or has no value for a message. ``at`` is an offset in its text."""

    def __init__(self, code: Code, message: str, text: str, at: int, value: object = None) -> None:
        super().__init__(code, message, expression=text[:SHOWN_CHARACTERS], at=at, value=shown(value))
        self.text = text
        self.at = at
        self.value = value


class Expression(Struct, frozen=True):
    """A compiled expression. ``tree`` is for other compilers, ``wanted`` the type that its result must fit, if there is one."""

    text: str
    tree: Node
    wanted: Type | None
    run: Callable[[Scope], object]
    slots: int
    makes: bool

    @property
    def type(self) -> Type:
        """The type of the result, as far as the checker knows it."""
        return self.tree.type


def compile_expression(text: str, variables: Mapping[str, Type], wanted: Type | None = None) -> Expression:
    """Compile an expression over these variables; a fault is an ExpressionError with its offset."""
    try:
        return analyse(text, variables, wanted)
    except TextError as fault:
        expected = f"; expected {fault.expected}" if fault.expected else ""
        raise ExpressionError(Code.INVALID_REQUEST, fault.message + expected, text, fault.at) from None


def analyse(text: str, variables: Mapping[str, Type], wanted: Type | None = None) -> Expression:
    """As `compile_expression`, but raises a `TextError`, for callers that know the text's place in a file."""
    tree = check(parse(text), variables, wanted)
    nodes = list(walk(tree))
    slots = sum(len(node.slots) for node in nodes if isinstance(node, Comprehension))
    return Expression(text, tree, wanted, build(tree), slots, any(map(_makes, nodes)))


def evaluate(expression: Expression, message: Mapping[str, object], budget: int = BUDGET) -> object:
    """The value for a message, whose fields are JSON values by name. Raises ExpressionError when there is none."""
    allowance = ALLOWED.get()
    units = budget if allowance is None else min(budget, allowance.left)
    scope = Scope(message, [None] * expression.slots if expression.slots else None, units)
    try:
        value = expression.run(scope)
    except NoValueError as failure:
        raise _without_value(expression, failure.message, failure.at or 0, failure.value) from None
    except BudgetError:
        if units < budget:
            raise NotAtOnceError from None
        raise _without_value(
            expression, f"the expression took more than {budget} steps: shorten the text or the pattern", 0
        ) from None
    except RecursionError:
        raise _without_value(expression, "the message is nested too deeply", 0) from None
    finally:
        if allowance is not None:
            allowance.left -= units - scope.budget
    if value is None and expression.wanted is not None and not _takes_null(expression.wanted):
        raise _without_value(expression, f"the value is null where {expression.wanted.kind} is wanted", 0)
    return value


def evaluate_json(expression: Expression, message: Mapping[str, object]) -> object:
    """The value as JSON: with times and durations as strings, only finite numbers, and a bounded size."""
    value = evaluate(expression, message)
    # Nearly all values are plain, and need no conversion.
    kind = type(value)
    if value is None or kind is bool or (kind is str and len(value) < PLAIN_CHARACTERS):  # type: ignore[arg-type] # a str
        return value
    if not expression.makes and isinstance(value, list | dict):
        return value
    try:
        return _written(value)
    except NoValueError as failure:
        raise _without_value(expression, failure.message, 0, failure.value) from None
    except RecursionError:
        raise _without_value(expression, "the value is nested too deeply", 0) from None


def shown(value: object) -> str | None:
    """A value for an error text, cut short."""
    if value is None:
        return None
    if isinstance(value, str):
        return value[:SHOWN_CHARACTERS]
    # A large or deep value is never written out in full.
    return _SHORT.repr(value)[:SHOWN_CHARACTERS]


class _Short(reprlib.Repr):
    """Writes the beginning of a value, at a cost that does not depend on the value's size."""

    def __init__(self) -> None:
        super().__init__()
        self.maxlevel, self.maxlist, self.maxdict, self.maxstring, self.maxlong = 4, 8, 8, 100, 100

    def repr_dict(self, x: dict[Any, Any], level: int) -> str:
        """The first keys in their order: reprlib would sort all keys first."""
        if not x:
            return "{}"
        if level <= 0:
            return "{...}"
        pieces = [
            f"{self.repr1(key, level - 1)}: {self.repr1(item, level - 1)}"
            for key, item in islice(x.items(), self.maxdict)
        ]
        return f"{{{', '.join(pieces)}{', ...' if len(x) > self.maxdict else ''}}}"


_SHORT = _Short()


def _without_value(expression: Expression, message: str, at: int, value: object = None) -> ExpressionError:
    return ExpressionError(Code.INVALID_PAYLOAD, message, expression.text, at, value)


def _takes_null(type_: Type) -> bool:
    return type_.optional or type_.kind in (TypeKind.JSON, TypeKind.NULL)


def _makes(node: Node) -> bool:
    """Whether the result may have lists or maps that are not the message's own, or values that are no JSON."""
    if isinstance(node, ListOf | MapOf | Comprehension):
        return True
    return (isinstance(node, FunctionCall) and node.function in ("+", "split")) or holds(
        node.type, TypeKind.TIME, TypeKind.DURATION
    )


def _written(value: object) -> object:
    allowance = ALLOWED.get()
    if allowance is None:
        return _Writer(RESULT_PARTS).write(value)
    parts = max(0, min(RESULT_PARTS, allowance.left))
    writer = _Writer(parts)
    try:
        return writer.write(value)
    except NoValueError:
        if writer.left < 0 and parts < RESULT_PARTS:
            raise NotAtOnceError from None
        raise
    finally:
        allowance.left -= parts - writer.left


class _Writer:
    """Converts a value to JSON values and counts them: a list that has one list many times is small in memory and huge as JSON."""

    def __init__(self, parts: int) -> None:
        self.left = parts

    def write(self, value: object) -> object:
        self.left -= 1 + (len(value) // 256 if isinstance(value, str) else 0)
        if self.left < 0:
            raise NoValueError(f"the value has more than {RESULT_PARTS} parts")
        match value:
            case list():
                return [self.write(item) for item in value]
            case dict():
                return {key: self.write(item) for key, item in value.items()}
            case datetime():
                return print_time(value)
            case timedelta():
                return print_duration(value)
            case float() if not math.isfinite(value):
                raise NoValueError("JSON has no number for the value", value)
            case int() if not INT_MIN <= value <= INT_MAX:
                raise NoValueError("the value does not fit into 64 bits", value)
        return value
