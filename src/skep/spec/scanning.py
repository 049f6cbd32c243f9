"""The scanner: a position in a spec's text, and the few things that it skips or takes there.

A value is taken as raw text up to the end of its line, a comma, a semicolon or a closing brace; brackets and strings in three
quotes may span lines. Its contents are not parsed, but brackets in strings and comments do not count.
"""

from __future__ import annotations

import re
from bisect import bisect_right

from skep.spec.problems import Span, SpecProblem

NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)
STRING = re.compile(r'"(?:[^"\\\n]|\\[^\n])*"')

BRACKETS_CHARACTERS = 10_000
"""How far a closing bracket is searched. Without this, a text of opening brackets would take quadratic time."""

_BLANK = re.compile(r"[^\S\n]*")
_COMMENT = re.compile(r"(?://|#)[^\n]*")
_TRIPLE = re.compile(
    r"""(?:[rR](?:"{3}(?s:.)*?"{3}|'{3}(?s:.)*?'{3})|"{3}(?:[^"\\]|\\(?s:.)|"(?!"{2}))*"{3}|'{3}(?:[^'\\]|\\(?s:.)|'(?!'{2}))*'{3})"""
)
_TRIPLE_START = re.compile(r"""[rR]?(?:"{3}|'{3})""")
_RAW_STRING = re.compile(r"""[rR](?:"[^"\n]*"|'[^'\n]*')""")
_QUOTED = re.compile(r"""'(?:[^'\\\n]|\\[^\n])*'?|"(?:[^"\\\n]|\\[^\n])*"?|`[^`\n]*`?""")
_PLAIN = re.compile(r"""[^\s"'`#/(){}\[\]<>,;rR]+""")
_CLOSING = {"(": ")", "[": "]", "{": "}", "<": ">"}


class Raw:
    """A raw value while it is taken: its start, its open brackets, and the offsets of line ends inside of its strings."""

    def __init__(self, start: int, angles: bool, stop_at_brace: bool) -> None:
        self.start = start
        self.angles = angles
        self.stop_at_brace = stop_at_brace
        self.open: list[int] = []
        self.kept: set[int] = set()


