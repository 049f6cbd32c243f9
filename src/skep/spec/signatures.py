"""The operators and functions of expressions, by the types of their arguments and results. There are no others.

The names and meanings are CEL's standard ones, and some of its strings extension. `json` as a parameter takes anything.
"""

from __future__ import annotations

from typing import NamedTuple

from skep.spec.types import BOOL, DURATION, FLOAT, INT, JSON, STRING, TIME, Type, list_of, map_of

LIST = list_of(JSON)
MAP = map_of(STRING, JSON)


class Signature(NamedTuple):
    """One way to call a function: its parameters, its result, and whether it is called as ``a.f(b)``, as ``f(a, b)``, or both."""

    parameters: tuple[Type, ...]
    result: Type
    member: bool = False
    plain: bool = True


def _operator(*signatures: tuple[Type, ...]) -> list[Signature]:
    return [Signature(signature[:-1], signature[-1]) for signature in signatures]


def _plain(result: Type, *parameters: Type) -> list[Signature]:
    return [Signature((parameter,), result) for parameter in parameters]


def _member(*signature: Type) -> list[Signature]:
    return [Signature(signature[:-1], signature[-1], member=True, plain=False)]


_ORDER = _operator(*((type_, type_, BOOL) for type_ in (INT, FLOAT, STRING, BOOL, TIME, DURATION)))

OPERATORS: dict[str, list[Signature]] = {
    "+": _operator(
        (INT, INT, INT), (FLOAT, FLOAT, FLOAT), (STRING, STRING, STRING), (TIME, DURATION, TIME), (DURATION, TIME, TIME),
        (DURATION, DURATION, DURATION),
    ),
    "-": _operator(
        (INT, INT, INT), (FLOAT, FLOAT, FLOAT), (TIME, TIME, DURATION), (TIME, DURATION, TIME),
        (DURATION, DURATION, DURATION),
    ),
    "*": _operator((INT, INT, INT), (FLOAT, FLOAT, FLOAT)),
    "/": _operator((INT, INT, INT), (FLOAT, FLOAT, FLOAT)),
    "%": _operator((INT, INT, INT)),
    "negate": _operator((INT, INT), (FLOAT, FLOAT)),
    "!": _operator((BOOL, BOOL)),
    "&&": _operator((BOOL, BOOL, BOOL)),
    "||": _operator((BOOL, BOOL, BOOL)),
    "<": _ORDER, "<=": _ORDER, ">": _ORDER, ">=": _ORDER,
}  # fmt: skip

OF_TIME = ("getFullYear", "getMonth", "getDate", "getDayOfMonth", "getDayOfWeek", "getDayOfYear")
OF_BOTH = ("getHours", "getMinutes", "getSeconds", "getMilliseconds")
"""Parts of a time, and parts that a duration has, too."""
PARTS = frozenset((*OF_TIME, *OF_BOTH))

FUNCTIONS: dict[str, list[Signature]] = {
    "size": [Signature((type_,), INT, member=True) for type_ in (STRING, LIST, MAP)],
    "contains": _member(STRING, STRING, BOOL),
    "startsWith": _member(STRING, STRING, BOOL),
    "endsWith": _member(STRING, STRING, BOOL),
    "matches": [Signature((STRING, STRING), BOOL, member=True)],
    "lowerAscii": _member(STRING, STRING),
    "upperAscii": _member(STRING, STRING),
    "trim": _member(STRING, STRING),
    "replace": _member(STRING, STRING, STRING, STRING) + _member(STRING, STRING, STRING, INT, STRING),
    "split": _member(STRING, STRING, list_of(STRING)) + _member(STRING, STRING, INT, list_of(STRING)),
    "join": _member(list_of(STRING), STRING) + _member(list_of(STRING), STRING, STRING),
    "substring": _member(STRING, INT, STRING) + _member(STRING, INT, INT, STRING),
    "charAt": _member(STRING, INT, STRING),
    "indexOf": _member(STRING, STRING, INT) + _member(STRING, STRING, INT, INT),
    "lastIndexOf": _member(STRING, STRING, INT) + _member(STRING, STRING, INT, INT),
    "reverse": _member(STRING, STRING),
    "string": _plain(STRING, STRING, INT, FLOAT, BOOL, TIME, DURATION),
    "int": _plain(INT, INT, FLOAT, STRING, TIME),
    "double": _plain(FLOAT, FLOAT, INT, STRING),
    "bool": _plain(BOOL, BOOL, STRING),
    "timestamp": _plain(TIME, TIME, STRING, INT),
    "duration": _plain(DURATION, DURATION, STRING),
    "dyn": _plain(JSON, JSON),
    **{name: _member(TIME, INT) + _member(TIME, STRING, INT) for name in OF_TIME},
    **{name: _member(TIME, INT) + _member(TIME, STRING, INT) + _member(DURATION, INT) for name in OF_BOTH},
}

LEFT_OUT = {
    "bytes": "JSON has no bytes",
    "uint": "JSON has no unsigned numbers",
    "type": "every expression is checked against the spec's types",
    "transformMapEntry": "transformMap keeps the keys",
    "format": "string(v) and + make texts",
}
"""Functions of CEL that are left out, with the reason."""
