"""The problems of a spec, all at once, each at its place: the line, a caret, and the expected text.

A place is a path into the IR. A spec that was written in the language has a span for each path; one that came as TOML, JSON
or Python has none, and its problems name the path instead.
"""

from __future__ import annotations

import difflib
from collections.abc import Collection, Sequence
from enum import StrEnum

import msgspec
from msgspec import Struct

from skep.errors import Code, SkepError

Path = tuple[str | int, ...]
PROBLEMS_SHOWN = 100
NAMES_COMPARED = 1_000


class Span(Struct, frozen=True):
    """The first line of a text, and the column at which each of its lines starts. Lines and columns count from 1."""

    line: int
    columns: tuple[int, ...]

    @property
    def column(self) -> int:
        """The column of its first character."""
        return self.columns[0]


Spans = dict[Path, Span]


class Severity(StrEnum):
    """Whether a spec can be used in spite of a problem."""

    ERROR = "error"
    WARNING = "warning"


class SpecProblem(Struct, frozen=True, kw_only=True):
    """One problem. ``line`` is 0 where there is no text to point at.

    ``absence`` marks a missing part. When a text could not be read whole, the part may be there after all.
    """

    message: str
    path: Path = ()
    expected: str | None = None
    severity: Severity = Severity.ERROR
    line: int = 0
    column: int = 0
    absence: bool = False


class SpecError(SkepError):
    """The error of a spec that cannot be used, with all its problems."""

    def __init__(self, problems: Sequence[SpecProblem], rendered: str) -> None:
        super().__init__(Code.INVALID_SPEC, rendered, problems=list(problems[:PROBLEMS_SHOWN]))
        self.problems = list(problems)


def nearest(name: str, known: Collection[str], told: int) -> str | None:
    """The known name that was probably meant. It is searched only while the problem may still be shown: the search is slow."""
    if told > PROBLEMS_SHOWN or len(known) > NAMES_COMPARED:
        return None
    near = difflib.get_close_matches(name, known, n=1)
    return near[0] if near else None


def located(problem: SpecProblem, text: str, at: int, spans: Spans) -> SpecProblem:
    """The problem with the line and column of an offset in the text at its path, or of the nearest part that has a span."""
    path = problem.path
    while path and path not in spans:
        path = path[:-1]
    span = spans.get(path)
    if span is None:
        return problem
    line, column = (0, 0) if path != problem.path else _within(text, at)
    line = min(line, len(span.columns) - 1)
    return msgspec.structs.replace(problem, line=span.line + line, column=span.columns[line] + column)


def _within(text: str, at: int) -> tuple[int, int]:
    before = text[:at]
    return before.count("\n"), len(before) - (before.rfind("\n") + 1)


def errors_of(problems: Sequence[SpecProblem]) -> list[SpecProblem]:
    """The problems that make a spec unusable."""
    return [problem for problem in problems if problem.severity is Severity.ERROR]


def ordered(problems: Sequence[SpecProblem]) -> list[SpecProblem]:
    return sorted(problems, key=lambda problem: (problem.line, problem.column))


def render(problem: SpecProblem, source: str, filename: str) -> str:
    """A problem as text: place, message, the line with a caret, and the expected text."""
    if not problem.line:
        path = ".".join(map(str, problem.path))
        place = f"{filename}: {path}" if path else filename
        return f"{place}: {problem.severity}: {problem.message}{_expectation(problem, ' (expected ', ')')}"
    head = f"{filename}:{problem.line}:{problem.column}: {problem.severity}: {problem.message}"
    lines = source.splitlines()
    line = lines[problem.line - 1] if problem.line <= len(lines) else ""
    number = f"{problem.line:>5} | "
    # Tabs stay tabs, so that the caret is under its character.
    lead = "".join("\t" if character == "\t" else " " for character in line[: problem.column - 1])
    lead = lead.ljust(problem.column - 1)
    caret = f"{' ' * (len(number) - 2)}| {lead}^"
    return "\n".join([head, number + line, caret + _expectation(problem, " expected ", "")])


def render_all(problems: Sequence[SpecProblem], source: str, filename: str) -> str:
    """All problems from top to bottom, up to a bound."""
    shown = [render(problem, source, filename) for problem in ordered(problems)[:PROBLEMS_SHOWN]]
    if len(problems) > PROBLEMS_SHOWN:
        shown.append(f"{filename}: and {len(problems) - PROBLEMS_SHOWN} more")
    return "\n".join(shown)


def _expectation(problem: SpecProblem, before: str, after: str) -> str:
    return f"{before}{problem.expected}{after}" if problem.expected else ""