class Scanner:
    """A position in a text. It moves only forward, except to end a value whose bracket is never closed."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0
        self.problems: list[SpecProblem] = []
        self.lines = [0, *(match.end() for match in re.finditer("\n", text))]
        self.unclosed = (
            False  # a string in three quotes is not closed: to look for the ends of others could take quadratic time
        )

    def place(self, at: int) -> tuple[int, int]:
        """Line and column of an offset."""
        line = bisect_right(self.lines, at)
        return line, at - self.lines[line - 1] + 1

    def problem(self, at: int, message: str, expected: str | None = None) -> None:
        """Note a problem at an offset."""
        line, column = self.place(at)
        self.problems.append(SpecProblem(message=message, expected=expected, line=line, column=column))

    def peek(self) -> str:
        """The next character; empty at the end."""
        return self.text[self.at : self.at + 1]

    def blank(self) -> None:
        """Skip white space on this line."""
        self.take(_BLANK)

    def comment(self) -> str | None:
        """Take a comment, if there is one."""
        found = self.take(_COMMENT)
        return None if found is None else found.rstrip()

    def take(self, pattern: re.Pattern[str]) -> str | None:
        """Take the text that the pattern matches here, if it does."""
        match = pattern.match(self.text, self.at)
        if match is None:
            return None
        self.at = match.end()
        return match[0]

    def span(self, start: int) -> Span:
        """The span of a text on one line."""
        line, column = self.place(start)
        return Span(line, (column,))

    def raw(self, *, angles: bool = False, stop_at_brace: bool = False) -> tuple[str, Span]:
        """Take a raw value with its lines stripped outside of strings; ``angles`` counts < and > as brackets, as in types."""
        raw = Raw(self.at, angles, stop_at_brace)
        while self.at < len(self.text) and self.step(raw):
            if raw.open and self.at - raw.start > BRACKETS_CHARACTERS:
                break
        if raw.open:
            self._unclosed(raw)
        end = self.at
        while end > raw.start and self.text[end - 1].isspace():
            end -= 1
        lines, columns = _stripped(self.text[raw.start : end], {at - raw.start for at in raw.kept})
        line, column = self.place(raw.start)
        return "\n".join(lines), Span(line, (column, *columns[1:]))

    def step(self, raw: Raw) -> bool:
        """Move over one piece of a raw value; False at its end."""
        character = self.text[self.at]
        if character == "\n" or _COMMENT.match(self.text, self.at):
            if not raw.open:
                return False
            self.at = self.at + 1 if character == "\n" else self._over(_COMMENT)
        elif character in "({[" or (character == "<" and raw.angles):
            if character == "{" and raw.stop_at_brace and not raw.open:
                return False
            raw.open.append(self.at)
            self.at += 1
        elif character in ")}]" or (character == ">" and raw.angles):
            return self._close(raw, character)
        elif character in ",;" and not raw.open:
            return False
        elif not self._triple(raw):
            self.at = self._over(_RAW_STRING, _QUOTED, _PLAIN)
        return True

    def _triple(self, raw: Raw) -> bool:
        """Move over a string in three quotes, if one begins here and is closed."""
        if self.unclosed or not _TRIPLE_START.match(self.text, self.at):
            return False
        match = _TRIPLE.match(self.text, self.at)
        if match is None:
            self.unclosed = True
            return False
        raw.kept.update(self.at + end.start() for end in re.finditer("\n", match[0]))
        self.at = match.end()
        return True

    def _close(self, raw: Raw, character: str) -> bool:
        if not raw.open:
            if character == "}":
                return False
        elif _CLOSING[self.text[raw.open[-1]]] == character:
            raw.open.pop()
        elif character == "}":
            return False
        self.at += 1
        return True

    def _unclosed(self, raw: Raw) -> None:
        """Note the unclosed bracket, and end the value at the end of its line, so that the rest can be read."""
        opening = raw.open[-1]
        bracket = self.text[opening]
        self.problem(opening, f"this {bracket} is not closed", f"a {_CLOSING[bracket]}")
        end = self.text.find("\n", opening)
        self.at = len(self.text) if end < 0 else end
        raw.open.clear()

    def _over(self, *patterns: re.Pattern[str]) -> int:
        for pattern in patterns:
            match = pattern.match(self.text, self.at)
            if match is not None:
                return match.end()
        return self.at + 1


def _stripped(text: str, kept: set[int]) -> tuple[list[str], list[int]]:
    """The lines of a text, stripped except beside the line ends that are ``kept``, and the column at which each begins."""
    lines: list[str] = []
    columns: list[int] = []
    start = 0
    for line in text.split("\n"):
        end = start + len(line)
        bare = line if start - 1 in kept else line.lstrip()
        columns.append(1 + len(line) - len(bare))
        lines.append(bare if end in kept else bare.rstrip())
        start = end + 1
    return lines, columns


def line_ends_in_strings(text: str) -> set[int]:
    """The offsets of the line ends of an expression that are inside of its strings."""
    scanner = Scanner(text)
    raw = Raw(0, angles=False, stop_at_brace=False)
    while scanner.at < len(text):
        if not scanner.step(raw):
            scanner.at += 1
    return raw.kept


def stripped(text: str) -> str:
    """An expression with its lines stripped, except inside of strings."""
    bare = text.strip()
    return "\n".join(_stripped(bare, line_ends_in_strings(bare))[0])


def is_wrapped(text: str) -> bool:
    """Whether one pair of brackets encloses the whole text."""
    if not text.startswith("(") or not text.endswith(")"):
        return False
    scanner = Scanner(text)
    raw = Raw(0, angles=False, stop_at_brace=False)
    while scanner.at < len(text):
        scanner.step(raw)
        if not raw.open:
            break
    return scanner.at == len(text) and not raw.open
