"""The functions of expressions. Each checks the types of its values itself, since a json field may hold anything."""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta, tzinfo

from skep.spec import operations
from skep.spec.instants import parse_duration, parse_time, parse_zone, print_duration, print_time
from skep.spec.operations import name_of, span, unfit, utc, whole
from skep.spec.patterns import Pattern, of_message
from skep.spec.scope import TIME_UNITS, ZONE_UNITS, NoValueError, Scope, backwards_units
from skep.spec.types import INT_MAX, INT_MIN

Function = Callable[..., object]

_INT = re.compile(r"[+-]?\d{1,20}", re.ASCII)
# The repetitions are possessive (++), so that a long text that is no number is refused in one pass.
_FLOAT = re.compile(r"[+-]?(?:\d{1,400}+(?:\.\d{0,400}+)?|\.\d{1,400}+)(?:[eE][+-]?\d{1,5}+)?", re.ASCII)
_FLOAT_CHARACTERS = 64
"""How many characters of a float's spelling one unit pays for."""
WHITE_SPACE = "\t\n\v\f\r \x85\xa0\u1680" + "".join(map(chr, range(0x2000, 0x200B))) + "\u2028\u2029\u202f\u205f\u3000"
"""What Unicode takes for white space; Python's own list also has four separators (U+001C to U+001F)."""
_SPELLED = frozenset({float, datetime, timedelta})
_TRUE = frozenset({"1", "t", "true", "TRUE", "True"})
_BOOLS = _TRUE | {"0", "f", "false", "FALSE", "False"}
_SMALL, _LARGE = bytes(range(97, 123)), bytes(range(65, 91))
# Tables of UTF-8 bytes, where ASCII letters occur in no other character. A table of characters is fifty times slower.
_LOWER, _UPPER = bytes.maketrans(_LARGE, _SMALL), bytes.maketrans(_SMALL, _LARGE)
_MINUTE, _HOUR, _SECOND = timedelta(minutes=1), timedelta(hours=1), timedelta(seconds=1)


def size(_: Scope, value: object) -> object:
    """Characters of a string, elements of a list, keys of a map."""
    if isinstance(value, str | list | dict):
        return len(value)
    raise unfit("size", value)


def _texts(name: str, *values: object) -> tuple[str, ...]:
    for value in values:
        if not isinstance(value, str):
            raise NoValueError(f"{name} does not work with {name_of(value)}", value)
    return values  # type: ignore[return-value]  # all of them were looked at


def contains(scope: Scope, value: object, part: object) -> object:
    """Whether a string has another in it."""
    text, wanted = _texts("contains", value, part)
    scope.search(text, wanted)
    return wanted in text


def starts_with(scope: Scope, value: object, part: object) -> object:
    """Whether a string starts with another."""
    text, wanted = _texts("startsWith", value, part)
    scope.compare(wanted)
    return text.startswith(wanted)


def ends_with(scope: Scope, value: object, part: object) -> object:
    """Whether a string ends with another."""
    text, wanted = _texts("endsWith", value, part)
    scope.compare(wanted)
    return text.endswith(wanted)


def matches(scope: Scope, value: object, pattern: object) -> object:
    """Whether a regular expression from the message occurs in a string."""
    text, wanted = _texts("matches", value, pattern)
    try:
        return of_message(wanted, scope).occurs_in(text, scope)
    except ValueError as error:
        raise NoValueError(f"the pattern is wrong or too large: {error}", pattern) from None


def matching(pattern: Pattern) -> Function:
    """`matches` for a pattern that is a literal, compiled with its expression."""

    def run(scope: Scope, value: object) -> object:
        (text,) = _texts("matches", value)
        return pattern.occurs_in(text, scope)

    return run


def lower(scope: Scope, value: object) -> object:
    """A string with A to Z in lower case."""
    (text,) = _texts("lowerAscii", value)
    scope.build(len(text))
    return _translated(text, _LOWER)


def upper(scope: Scope, value: object) -> object:
    """A string with a to z in upper case."""
    (text,) = _texts("upperAscii", value)
    scope.build(len(text))
    return _translated(text, _UPPER)


def _translated(text: str, table: bytes) -> str:
    return text.encode("utf-8", "surrogatepass").translate(table).decode("utf-8", "surrogatepass")


def trim(scope: Scope, value: object) -> object:
    """A string without white space at its ends."""
    (text,) = _texts("trim", value)
    scope.build(len(text))
    return text.strip(WHITE_SPACE)


def replace(scope: Scope, value: object, old: object, new: object, limit: object = -1) -> object:
    """A string with the first occurrences of one part replaced, up to a limit; with a limit below 0 all."""
    text, part, other = _texts("replace", value, old, new)
    most = _limit("replace", limit)
    scope.search(text, part)  # to count, and again to replace
    scope.search(text, part)
    count = text.count(part)
    scope.build(len(text) + (count if most < 0 else min(count, most)) * len(other))
    return text.replace(part, other, most)


