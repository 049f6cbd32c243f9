"""The common part of the validators: the list of problems, and the checks of expressions and mappings against types."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping

from msgspec import UNSET

from skep.spec.expressions import Expression, analyse
from skep.spec.faults import TextError
from skep.spec.ir import App, Expressions, Fields
from skep.spec.messages import fits_type
from skep.spec.problems import PROBLEMS_SHOWN, Path, Severity, Spans, SpecProblem, located, nearest
from skep.spec.scanning import NAME
from skep.spec.types import BOOL, JSON, TEXTUAL, Field, Type, TypeKind, print_type

DURATION_SECONDS_MAX = 100 * 365 * 86_400.0
NAME_CHARACTERS = 255

_UNFIT = re.compile("[\x00-\x1f\x7f-\x9f\ud800-\udfff]")
_TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,100}")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)


class Checking:
    """The problems of one app."""

    def __init__(self, app: App, spans: Spans) -> None:
        self.app = app
        self.spans = spans
        self.problems: list[SpecProblem] = []
        self.errors = 0

    def problem(
        self,
        path: Path,
        message: str,
        expected: str | None = None,
        *,
        text: str = "",
        at: int = 0,
        absence: bool = False,
        severity: Severity = Severity.ERROR,
    ) -> None:
        """Note a problem at a path, or at an offset of the text there."""
        self.errors += severity is Severity.ERROR
        problem = SpecProblem(message=message, path=path, expected=expected, severity=severity, absence=absence)
        self.problems.append(located(problem, text, at, self.spans))

    def warning(self, path: Path, message: str, expected: str | None = None) -> None:
        """Note a warning at a path."""
        self.problem(path, message, expected, absence=True, severity=Severity.WARNING)

    def unknown(self, path: Path, what: str, name: str, known: Collection[str]) -> None:
        """Note a name that nothing has."""
        near = nearest(name, known, len(self.problems))
        expected = f"{near}?" if near else f"one of {', '.join(list(known)[:12])}" if known else None
        self.problem(path, f"there is no {what} {name!r}", expected)

    def expression(
        self, path: Path, text: str, variables: Mapping[str, Type], wanted: Type | None = None
    ) -> Expression | None:
        """Check an expression. None when it is wrong (a problem is noted), or when there are too many problems already."""
        if self.errors > PROBLEMS_SHOWN:
            return None
        try:
            return analyse(text, variables, wanted)
        except TextError as error:
            self.problem(path, error.message, error.expected, text=text, at=error.at)
            return None

    def condition(self, path: Path, text: str | None, variables: Mapping[str, Type]) -> None:
        """Check an expression that is true or false, if there is one."""
        if text is not None:
            self.expression(path, text, variables, BOOL)

    def key(self, path: Path, text: str, variables: Mapping[str, Type]) -> Expression | None:
        """Check an expression that makes a key: a string, or a whole number. None when the expression is wrong."""
        found = self.expression(path, text, variables)
        if found is None:
            return None
        if found.type.kind not in TEXTUAL | {TypeKind.INT, TypeKind.JSON}:
            self.problem(path, f"a key cannot be {print_type(found.type)}", "a string or an int", text=text)
        elif found.type.optional:
            self.problem(
                path, "a key cannot be null", 'another value for when it is, as in note != null ? note : "none"'
            )
        return found

    def mapping(
        self, path: Path, given: Expressions, variables: Mapping[str, Type], target: Fields | None, what: str
    ) -> dict[str, Type]:
        """Check the expressions for the fields of a target, and that none is missing; return their types."""
        types: dict[str, Type] = {}
        for name, text in given.items():
            at = (*path, name)
            if target is None and not NAME.fullmatch(name):
                self.problem(at, f"{name!r} cannot name a field", "letters, digits and _")
            if target is not None and name not in target:
                self.unknown(at, f"field of {what}", name, target)
            field = target.get(name) if target is not None else None
            found = self.expression(at, text, variables, field.type if field else None)
            types[name] = found.type if found is not None else JSON
        missing = [name for name, field in (target or {}).items() if field.required and name not in given]
        if missing:
            names = ", ".join(missing)
            verb = "is" if len(missing) == 1 else "are"
            self.problem(path, f"{what} is not whole: {names} {verb} missing", names, absence=True)
        return types

    def target(self, path: Path, name: str) -> Fields | None:
        """Check that a queue to push to exists; return its message type, if it has one."""
        queue = self.app.queues.get(name)
        if queue is None:
            self.unknown((*path, "queue"), "queue", name, self.app.queues)
        return (queue.message_type or None) if queue is not None else None

    def fields(self, path: Path, fields: Fields) -> None:
        """Check the names and defaults of fields."""
        for name, field in fields.items():
            if not NAME.fullmatch(name):
                self.problem((*path, name), f"{name!r} cannot name a field", "letters, digits and _")
            self._default((*path, name), field)

    def _default(self, path: Path, field: Field) -> None:
        if field.default is not UNSET and not fits_type(field.type, field.default):
            self.problem(path, f"the default {field.default!r} is not of its type", print_type(field.type))

    def identifier(self, path: Path, what: str, name: str) -> None:
        """Check a name of letters, digits and underscores."""
        if not NAME.fullmatch(name) or len(name) > NAME_CHARACTERS:
            self.problem(path, f"{name[:60]!r} cannot name {what}", "letters, digits and _")

    def fit_name(self, path: Path, what: str, name: str) -> None:
        """Check a name by the rules of the engine."""
        if not 0 < len(name) <= NAME_CHARACTERS or _UNFIT.search(name) or name in (".", ".."):
            expected = f"1 to {NAME_CHARACTERS} characters, no control characters"
            self.problem(path, f"{name[:60]!r} cannot name {what}", expected)

    def header(self, path: Path, name: str) -> None:
        """Check the name of an HTTP header."""
        if not _TOKEN.fullmatch(name):
            self.problem(path, f"{name[:60]!r} is not the name of a header", "a name like X-Signature")

    def secrets(self, path: Path, names: list[str], *, needed: bool) -> None:
        """Check the names of environment variables that hold secrets."""
        if needed and not names:
            self.problem(path, "there is no secret to verify with", 'secret_env: "NAME_OF_A_VARIABLE"', absence=True)
        for name in names:
            self.variable((*path, "secret_env"), name)

    def variable(self, path: Path, name: str) -> None:
        """Check the name of an environment variable."""
        if not _VARIABLE.fullmatch(name):
            self.problem(path, f"{name[:60]!r} cannot name a variable", "letters, digits and _")

    def within(self, path: Path, name: str, value: float, least: float, most: float) -> None:
        """Check the range of a number."""
        if not least <= value <= most:
            self.problem(path, f"{name} is out of range", f"{least:g} to {most:g}")

    def duration(self, path: Path, name: str, seconds: float, most: float = DURATION_SECONDS_MAX) -> None:
        """Check that a duration is above zero, and not too long."""
        if not 0 < seconds <= most:
            self.problem(path, f"{name} is out of range", f"above 0 and at most {most:g} seconds")
