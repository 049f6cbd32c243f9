"""Format specs: one layout for all, with their comments. Formatting a second time changes nothing.

Two spaces a level, one entry a line, at most one empty line between entries; values keep their words, types their one spelling.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from skep.spec.faults import TextError
from skep.spec.ir import App
from skep.spec.problems import SpecError, render_all
from skep.spec.scanning import NAME, line_ends_in_strings
from skep.spec.syntax import Block, Entry, Mode, mode_of, read
from skep.spec.types import parse_field, print_field
from skep.spec.unparse import unparse

INDENT = "  "


def format_spec(text: str, filename: str = "spec") -> str:
    """The spec in its one layout; SpecError when its syntax is wrong."""
    block, problems = read(text)
    if problems:
        raise SpecError(problems, render_all(problems, text, filename))
    return print_block(block)


def print_app(app: App) -> str:
    """The text of a spec from the IR."""
    return print_block(Block([unparse(app)]))


def print_block(block: Block) -> str:
    """The text of the entries of a whole spec."""
    lines = list(_lines_of(block, Mode.STRUCTURE, 0))
    return "\n".join(lines) + "\n" if lines else ""


def _lines_of(block: Block, mode: Mode, level: int) -> Iterator[str]:
    for entry in block.entries:
        if entry.spaced:
            yield ""
        yield from _entry_lines(entry, mode, level)
    for comment in block.dangling:
        yield INDENT * level + comment


def _entry_lines(entry: Entry, mode: Mode, level: int) -> Iterator[str]:
    indent = INDENT * level
    for comment in entry.leading:
        yield indent + comment
    head = indent + _head(entry, mode, level)
    trailing = f"  {entry.trailing}" if entry.trailing else ""
    block = entry.block
    if block is None:
        yield head + trailing
    elif not block.entries and not block.dangling and not block.opening:
        yield f"{head} {{}}{trailing}"
    else:
        yield f"{head} {{" + (f"  {block.opening}" if block.opening else "")
        yield from _lines_of(block, mode_of(entry), level + 1)
        yield f"{indent}}}{trailing}"


def _head(entry: Entry, mode: Mode, level: int) -> str:
    name = entry.name if NAME.fullmatch(entry.name) else msgspec.json.encode(entry.name).decode()
    if entry.value is None:
        return name
    text = _type(entry.value.text) if mode is Mode.TYPES else entry.value.text
    return name + (": " if entry.colon else " ") + _indented(text, INDENT * (level + 1))


def _indented(text: str, indent: str) -> str:
    """A text with its further lines indented, except those that begin inside of a string."""
    if "\n" not in text:
        return text
    kept = line_ends_in_strings(text)
    ends = [at for at, character in enumerate(text) if character == "\n"]
    parts = [text[: ends[0]]]
    for at, end in zip(ends, [*ends[1:], len(text)], strict=True):
        line = text[at + 1 : end]
        parts.append(indent + line if line and at not in kept else line)
    return "\n".join(parts)


def _type(text: str) -> str:
    if "\n" in text:  # there may be comments between the lines
        return text
    try:
        return print_field(parse_field(text))
    except TextError:
        return text
