r"""Patterns of RE2 as patterns of Java, where both mean the same and Java needs no exponential time.

What is translated: plain characters, `.`, classes of characters and ranges, `\d \w \s` and their opposites, `^` and `$`,
groups, alternatives, and repetitions that are not themselves repeated. Everything else is left to the evaluator.
"""

from __future__ import annotations

import re
from typing import NamedTuple

SHORT_CHARACTERS = 200
"""The longest text for a pattern with two or three open repetitions: Java tries all ways to divide it between them."""
REPETITIONS_MAX = 3

_CLASSES = {
    "d": "[0-9]", "w": "[0-9A-Za-z_]", "s": r"[\t\n\f\r ]", "D": "[^0-9]", "W": "[^0-9A-Za-z_]", "S": r"[^\t\n\f\r ]",
}  # fmt: skip
_INSIDE = {"d": "0-9", "w": "0-9A-Za-z_", "s": r"\t\n\f\r "}
_CONTROL = {"n": "\\n", "t": "\\t", "r": "\\r", "f": "\\f"}
_COUNT = re.compile(r"\{(\d{1,3})(,(\d{1,3})?)?\}", re.ASCII)


class JavaPattern(NamedTuple):
    """A pattern of Java, and whether it may only be used on short texts."""

    text: str
    short_only: bool


def to_java(pattern: str) -> JavaPattern | None:
    """The pattern for Java; None where the two could differ."""
    translation = _Translation(pattern)
    try:
        text = translation.run()
    except (ValueError, IndexError):
        return None
    # In RE2 only \n ends a line, and `.` does not match it; Java knows more line ends without (?d).
    return JavaPattern(f"(?d){text}", translation.open_repetitions > 1)


class _Translation:
    def __init__(self, pattern: str) -> None:
        self._text = pattern
        self._at = 0
        self.open_repetitions = 0

    def run(self) -> str:
        parts = []
        while self._at < len(self._text):
            parts.append(self._alternatives())
            if self._at < len(self._text):
                raise ValueError("a bracket too many")
        if self.open_repetitions > REPETITIONS_MAX:
            raise ValueError("too many open repetitions")
        return "".join(parts)

    def _peek(self) -> str:
        return self._text[self._at : self._at + 1]

    def _take(self) -> str:
        character = self._text[self._at]
        self._at += 1
        return character

    def _alternatives(self) -> str:
        parts: list[str] = []
        while self._peek() and self._peek() != ")":
            if self._peek() == "|":
                parts.append(self._take())
            else:
                parts.append(self._repeated())
        return "".join(parts)

    def _repeated(self) -> str:
        is_group = self._peek() == "("
        atom = self._atom()
        mark = self._peek()
        if mark not in ("*", "+", "?", "{"):
            return atom
        if mark == "{":
            match = _COUNT.match(self._text, self._at)
            if match is None:
                raise ValueError("a brace that does not count")
            repetition = match[0]
            self._at = match.end()
            is_open = match[2] is not None and match[3] is None
        else:
            repetition = self._take()
            is_open = mark != "?"
        if self._peek() and self._peek() in "*+?{":
            raise ValueError("a repetition of a repetition, or a lazy one")
        if is_group and repetition != "?":
            raise ValueError("a group that is repeated")
        if atom in ("\\A", "\\z"):
            raise ValueError("an end that is repeated")
        self.open_repetitions += is_open
        return atom + repetition

    def _atom(self) -> str:
        character = self._take()
        match character:
            case "(":
                return self._group()
            case "[":
                return self._class()
            case "\\":
                return self._escape(_CLASSES)
            case "^":
                return "\\A"
            case "$":
                return "\\z"
            case ".":
                return "."
            case "*" | "+" | "?" | "{" | "}" | "]":
                raise ValueError("a mark that stands alone")
        return _plain(character)

    def _group(self) -> str:
        if self._text.startswith("?:", self._at):
            self._at += 2
        elif self._peek() == "?":
            raise ValueError("flags and names")
        inner = self._alternatives()
        if self._take() != ")":
            raise ValueError("a group that is not closed")
        return f"(?:{inner})"

    def _escape(self, known: dict[str, str]) -> str:
        character = self._take()
        if character in known:
            return known[character]
        if character in _CONTROL:
            return _CONTROL[character]
        if character.isalnum() or ord(character) > 126:
            raise ValueError("an escape that may mean something else")
        return _plain(character)

    def _class(self) -> str:
        parts = ["["]
        if self._peek() == "^":
            parts.append(self._take())
        first = True
        while first or self._peek() != "]":
            first = False
            parts.append(self._member())
            if self._peek() == "-" and self._text[self._at + 1] != "]":
                self._take()
                parts.append("-" + self._member())
        self._take()
        return "".join(parts) + "]"

    def _member(self) -> str:
        character = self._take()
        if character in "[]":
            raise ValueError("a class in a class")
        if character != "\\":
            return _plain(character)
        escaped = self._escape(_INSIDE)
        if escaped in _INSIDE.values() and self._peek() == "-":
            raise ValueError("a range from a class")
        return escaped


def _plain(character: str) -> str:
    """A character that stands for itself."""
    if character.isalnum() or character == "_" or ord(character) > 126:
        return character
    if ord(character) < 32:
        return f"\\x{ord(character):02x}"
    return "\\" + character
