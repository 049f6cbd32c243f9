"""Read plain values of a spec from raw text: words, strings, numbers, durations and lists of strings.

Any other text raises a `TextError` at its offset, with the expected value.
"""

from __future__ import annotations

import re

from skep.spec.ast import ListOf, Literal
from skep.spec.cel import parse
from skep.spec.faults import TextError

UNIT_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0}

_WORD = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]*", re.ASCII)
_NUMBER = re.compile(r"-?\d{1,18}(?:\.\d{1,18})?", re.ASCII)
_DURATION = re.compile(r"(\d{1,15}(?:\.\d{1,15})?)(ms|s|m|h|d)", re.ASCII)
_DURATIONS = "a duration like 500ms, 30s, 15m, 24h or 7d"


def read_string(text: str) -> str:
    """A string in quotes."""
    literal = _literal(text, "a string in quotes")
    if isinstance(literal, Literal) and isinstance(literal.value, str):
        return literal.value
    raise TextError(0, f"{text[:40]} is not a string", "a string in quotes")


def read_strings(text: str) -> list[str]:
    """A string, or a list of strings."""
    node = _literal(text, "a string in quotes, or a list of them")
    items = node.items if isinstance(node, ListOf) else (node,)
    found: list[str] = []
    for item in items:
        if not isinstance(item, Literal) or not isinstance(item.value, str):
            raise TextError(item.at, "this is not a string", "a string in quotes")
        found.append(item.value)
    return found


def _literal(text: str, expected: str) -> Literal | ListOf:
    try:
        node = parse(text)
    except TextError as error:
        raise TextError(error.at, error.message, error.expected or expected) from None
    if not isinstance(node, Literal | ListOf):
        raise TextError(0, f"{text[:40]!r} is not in quotes", expected)
    return node


def read_name(text: str) -> str:
    """A name: a word, or any text in quotes."""
    if _WORD.fullmatch(text):
        return text
    if text[:1] in "\"'" and text:
        return read_string(text)
    raise TextError(0, f"{text[:40]!r} is not a name", "a name")


def print_name(name: str) -> str:
    """A name as `read_name` reads it."""
    return name if _WORD.fullmatch(name) else quoted(name)


def quoted(text: str) -> str:
    """A string in quotes."""
    parts = [_escaped(character) for character in text]
    return f'"{"".join(parts)}"'


def _escaped(character: str) -> str:
    if character in '"\\':
        return "\\" + character
    if character.isprintable() or character == " ":
        return character
    return f"\\u{ord(character):04x}" if ord(character) < 0x10000 else f"\\U{ord(character):08x}"


def read_int(text: str) -> int:
    """A whole number."""
    if _NUMBER.fullmatch(text) and "." not in text:
        return int(text)
    raise TextError(0, f"{text[:40]!r} is not a whole number", "a whole number")


def read_bool(text: str) -> bool:
    """True or false."""
    if text in ("true", "false"):
        return text == "true"
    raise TextError(0, f"{text[:40]!r} is neither true nor false", "true or false")


def read_duration(text: str) -> float:
    """Seconds from a duration."""
    match = _DURATION.fullmatch(text)
    if match is None:
        raise TextError(0, f"{text[:40]!r} is not a duration", _DURATIONS)
    return round(float(match[1]) * UNIT_SECONDS[match[2]], 6)


def read_amount(text: str, unit_seconds: float) -> float:
    """A number in the unit of the setting's name, or a duration."""
    if _NUMBER.fullmatch(text):
        return float(text)
    try:
        return round(read_duration(text) / unit_seconds, 6)
    except TextError:
        raise TextError(0, f"{text[:40]!r} is neither a number nor a duration", f"a number, or {_DURATIONS}") from None


def print_number(value: float) -> str:
    """A number without a needless fraction."""
    return str(int(value)) if float(value).is_integer() else f"{value:.6f}".rstrip("0")


def print_duration(seconds: float) -> str:
    """A duration in the largest unit that says it whole."""
    for unit in ("d", "h", "m", "s"):
        count = seconds / UNIT_SECONDS[unit]
        if seconds and count.is_integer():
            return f"{int(count)}{unit}"
    milliseconds = round(seconds * 1000, 3)
    return (
        f"{print_number(milliseconds)}ms" if milliseconds.is_integer() or seconds < 1 else f"{print_number(seconds)}s"
    )