def split(scope: Scope, value: object, separator: object, limit: object = -1) -> object:
    """The parts of a string between separators, at most as many as the limit says; without a separator, its characters."""
    text, mark = _texts("split", value, separator)
    most = _limit("split", limit)
    scope.search(text, mark)  # to count, and again to split
    scope.search(text, mark)
    scope.spend(len(text) if not mark else text.count(mark) + 1)
    scope.build(len(text))
    if most == 0:
        return []
    if mark:
        return text.split(mark, most - 1 if most > 0 else -1)
    if most < 0 or most >= len(text):
        return list(text)
    return [*text[: most - 1], text[most - 1 :]]


def _limit(name: str, value: object) -> int:
    """How many parts are taken at most; below 0 all."""
    if type(value) is not int:
        raise unfit(name, value)
    return max(-1, min(whole(value), INT_MAX - 1))


def join(scope: Scope, value: object, separator: object = "") -> object:
    """The strings of a list as one."""
    if not isinstance(value, list):
        raise unfit("join", value)
    (mark,) = _texts("join", separator)
    scope.spend(len(value) + 1)
    parts = _texts("join", *value)
    scope.build(sum(map(len, parts)) + len(mark) * len(parts))
    return mark.join(parts)


def substring(scope: Scope, value: object, start: object, end: object = None) -> object:
    """The characters of a string from one position up to another."""
    (text,) = _texts("substring", value)
    last = len(text) if end is None else end
    if type(start) is not int or type(last) is not int:
        raise unfit("substring", value, start, last)
    if not 0 <= start <= last <= len(text):
        raise NoValueError(f"there is no part {start} to {last}, the string has {len(text)} characters", value)
    scope.build(last - start)
    return text[start:last]


def char_at(scope: Scope, value: object, at: object) -> object:
    """The character of a string at a position; empty at its end."""
    (text,) = _texts("charAt", value)
    start = _position("charAt", text, at)
    scope.build(1)
    return text[start : start + 1]


def index_of(scope: Scope, value: object, part: object, start: object = 0) -> object:
    """The first position of a part in a string, from a position on; -1 when there is none."""
    text, wanted = _texts("indexOf", value, part)
    first = _position("indexOf", text, start)
    scope.search(text, wanted)
    return text.find(wanted, first)


def last_index_of(scope: Scope, value: object, part: object, start: object = None) -> object:
    """The last position of a part in a string, up to a position; -1 when there is none."""
    text, wanted = _texts("lastIndexOf", value, part)
    last = len(text) if start is None else _position("lastIndexOf", text, start)
    scope.spend(backwards_units(len(text), len(wanted)))
    return text.rfind(wanted, 0, last + len(wanted))


def _position(name: str, text: str, at: object) -> int:
    if type(at) is not int:
        raise unfit(name, text, at)
    if not 0 <= at <= len(text):
        raise NoValueError(f"there is no position {at}, the string has {len(text)} characters", text)
    return at


def reverse(scope: Scope, value: object) -> object:
    """The characters of a string from the last to the first."""
    (text,) = _texts("reverse", value)
    scope.build(len(text))
    return text[::-1]


def to_string(scope: Scope, value: object) -> object:
    """A value's spelling."""
    if type(value) in _SPELLED:
        scope.spend(TIME_UNITS)
    match value:
        case str():
            return value
        case bool():
            return "true" if value else "false"
        case int():
            return str(whole(value))
        case float():
            return _print_float(value)
        case datetime():
            return print_time(value)
        case timedelta():
            return print_duration(value)
    raise unfit("string", value)


def _print_float(value: float) -> str:
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "Infinity" if value > 0 else "-Infinity"
    text = repr(value)
    return text.removesuffix(".0")


def to_int(_: Scope, value: object) -> object:
    """A whole number: a float is cut towards zero, a time is its seconds since 1970."""
    match value:
        case bool():
            pass
        case int():
            return whole(value)
        case float():
            # Both ends are excluded, as in the reference: numbers beyond them round to them, too.
            if not INT_MIN < value < INT_MAX + 1:
                raise NoValueError("the result does not fit into 64 bits", value)
            return int(value)
        case str():
            if not _INT.fullmatch(value):
                raise NoValueError(f"{value[:100]!r} is not a whole number", value)
            return whole(int(value))
        case datetime():
            return (value - datetime.fromtimestamp(0, UTC)) // _SECOND
    raise unfit("int", value)


