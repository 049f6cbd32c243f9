"""The operators of expressions as columns. Each checks the types of its values, as in `skep.spec.operations`; nothing here throws.

In ANSI mode one overflow fails a whole job of Spark, so only functions that return null are used: `try_add` and its kin.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce

from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812

from skep.spark.columns.instants import within_difference, within_span, within_years
from skep.spark.columns.values import (
    ColumnValue,
    Uncompiled,
    as_float,
    as_int,
    as_json,
    as_list,
    as_map,
    as_number,
    is_float,
    nothing,
    of_json,
    taken_as,
)
from skep.spec.types import BOOL, DURATION, FLOAT, INT, JSON, STRING, TIME, Type, TypeKind, list_of

Compare = Callable[[Column, Column], Column]
NUMBERS = (TypeKind.INT, TypeKind.FLOAT)


def arithmetic(sign: str, left: ColumnValue, right: ColumnValue) -> ColumnValue:
    """``left sign right`` for + - * / and %."""
    if TypeKind.JSON in (left.kind, right.kind):
        return _of_json(sign, left, right)
    one, other = left.column, right.column
    match sign, left.kind, right.kind:
        case _, TypeKind.INT, TypeKind.INT:
            return ColumnValue(INT, _whole(sign, one, other))
        case (("+" | "-" | "*" | "/"), TypeKind.FLOAT, TypeKind.FLOAT):
            # A division by zero is infinite or NaN, depending on signs: the evaluator decides.
            signs = {"+": one + other, "-": one - other, "*": one * other, "/": F.try_divide(one, other)}
            return ColumnValue(FLOAT, signs[sign], finite=False)
        case "+", TypeKind.STRING, TypeKind.STRING:
            return ColumnValue(STRING, F.concat(one, other))
        case "+", TypeKind.LIST, TypeKind.LIST:
            type_ = left.type if left.type == right.type else list_of(JSON)
            return ColumnValue(type_, F.concat(taken_as(left, type_), taken_as(right, type_)))
        case (("+" | "-"), TypeKind.TIME, TypeKind.DURATION):
            return ColumnValue(TIME, within_years(one + other if sign == "+" else one - other))
        case "+", TypeKind.DURATION, TypeKind.TIME:
            return ColumnValue(TIME, within_years(one + other))
        case "-", TypeKind.TIME, TypeKind.TIME:
            return ColumnValue(DURATION, within_difference(one - other))
        case (("+" | "-"), TypeKind.DURATION, TypeKind.DURATION):
            return ColumnValue(DURATION, within_span(one + other if sign == "+" else one - other))
    return ColumnValue(left.type, nothing(left.type))


def _whole(sign: str, one: Column, other: Column) -> Column:
    match sign:
        case "+":
            return F.try_add(one, other)
        case "-":
            return F.try_subtract(one, other)
        case "*":
            return F.try_multiply(one, other)
        case "%":
            return F.try_mod(one, other)
    # A divisor that would throw becomes null.
    divisor = F.when((other != 0) & (other != -1), other)
    return F.when(other == -1, F.try_subtract(F.lit(0).cast("bigint"), one)).otherwise(
        F.call_function("div", one, divisor)
    )


def _of_json(sign: str, left: ColumnValue, right: ColumnValue) -> ColumnValue:
    """One side or both are json. The type of the other side decides, or the first type that both values have."""
    known = left.type if left.kind is not TypeKind.JSON else right.type if right.kind is not TypeKind.JSON else None
    if known is not None:
        if known.kind in (TypeKind.TIME, TypeKind.DURATION):
            return ColumnValue(TIME, nothing(TIME))  # JSON has neither
        type_ = list_of(JSON) if known.kind is TypeKind.LIST else known
        result = arithmetic(sign, _seen(left, type_), _seen(right, type_))
        return ColumnValue(result.type, result.column, finite=False)
    types = [INT] if sign == "%" else [INT, FLOAT] if sign in "-*/" else [INT, FLOAT, STRING, list_of(JSON)]
    results = [as_json(arithmetic(sign, _seen(left, type_), _seen(right, type_))).column for type_ in types]
    return ColumnValue(JSON, F.coalesce(*results), finite=False)


def _seen(value: ColumnValue, type_: Type) -> ColumnValue:
    return ColumnValue(type_, taken_as(value, type_))


def negate(value: ColumnValue) -> ColumnValue:
    """``-value``"""
    zero = F.lit(0).cast("bigint")
    match value.kind:
        case TypeKind.INT:
            return ColumnValue(INT, F.try_subtract(zero, value.column))
        case TypeKind.FLOAT:
            return ColumnValue(FLOAT, F.negative(value.column), finite=value.finite)
        case TypeKind.JSON:
            number = F.negative(as_float(value)).cast("variant")
            return ColumnValue(
                JSON, F.coalesce(F.try_subtract(zero, as_int(value)).cast("variant"), number), finite=False
            )
    return ColumnValue(INT, nothing(INT))


def truth(value: ColumnValue) -> Column:
    """The value as a bool; no value for other types."""
    return taken_as(value, BOOL)


def compared(compare: Compare, left: ColumnValue, right: ColumnValue) -> ColumnValue:
    """``left < right``, and so on for <= > and >=."""
    if left.kind is TypeKind.JSON or right.kind is TypeKind.JSON:
        found = _ordered_json(compare, left, right)
    elif left.kind is right.kind and left.kind in (
        TypeKind.INT,
        TypeKind.STRING,
        TypeKind.BOOL,
        TypeKind.TIME,
        TypeKind.DURATION,
    ):
        found = compare(left.column, right.column)
    elif left.kind in NUMBERS and right.kind in NUMBERS:
        found = _numbers(compare, left, right)
    else:
        found = nothing(BOOL)
    return ColumnValue(BOOL, found)


def _ordered_json(compare: Compare, left: ColumnValue, right: ColumnValue) -> Column:
    kinds = {left.kind, right.kind} - {TypeKind.JSON}
    if not kinds:
        types = [INT, STRING, BOOL]
        found = [compare(taken_as(left, type_), taken_as(right, type_)) for type_ in types]
        return F.coalesce(*found, compare(as_number(left), as_number(right)))
    (kind,) = kinds
    if kind in NUMBERS:
        exact = [compare(taken_as(left, INT), taken_as(right, INT))] if kind is TypeKind.INT else []
        return F.coalesce(*exact, _numbers(compare, left, right))
    if kind in (TypeKind.STRING, TypeKind.BOOL):
        type_ = STRING if kind is TypeKind.STRING else BOOL
        return compare(taken_as(left, type_), taken_as(right, type_))
    return nothing(BOOL)


def _numbers(compare: Compare, left: ColumnValue, right: ColumnValue) -> Column:
    """Compare two numbers as floats. For Spark, NaN is the largest number and equals itself, so NaN is left to the evaluator."""
    one, other = as_number(left), as_number(right)
    found = compare(one, other)
    doubtful = [F.isnan(column) for column, value in ((one, left), (other, right)) if not value.finite]
    return F.when(~reduce(lambda a, b: a | b, doubtful), found) if doubtful else found


def equal(left: ColumnValue, right: ColumnValue) -> Column:
    """Whether two values are the same."""
    if left.null is not None or right.null is not None:
        return _equal_nullable(left, right)
    if TypeKind.JSON in (left.kind, right.kind):
        return _equal_json(left, right) if right.kind is TypeKind.JSON else _equal_json(right, left)
    if left.kind in NUMBERS and right.kind in NUMBERS:
        if left.kind is right.kind is TypeKind.INT:
            return left.column == right.column
        return _numbers(lambda one, other: one == other, left, right)
    if left.kind is not right.kind:
        return F.when(left.there() & right.there(), F.lit(False))
    if left.kind in (TypeKind.LIST, TypeKind.MAP):
        if left.type == right.type and left.kind is TypeKind.LIST and _is_plain(left.type.element):
            return left.column == right.column
        return _equal_deep(as_json(left), as_json(right))
    return left.column == right.column


def _is_plain(element: Type | None) -> bool:
    return element is not None and element.kind in (
        TypeKind.STRING,
        TypeKind.INT,
        TypeKind.BOOL,
        TypeKind.TIME,
        TypeKind.DURATION,
    )


def _equal_nullable(left: ColumnValue, right: ColumnValue) -> Column:
    if left.kind is TypeKind.JSON or right.kind is TypeKind.JSON:
        return _with_null(as_json(left), right) if right.kind is TypeKind.NULL else _with_null(as_json(right), left)
    one, other = _null_of(left), _null_of(right)
    plain = F.lit(False) if TypeKind.NULL in (left.kind, right.kind) else equal(_never_null(left), _never_null(right))
    both_known = left.there() & right.there()
    return F.when(both_known, F.when(one & other, F.lit(True)).when(one | other, F.lit(False)).otherwise(plain))


def _with_null(json: ColumnValue, other: ColumnValue) -> Column:
    null = F.is_variant_null(json.column)
    there = json.column.isNotNull()
    if other.kind is TypeKind.NULL:
        return F.when(there, null)
    plain = equal(json, _never_null(other))
    return F.when(there & other.there(), F.when(_null_of(other), null).otherwise(plain))


def _never_null(value: ColumnValue) -> ColumnValue:
    return ColumnValue(value.type, value.column, finite=value.finite)


def _null_of(value: ColumnValue) -> Column:
    return F.lit(False) if value.null is None else F.coalesce(value.null, F.lit(False))


def _equal_json(other: ColumnValue, json: ColumnValue) -> Column:
    """Whether any value equals a json."""
    there = json.column.isNotNull()
    match other.kind:
        case TypeKind.JSON | TypeKind.LIST | TypeKind.MAP:
            return _equal_deep(as_json(other), json)
        case TypeKind.STRING | TypeKind.BOOL:
            found = F.coalesce(taken_as(json, other.type) == other.column, F.lit(False))
            return F.when(there & other.column.isNotNull(), found)
        case TypeKind.INT | TypeKind.FLOAT:
            exact = as_int(json) == other.column if other.kind is TypeKind.INT else nothing(BOOL)
            number = _numbers(lambda one, two: one == two, other, json)
            other_kind = F.when(
                there & other.column.isNotNull() & ~is_float(json) & as_int(json).isNull(), F.lit(False)
            )
            return F.coalesce(exact, number, other_kind)
    return F.when(there & other.there(), F.lit(False))


def _equal_deep(left: ColumnValue, right: ColumnValue) -> Column:
    """Compare two json by their texts, where keys are sorted. Different texts may be equal floats; such json has no value here."""
    if not (left.finite and right.finite):
        return nothing(BOOL)
    one, other = F.to_json(left.column), F.to_json(right.column)
    uncertain = [
        F.schema_of_variant(value.column).rlike("DECIMAL|DOUBLE|VARIANT") | value.column.isNull()
        for value in (left, right)
    ]
    certain = F.when(~(uncertain[0] | uncertain[1]), F.lit(False))
    number = as_number(left) == as_number(right)
    return F.when((one == other) & ~one.contains("NaN"), F.lit(True)).otherwise(F.coalesce(certain, number))


def within(item: ColumnValue, container: ColumnValue) -> Column:
    """``item in container``"""
    match container.kind:
        case TypeKind.LIST:
            return _in_list(item, container)
        case TypeKind.MAP:
            return F.when(
                item.there(),
                F.coalesce(
                    F.map_contains_key(container.column, taken_as(item, STRING)),
                    F.when(container.column.isNotNull(), F.lit(False)),
                ),
            )
        case TypeKind.JSON:
            as_keys = ColumnValue(Type(TypeKind.MAP, element=JSON, key=STRING), as_map(container))
            return F.coalesce(_in_list(item, ColumnValue(list_of(JSON), as_list(container))), within(item, as_keys))
    return nothing(BOOL)


def _in_list(item: ColumnValue, container: ColumnValue) -> Column:
    element = container.type.element or JSON
    if item.type == element and item.null is None and element.kind in (TypeKind.STRING, TypeKind.INT, TypeKind.BOOL):
        return F.array_contains(container.column, item.column)  # Spark compiles this, but no higher-order functions
    found = F.exists(container.column, lambda one: equal(item, ColumnValue(element, one, finite=False)))
    return F.when(item.there(), found)


def element(container: ColumnValue, key: ColumnValue) -> ColumnValue:
    """``container[key]``"""
    match container.kind:
        case TypeKind.LIST:
            type_ = container.type.element or JSON
            return ColumnValue(type_, F.get(container.column, _index(taken_as(key, INT))), finite=False)
        case TypeKind.MAP:
            type_ = container.type.element or JSON
            return ColumnValue(type_, F.try_element_at(container.column, taken_as(key, STRING)), finite=False)
        case TypeKind.JSON:
            of_list = F.get(as_list(container), _index(taken_as(key, INT)))
            of_map = F.try_element_at(as_map(container), taken_as(key, STRING))
            return ColumnValue(JSON, F.coalesce(of_list, of_map))
    raise Uncompiled("this has no elements")


def _index(position: Column) -> Column:
    return F.when(position.between(0, 2**31 - 2), position).cast("int")


def selected(container: ColumnValue, name: str) -> ColumnValue:
    """``container.name``"""
    if container.kind is TypeKind.MAP:
        key = ColumnValue(STRING, F.lit(name))
        return element(container, key)
    if container.kind is not TypeKind.JSON:
        raise Uncompiled("this has no fields")
    base, path = (container.base, container.path) if container.base is not None else (container.column, "$")
    if "'" in name or "\\" in name or len(path) > 500:
        return ColumnValue(JSON, F.try_element_at(as_map(container), F.lit(name)))
    keys = None if container.keys is None else (*container.keys, name)
    return of_json(base, f"{path}['{name}']", keys)
