"""The scanner: a position in a spec's text, and the few things that it skips or takes there.

A value is taken as raw text up to the end of its line, a comma, a semicolon or a closing brace; brackets may span lines. Its
contents are not parsed, but brackets in strings and comments do not count.
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
_RAW_STRING = re.compile(r"""[rR](?:"[^"\n]*"|'[^'\n]*')""")
_QUOTED = re.compile(r"""'(?:[^'\\\n]|\\[^\n])*'?|"(?:[^"\\\n]|\\[^\n])*"?""")
_PLAIN = re.compile(r"""[^\s"'#/(){}\[\]<>,;rR]+""")
_CLOSING = {"(": ")", "[": "]", "{": "}", "<": ">"}


class Raw:
    """A raw value while it is taken: its start, and its open brackets."""

    def __init__(self, start: int, angles: bool, stop_at_brace: bool) -> None:
        self.start = start
        self.angles = angles
        self.stop_at_brace = stop_at_brace
        self.open: list[int] = []


class Scanner:
    """A position in a text. It moves only forward, except to end a value whose bracket is never closed."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0
        self.problems: list[SpecProblem] = []
        self.lines = [0, *(match.end() for match in re.finditer("\n", text))]

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

    def span(self, start: int, end: int) -> Span:
        """The span of a text, with the column of each line's first character."""
        line, column = self.place(start)
        following = self.text[start:end].split("\n")[1:]
        return Span(line, (column, *(len(text) - len(text.lstrip()) + 1 for text in following)))

    def raw(self, *, angles: bool = False, stop_at_brace: bool = False) -> tuple[str, Span]:
        """Take a raw value with its lines stripped; ``angles`` counts < and > as brackets, as in types."""
        raw = Raw(self.at, angles, stop_at_brace)
        while self.at < len(self.text) and self.step(raw):
            if raw.open and self.at - raw.start > BRACKETS_CHARACTERS:
                break
        if raw.open:
            self._unclosed(raw)
        end = self.at
        while end > raw.start and self.text[end - 1].isspace():
            end -= 1
        lines = self.text[raw.start : end].split("\n")
        return "\n".join(line.strip() for line in lines), self.span(raw.start, end)

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
        else:
            self.at = self._over(_RAW_STRING, _QUOTED, _PLAIN)
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
