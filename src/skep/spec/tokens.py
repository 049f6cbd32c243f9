"""The tokens of an expression: CEL's, without bytes and unsigned numbers.

A comment inside (`//` or `#`, to the end of the line) is skipped, so an expression may be explained where it stands.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import NamedTuple

from skep.spec.faults import TextError
from skep.spec.types import INT_MAX

TEXT_CHARACTERS = 8_192
TRIPLES = ('"""', "'''")
"""Before and after a string that may span lines."""

_TOKEN = re.compile(
    r"""
    (?P<space>[ \t\r\n\f]+|//[^\n]*|\#[^\n]*)
  | (?P<float>(?:\d+\.\d+(?:[eE][+-]?\d+)?|\d+[eE][+-]?\d+|\.\d+(?:[eE][+-]?\d+)?)(?![A-Za-z_0-9]))
  | (?P<hex>0[xX][0-9a-fA-F]+(?![A-Za-z_0-9]))
  | (?P<int>\d+(?![A-Za-z_0-9]))
  | (?P<unsigned>(?:0[xX][0-9a-fA-F]+|\d+)[uU](?![A-Za-z_0-9]))
  | (?P<bytes>[bB][rR]?(?=["']))
  | (?P<raw>[rR](?:"{3}(?s:.)*?"{3}|'{3}(?s:.)*?'{3}|"(?!"{2})[^"\r\n]*"|'(?!'{2})[^'\r\n]*'))
  | (?P<text>"{3}(?:[^"\\]|\\(?s:.)|"(?!"{2}))*"{3}|'{3}(?:[^'\\]|\\(?s:.)|'(?!'{2}))*'{3})
  | (?P<string>"(?!"{2})(?:[^"\\\r\n]|\\[^\r\n])*"|'(?!'{2})(?:[^'\\\r\n]|\\[^\r\n])*')
  | (?P<quoted>`[A-Za-z0-9_./\x20-]+`)
  | (?P<name>[A-Za-z_][A-Za-z0-9_]*)
  | (?P<mark>==|!=|<=|>=|&&|\|\||[-+*/%<>!?:.,()\[\]{}])
    """,
    re.VERBOSE | re.ASCII,
)
_LINE_END = r"\r\n?"
"""A line end in a string is \n, whatever the file has."""
_ESCAPE = re.compile(
    rf"(?P<end>{_LINE_END})"
    r"|\\(?:(?P<plain>[abfnrtv\\?\"'`])|[xX](?P<x>[0-9a-fA-F]{2})|u(?P<u>[0-9a-fA-F]{4})|U(?P<U>[0-9a-fA-F]{8})"
    r"|(?P<octal>[0-3][0-7]{2})|(?P<bad>(?s:.)))",
    re.ASCII,
)
_PLAIN = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}


class Token(NamedTuple):
    """A token: its kind, offset and value. The kind of a mark is the mark itself."""

    kind: str
    at: int
    value: str | int | float


def tokens_of(text: str) -> list[Token]:
    """All tokens, and a last one of kind ``end``."""
    if len(text) > TEXT_CHARACTERS:
        raise TextError(0, f"an expression has at most {TEXT_CHARACTERS} characters, this one {len(text)}")
    tokens: list[Token] = []
    at = 0
    while at < len(text):
        match = _TOKEN.match(text, at)
        if match is None:
            raise _unknown(text, at)
        kind = match.lastgroup or ""
        if kind != "space":
            tokens.append(_token(kind, at, match[0]))
        at = match.end()
    tokens.append(Token("end", len(text), ""))
    return tokens


def _token(kind: str, at: int, text: str) -> Token:
    if kind == "mark":
        return Token(text, at, text)
    if kind == "quoted":
        return Token(kind, at, text[1:-1])
    if kind in _LEFT_OUT:
        raise TextError(at, *_LEFT_OUT[kind])
    read = _READERS.get(kind)
    if read is None:
        return Token(kind, at, text)
    return Token(_KINDS.get(kind, kind), at, read(at, text))


def _read_int(at: int, text: str) -> int:
    # The largest number plus one passes here: the parser knows whether a minus stands before it.
    if len(text) > 40 or (value := int(text, 0 if text[:2] in ("0x", "0X") else 10)) > INT_MAX + 1:
        raise TextError(at, f"{text[:40]} does not fit into 64 bits", f"a number up to {INT_MAX}")
    return value


def _read_float(at: int, text: str) -> float:
    value = float(text)
    if value == float("inf"):
        raise TextError(at, f"{text[:40]} is too large for a float")
    return value


def _read_string(at: int, text: str) -> str:
    quotes = _quotes(text)
    value = _ESCAPE.sub(lambda match: _unescape(at + quotes, match), text[quotes:-quotes])
    _refuse_surrogates(at, value)
    return value


def _read_raw(at: int, text: str) -> str:
    quotes = _quotes(text[1:])
    _refuse_surrogates(at, text)
    return re.sub(_LINE_END, "\n", text[1 + quotes : -quotes])


def _quotes(text: str) -> int:
    """How many quotes a string begins and ends with."""
    return 3 if text[:3] in TRIPLES else 1


def _refuse_surrogates(at: int, value: str) -> None:
    try:
        value.encode()
    except UnicodeEncodeError:
        raise TextError(at, "a string has no lone surrogates") from None


def _unescape(at: int, match: re.Match[str]) -> str:
    if match["end"] is not None:
        return "\n"
    if (plain := match["plain"]) is not None:
        return _PLAIN.get(plain, plain)
    if match["octal"] is not None:
        return chr(int(match["octal"], 8))
    digits = match["x"] or match["u"] or match["U"]
    if digits is None or int(digits, 16) > 0x10FFFF:
        shown = match[0] if match[0].isprintable() else "a backslash before the end of a line"
        raise TextError(
            at + match.start(),
            f"{shown} is not an escape",
            r"\n, \t, \", \\, \xHH, \uHHHH, \UHHHHHHHH or \OOO in octal",
        )
    return chr(int(digits, 16))


_READERS: dict[str, Callable[[int, str], str | int | float]] = {
    "int": _read_int,
    "hex": _read_int,
    "float": _read_float,
    "string": _read_string,
    "text": _read_string,
    "raw": _read_raw,
}
_KINDS = {"raw": "string", "text": "string", "hex": "int"}
_LEFT_OUT = {
    "bytes": ("there are no bytes, since JSON has none", "a string, without the b"),
    "unsigned": ("there are no unsigned numbers, since JSON has none", "the number without the u"),
}


def _unknown(text: str, at: int) -> TextError:
    character = text[at]
    if text[at : at + 3] in TRIPLES:
        return TextError(at, "this string is not closed", f"a closing {text[at : at + 3]}")
    if character in "\"'":
        return TextError(at, "this string does not end on its line", f"a closing {character}")
    if character == "`":
        return TextError(
            at,
            "this is not a name in backticks",
            'letters, digits, _ . - / and blanks between backticks; or ["any key"]',
        )
    if character == "=":
        return TextError(at, "there is no operator =", "== to compare")
    if character in "&|":
        return TextError(at, f"there is no operator {character}", character * 2)
    if character.isdigit():
        return TextError(at, f"{text[at : at + 20].split()[0]!r} is not a number", "a number like 12, 0x1f, 1.5 or 2e3")
    return TextError(at, f"{character!r} means nothing in an expression")
