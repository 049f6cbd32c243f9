"""The operators of expressions. They check the types of their values, since a json field may hold anything.

Ints have 64 bits, and overflow is a failure. Int division cuts towards zero. No type is converted implicitly, except that an int
and a float can be compared. Bools are never numbers, unlike in Python.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

from skep.spec.instants import DIFFERENCE_MAX, DURATION_MAX
from skep.spec.scope import NoValueError, Scope
from skep.spec.types import INT_MAX, INT_MIN

NAMES: dict[type, str] = {
    type(None): "null", bool: "bool", int: "int", float: "float", str: "string", list: "list", dict: "map",
    datetime: "time", timedelta: "duration",
}  # fmt: skip


def name_of(value: object) -> str:
    """The type of a value, in the words of the spec."""
    return NAMES.get(type(value), type(value).__name__)


def unfit(sign: str, *values: object) -> NoValueError:
    """The failure of an operator or function that does not take these types."""
    return NoValueError(f"{sign} does not work with {' and '.join(map(name_of, values))}", values[0])


def whole(value: int) -> int:
    """The number if it fits into 64 bits, else a failure."""
    if INT_MIN <= value <= INT_MAX:
        return value
    raise NoValueError("the result does not fit into 64 bits", value)


def span(value: timedelta) -> timedelta:
    """The duration if it is not too long, else a failure."""
    if -DURATION_MAX <= value <= DURATION_MAX:
        return value
    raise NoValueError("the duration is longer than ten thousand years")


def add(scope: Scope, left: object, right: object) -> object:
    """``left + right``"""
    if type(left) is int and type(right) is int:  # by far the most frequent case, and `match` is slower
        return whole(left + right)
    match left, right:
        case float(), float():
            return left + right
        case str(), str():
            scope.build(len(left) + len(right))
            return left + right
        case list(), list():
            scope.spend(len(left) + len(right) + 1)
            return left + right
        case datetime(), timedelta():
            return _moved(left, right)
        case timedelta(), datetime():
            return _moved(right, left)
        case timedelta(), timedelta():
            return span(left + right)
    raise unfit("+", left, right)


def _moved(time: datetime, by: timedelta) -> datetime:
    try:
        return time + by
    except OverflowError:
        raise NoValueError("the time is outside of the years 1 to 9999") from None


def _difference(left: datetime, right: datetime) -> timedelta:
    found = left - right
    if abs(found) > DIFFERENCE_MAX:
        raise NoValueError("the times are further apart than 292 years, the range of a difference")
    return found


def subtract(_: Scope, left: object, right: object) -> object:
    """``left - right``"""
    if type(left) is int and type(right) is int:
        return whole(left - right)
    match left, right:
        case float(), float():
            return left - right
        case datetime(), datetime():
            return _difference(left, right)
        case datetime(), timedelta():
            return _moved(left, -right)
        case timedelta(), timedelta():
            return span(left - right)
    raise unfit("-", left, right)


def multiply(_: Scope, left: object, right: object) -> object:
    """``left * right``"""
    if type(left) is int and type(right) is int:
        # Numbers of a message may have more than 64 bits, and their product takes long.
        return whole(left * right) if whole(left) and whole(right) else 0
    if isinstance(left, float) and isinstance(right, float):
        return left * right
    raise unfit("*", left, right)


def divide(_: Scope, left: object, right: object) -> object:
    """``left / right``"""
    if type(left) is int and type(right) is int:
        if not right:
            raise NoValueError("division by zero", left)
        quotient = abs(whole(left)) // abs(whole(right))
        return whole(quotient if (left < 0) == (right < 0) else -quotient)
    if isinstance(left, float) and isinstance(right, float):
        return left / right if right else _over_zero(left, right)
    raise unfit("/", left, right)


def _over_zero(left: float, right: float) -> float:
    if not left or math.isnan(left):
        return math.nan
    return math.copysign(math.inf, left) * math.copysign(1.0, right)


def remainder(_: Scope, left: object, right: object) -> object:
    """``left % right``, with the sign of the left"""
    if type(left) is int and type(right) is int:
        if not right:
            raise NoValueError("division by zero", left)
        rest = abs(whole(left)) % abs(whole(right))
        return -rest if left < 0 else rest
    raise unfit("%", left, right)


def negate(_: Scope, value: object) -> object:
    """``-value``"""
    match value:
        case bool():
            pass
        case int():
            return whole(-value)
        case float():
            return -value
    raise unfit("-", value)


def invert(_: Scope, value: object) -> object:
    """``!value``"""
    if value is True:
        return False
    if value is False:
        return True
    raise unfit("!", value)


CONTAINER_UNITS = 3
"""The cost of comparing two lists or maps, besides their elements."""
_NUMBERS = frozenset({int, float})
_SCALARS = frozenset({int, float, str, bool, datetime, timedelta, type(None)})


def equal(scope: Scope, left: object, right: object) -> bool:
    """Whether two values are equal: of one type, or numbers of equal value; lists and maps by their elements."""
    kind = type(left)
    if kind in _SCALARS:
        if kind is type(right):
            if kind is str:
                scope.compare(left)  # type: ignore[arg-type]  # it is a string
            return left == right
        return kind in _NUMBERS and type(right) in _NUMBERS and _as_float(left) == _as_float(right)
    if isinstance(left, list) and isinstance(right, list):
        if len(left) != len(right):
            return False
        scope.spend(len(left) + CONTAINER_UNITS)
        return all(equal(scope, one, other) for one, other in zip(left, right, strict=True))
    if isinstance(left, dict) and isinstance(right, dict):
        if len(left) != len(right):
            return False
        scope.spend(len(left) + CONTAINER_UNITS)
        return all(key in right and equal(scope, value, right[key]) for key, value in left.items())
    return False


def _as_float(value: object) -> float:
    """A number as a float: an int and a float are compared as floats, as in the reference and in databases."""
    try:
        return float(value)  # type: ignore[arg-type]  # it is a number
    except OverflowError:
        return math.inf if value > 0 else -math.inf  # type: ignore[operator]


def same(scope: Scope, left: object, right: object) -> object:
    """``left == right``"""
    return equal(scope, left, right)


def different(scope: Scope, left: object, right: object) -> object:
    """``left != right``"""
    return not equal(scope, left, right)


def ordering(sign: str, compare: Callable[[Any, Any], bool]) -> Callable[[Scope, object, object], object]:
    """One of ``<``, ``<=``, ``>`` and ``>=``."""
    alike = (str, bool, datetime, timedelta)

    def run(scope: Scope, left: object, right: object) -> object:
        kind, other = type(left), type(right)
        if kind in _NUMBERS and other in _NUMBERS:
            return compare(left, right) if kind is other else compare(_as_float(left), _as_float(right))
        if kind is other and kind in alike:
            if kind is str:
                scope.compare(left)  # type: ignore[arg-type]  # it is a string
            return compare(left, right)
        raise unfit(sign, left, right)

    return run


def within(scope: Scope, item: object, container: object) -> object:
    """``item in container``"""
    if isinstance(container, dict):
        return isinstance(item, str) and item in container
    if isinstance(container, list):
        scope.spend(len(container) + 1)
        return any(equal(scope, item, other) for other in container)
    raise unfit("in", container)


def index(_: Scope, container: object, key: object) -> object:
    """``container[key]``"""
    if isinstance(container, dict):
        if not isinstance(key, str):
            raise NoValueError(f"the key of a map is a string, not {name_of(key)}", key)
        if key not in container:
            raise NoValueError(f"there is no key {key[:100]!r}", container)
        return container[key]
    if isinstance(container, list):
        if type(key) is float and key.is_integer() and INT_MIN <= key <= INT_MAX:  # possible with dyn, as in CEL
            key = int(key)
        if type(key) is not int:
            raise NoValueError(f"the index of a list is an int, not {name_of(key)}", key)
        if not 0 <= key < len(container):
            raise NoValueError(f"there is no element {key}, the list has {len(container)}", key)
        return container[key]
    raise NoValueError(f"{name_of(container)} has no elements", container)


def utc(seconds: int) -> datetime:
    """The time so many seconds after 1970."""
    try:
        return datetime.fromtimestamp(0, UTC) + timedelta(seconds=seconds)
    except OverflowError:
        raise NoValueError("the time is outside of the years 1 to 9999", seconds) from None