def to_double(scope: Scope, value: object) -> object:
    """A float, also from an int or a spelling."""
    match value:
        case bool():
            pass
        case int():
            return float(whole(value))
        case float():
            return value
        case str():
            scope.spend(TIME_UNITS + len(value) // _FLOAT_CHARACTERS)
            if not _FLOAT.fullmatch(value):
                raise NoValueError(f"{value[:100]!r} is not a number", value)
            return float(value)
    raise unfit("double", value)


def to_bool(_: Scope, value: object) -> object:
    """A bool, from its usual spellings too."""
    if isinstance(value, bool):
        return value
    if isinstance(value, str) and value in _BOOLS:
        return value in _TRUE
    # A list or map is not written out: a large one takes long, and a comprehension would do it for each element.
    spelled = f" {value[:100]!r}" if isinstance(value, str) else ""
    raise NoValueError(f"{name_of(value)}{spelled} is neither true nor false", value)


def to_time(scope: Scope, value: object) -> object:
    """A time, from RFC 3339 or seconds since 1970."""
    scope.spend(TIME_UNITS)
    match value:
        case datetime():
            return value
        case bool():
            pass
        case int():
            return utc(value)
        case str():
            return read_time(value)
    raise unfit("timestamp", value)


def to_duration(scope: Scope, value: object) -> object:
    """A duration, from a spelling like 1h30m."""
    match value:
        case timedelta():
            return value
        case str():
            scope.spend(TIME_UNITS + len(value))  # there may be a part for every two characters
            try:
                return span(parse_duration(value))
            except ValueError as error:
                raise NoValueError(f"{value[:100]!r} is {error}", value) from None
    raise unfit("duration", value)


def read_time(value: str) -> datetime:
    """A time from its spelling; NoValueError when it is none."""
    try:
        return parse_time(value)
    except ValueError as error:
        raise NoValueError(f"{value[:100]!r} is {error}", value) from None


def dyn(_: Scope, value: object) -> object:
    """The same value. The checker then ignores its type."""
    return value


_OF_TIME: dict[str, Callable[[datetime], int]] = {
    "getFullYear": lambda time: time.year, "getMonth": lambda time: time.month - 1,
    "getDate": lambda time: time.day, "getDayOfMonth": lambda time: time.day - 1,
    "getDayOfWeek": lambda time: time.isoweekday() % 7, "getDayOfYear": lambda time: time.timetuple().tm_yday - 1,
    "getHours": lambda time: time.hour, "getMinutes": lambda time: time.minute, "getSeconds": lambda time: time.second,
    "getMilliseconds": lambda time: time.microsecond // 1000,
}  # fmt: skip
_OF_DURATION: dict[str, Callable[[timedelta], int]] = {
    "getHours": lambda length: length // _HOUR, "getMinutes": lambda length: length // _MINUTE,
    "getSeconds": lambda length: length // _SECOND, "getMilliseconds": lambda length: length.microseconds // 1000,
}  # fmt: skip


def _part(name: str) -> Function:
    """The function for a part of a time, and of a duration if it has that part; the part has the duration's sign."""
    of_time, of_duration = _OF_TIME[name], _OF_DURATION.get(name)

    def run(scope: Scope, value: object, zone: object = None) -> object:
        if isinstance(value, datetime):
            return of_time(value if zone is None else _local(value, _read_zone(scope, name, zone)))
        if isinstance(value, timedelta) and of_duration is not None and zone is None:
            return of_duration(abs(value)) * (-1 if value < timedelta() else 1)
        raise unfit(name, value)

    return run


def part_in(name: str, zone: str) -> Function:
    """The function for a part of a time in a zone that is a literal, read with its expression."""
    of_time, known = _OF_TIME[name], parse_zone(zone)

    def run(_: Scope, value: object) -> object:
        if isinstance(value, datetime):
            return of_time(_local(value, known))
        raise unfit(name, value)

    return run


def _read_zone(scope: Scope, name: str, zone: object) -> tzinfo:
    (text,) = _texts(name, zone)
    scope.spend(ZONE_UNITS)
    try:
        return parse_zone(text)
    except ValueError as error:
        raise NoValueError(f"{text[:100]!r} is {error}", text) from None


def _local(value: datetime, zone: tzinfo) -> datetime:
    try:
        return value.astimezone(zone)
    except OverflowError:
        raise NoValueError("the time is outside of the years 1 to 9999 in this zone", value) from None


IMPLEMENTATIONS: dict[str, Function] = {
    "+": operations.add, "-": operations.subtract, "*": operations.multiply, "/": operations.divide,
    "%": operations.remainder, "negate": operations.negate, "!": operations.invert,
    "==": operations.same, "!=": operations.different, "in": operations.within, "[]": operations.index,
    "<": operations.ordering("<", operator.lt), "<=": operations.ordering("<=", operator.le),
    ">": operations.ordering(">", operator.gt), ">=": operations.ordering(">=", operator.ge),
    "size": size, "contains": contains, "startsWith": starts_with, "endsWith": ends_with, "matches": matches,
    "lowerAscii": lower, "upperAscii": upper, "trim": trim, "replace": replace, "split": split, "join": join,
    "substring": substring, "charAt": char_at, "indexOf": index_of, "lastIndexOf": last_index_of, "reverse": reverse, "string": to_string, "int": to_int, "double": to_double, "bool": to_bool,
    "timestamp": to_time, "duration": to_duration, "dyn": dyn,
    **{name: _part(name) for name in _OF_TIME},
}  # fmt: skip
"""Every operator and function but && || and ?:, which do not evaluate all of their arguments."""
