"""Read and check spec files: the ending of the name tells the format (spec language, TOML or JSON)."""

from __future__ import annotations

from pathlib import PurePath

from msgspec import Struct

from skep.spec.interchange import from_json, from_toml
from skep.spec.ir import App
from skep.spec.parser import Parsed, parse_app
from skep.spec.problems import SpecError, SpecProblem, errors_of, ordered, render
from skep.spec.validate import validate


class Checked(Struct, frozen=True):
    """The result of a check: the problems from top to bottom, as data and as text."""

    problems: list[SpecProblem]
    rendered: list[str]

    @property
    def usable(self) -> bool:
        """Whether there are no errors, at most warnings."""
        return not errors_of(self.problems)


def read_spec(text: str, filename: str) -> Parsed:
    """Read a spec, with the spans of its parts and the problems of reading. Only the spec language has spans."""
    suffix = PurePath(filename).suffix
    if suffix not in (".toml", ".json"):
        return parse_app(text)
    try:
        app = from_toml(text, filename) if suffix == ".toml" else from_json(text, filename)
    except SpecError as error:
        return Parsed(App(name=""), {}, error.problems)
    return Parsed(app, {}, [])


def check(text: str, filename: str) -> Checked:
    """All problems of a spec."""
    problems = ordered(_problems(read_spec(text, filename)))
    return Checked(problems, [render(problem, text, filename) for problem in problems])


def load(text: str, filename: str) -> App:
    """Load a valid spec. An invalid one raises a SpecError with all problems."""
    parsed = read_spec(text, filename)
    problems = ordered(errors_of(_problems(parsed)))
    if problems:
        raise SpecError(problems, "\n".join(render(problem, text, filename) for problem in problems))
    return parsed.app


def _problems(parsed: Parsed) -> list[SpecProblem]:
    """The problems of reading and of validation, without those that may only follow from an unreadable part."""
    found = validate(parsed.app, parsed.spans)
    if not parsed.problems:
        return found
    lines = {problem.line for problem in parsed.problems}
    return parsed.problems + [problem for problem in found if not problem.absence and problem.line not in lines]
