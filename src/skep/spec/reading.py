"""The common part of the readers of declarations: the list of problems, and the spans of the parts."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from typing import TypeVar

from skep.spec.faults import TextError
from skep.spec.problems import Path, Span, Spans, SpecProblem, nearest
from skep.spec.scanning import NAME
from skep.spec.syntax import Block, Entry, RawText
from skep.spec.types import JSON, Field, parse_field
from skep.spec.values import read_name

Read = TypeVar("Read")
Word = TypeVar("Word", bound=str)
Meant = Callable[[str], str | None]


class Reading:
    """The problems and spans of one text."""

    def __init__(self, problems: list[SpecProblem]) -> None:
        self.problems = problems
        self.spans: Spans = {}

    def problem(self, span: Span, message: str, expected: str | None = None) -> None:
        """Note a problem at the start of a span."""
        self.problems.append(SpecProblem(message=message, expected=expected, line=span.line, column=span.column))

    def fault(self, value: RawText, error: TextError) -> None:
        """Note a problem at an offset of a value."""
        before = value.text[: error.at].split("\n")
        line = min(len(before), len(value.span.columns)) - 1
        self.problems.append(
            SpecProblem(
                message=error.message,
                expected=error.expected,
                line=value.span.line + line,
                column=value.span.columns[line] + len(before[-1]),
            )
        )

    def unknown(self, entry: Entry, known: Collection[str], where: str, meant: Meant) -> None:
        """Note a name that does not belong into its block."""
        near = meant(entry.name) or nearest(entry.name, known, len(self.problems))
        expected = f"{near}?" if near else "one of " + ", ".join(sorted(known))
        self.problem(entry.span, f"there is no {entry.name!r} in {where}", expected)

    def entries(
        self,
        block: Block,
        known: Collection[str],
        where: str,
        repeated: Collection[str] = (),
        meant: Meant = lambda _: None,
    ) -> Iterator[Entry]:
        """The entries of a block that belong there, each once unless it may be repeated.

        ``meant`` gives the right place for a wrong name, if it knows one.
        """
        seen: dict[str, Entry] = {}
        for entry in block.entries:
            if entry.name not in known:
                self.unknown(entry, known, where, meant)
            elif entry.name in seen and entry.name not in repeated:
                first = seen[entry.name].span.line
                self.problem(entry.span, f"{where} has {entry.name!r} twice, first in line {first}")
            else:
                seen[entry.name] = entry
                yield entry

    def value(self, entry: Entry, path: Path, read: Callable[[str], Read]) -> Read | None:
        """Read the value after the colon; None when that fails (a problem is noted)."""
        if entry.value is None or not entry.colon:
            self.problem(entry.span, f"{entry.name!r} needs a value", f"{entry.name}: and a value")
            return None
        self.spans[path] = entry.value.span
        if not entry.value.text:
            return None  # the problem is noted already
        if entry.block is not None:
            self.problem(entry.span, f"{entry.name!r} has no block", "a value only")
            return None
        return self.read(entry.value, read)

    def read(self, value: RawText, read: Callable[[str], Read]) -> Read | None:
        """Read a raw value; None when that fails (a problem is noted)."""
        try:
            return read(value.text)
        except TextError as error:
            self.fault(value, error)
            return None

    def block(self, entry: Entry, path: Path, *, labelled: bool = False) -> Block | None:
        """The block of an entry without a value; a label is allowed only if ``labelled``."""
        self.spans.setdefault(path, entry.span)
        if entry.colon or entry.block is None:
            self.problem(entry.span, f"{entry.name!r} needs a block", f"{entry.name} {{ … }}")
            return None
        if entry.value is not None and not labelled:
            self.problem(entry.value.span, f"{entry.name!r} has no name of its own", "{")
            return None
        return entry.block

    def label(self, entry: Entry, path: Path, taken: Collection[str]) -> str | None:
        """The name that an entry declares; it must not be taken."""
        if entry.value is None or entry.colon:
            self.problem(entry.span, f"the {entry.name} has no name", f"{entry.name} and its name")
            return None
        name = self.read(entry.value, read_name)
        if name is None:
            return None
        if name in taken:
            self.problem(entry.value.span, f"there are two of {entry.name} {name!r}", "another name")
            return None
        self.spans[(*path, name)] = entry.value.span
        return name

    def expression(self, entry: Entry, path: Path) -> str | None:
        """The text of an expression. It is checked later, when all types are known."""
        return self.value(entry, path, str)

    def expressions(self, block: Block, path: Path, where: str) -> dict[str, str]:
        """Expressions by the names of their fields."""
        found: dict[str, str] = {}
        for entry in self._fields(block, path, where):
            text = self.expression(entry, (*path, entry.name))
            if text is not None:
                found[entry.name] = text
        return found

    def fields(self, block: Block, path: Path, where: str) -> dict[str, Field]:
        """Types by the names of their fields."""
        found: dict[str, Field] = {}
        for entry in self._fields(block, path, where):
            # A field with an unreadable type is still a field: expressions that use it get no problems.
            found[entry.name] = self.value(entry, (*path, entry.name), parse_field) or Field(JSON)
        return found

    def _fields(self, block: Block, path: Path, where: str) -> Iterator[Entry]:
        seen: set[str] = set()
        for entry in block.entries:
            if entry.name in seen:
                self.problem(entry.span, f"{where} has {entry.name!r} twice", "another name")
            elif not NAME.fullmatch(entry.name):
                self.problem(entry.span, f"{entry.name!r} cannot name a field", "letters, digits and _")
            else:
                seen.add(entry.name)
                self.spans[(*path, entry.name)] = entry.span
                yield entry


def word_of(*words: Word) -> Callable[[str], Word]:
    """A reader of one of a few words, or of the members of an enum."""

    def read(text: str) -> Word:
        for word in words:
            if word == text:
                return word
        raise TextError(0, f"{text[:40]!r} is not known here", " or ".join(words))

    return read
