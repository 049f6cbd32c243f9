"""The syntax of a spec: entries with blocks of entries, each with its comments, without their meaning.

    name: value          name label { … }          name: value { … }

After an error, reading goes on with the next line or entry, so that one pass finds all errors. It is linear in the text.
"""

from __future__ import annotations

from enum import Enum

import msgspec
from msgspec import Struct

from skep.spec.problems import PROBLEMS_SHOWN, Span, SpecProblem
from skep.spec.scanning import NAME, STRING, Scanner

TEXT_CHARACTERS = 1_000_000
BLOCK_LEVELS = 12


class RawText(Struct):
    """A raw text with its lines stripped, and its span."""

    text: str
    span: Span


class Entry(Struct, kw_only=True):
    """``name`` with its value or label and its block. ``colon`` tells a value from a label."""

    name: str
    span: Span
    colon: bool = False
    value: RawText | None = None
    block: Block | None = None
    leading: list[str] = []
    trailing: str | None = None
    spaced: bool = False


class Block(Struct):
    """The entries between braces, the comment after the opening brace, and the comments before the closing one."""

    entries: list[Entry]
    opening: str | None = None
    dangling: list[str] = []


class Mode(Enum):
    """The contents of a block: declarations, expressions by name, or types by name."""

    STRUCTURE = 1
    FIELDS = 2
    TYPES = 3


_TYPES = frozenset({"message_type", "input", "state"})
_FIELDS = frozenset({"map_to", "then", "emits", "event", "message", "headers", "headers_env"})
_HEADS = frozenset({"map_to", "then", "deliver", "command"})
"""Entries with a block after their value. In all other values a brace opens a map of the expression."""


def read(text: str) -> tuple[Block, list[SpecProblem]]:
    """The entries of a whole text, and its syntax errors."""
    scanner = Scanner(text)
    if len(text) > TEXT_CHARACTERS:
        scanner.problem(0, f"a spec has at most {TEXT_CHARACTERS} characters")
        return Block([]), scanner.problems
    try:
        text.encode()
    except UnicodeEncodeError as error:
        scanner.problem(error.start, "the text has a character that is none: a lone surrogate")
        return Block([]), scanner.problems
    block = _read_block(scanner, Mode.STRUCTURE, 0)
    return block, scanner.problems


def _read_block(scanner: Scanner, mode: Mode, level: int) -> Block:
    """Read entries up to the end or a closing brace, which is left to the caller."""
    block = Block([])
    spaced = False
    while True:
        spaced |= _skip_lines(scanner, block)
        if len(scanner.problems) >= PROBLEMS_SHOWN:
            scanner.at = len(scanner.text)
        following = scanner.peek()
        if not following or (following == "}" and level):
            return block
        if following == "}":
            scanner.problem(scanner.at, "there is no block to close here", "a declaration, or the end")
            scanner.at += 1
            continue
        entry = _read_entry(scanner, mode, level)
        if entry is not None:
            entry.leading, block.dangling = block.dangling, []
            entry.spaced = spaced and bool(block.entries)
            block.entries.append(entry)
            spaced = False


def _skip_lines(scanner: Scanner, block: Block) -> bool:
    """Skip to the next entry and keep the comments on the way; return whether there was an empty line."""
    newlines, empty = 0, False
    while True:
        scanner.blank()
        comment = scanner.comment()
        if comment is not None:
            block.dangling.append(comment)
            newlines = 0
        elif scanner.peek() == "\n":
            newlines += 1
            empty |= newlines > 1 and not block.dangling
            scanner.at += 1
        elif scanner.peek() and scanner.peek() in ",;\r\f\v":
            scanner.at += 1
        else:
            return empty


def _read_entry(scanner: Scanner, mode: Mode, level: int) -> Entry | None:
    start = scanner.at
    name = _read_name(scanner, mode)
    if name is None:
        scanner.problem(start, f"{_shown(scanner)} does not belong here", _WANTED[mode])
        _skip_entry(scanner)
        return None
    entry = Entry(name=name, span=scanner.span(start))
    scanner.blank()
    if scanner.peek() == ":":
        scanner.at += 1
        scanner.blank()
        entry.colon = True
        _read_value(scanner, entry, mode)
    elif mode is not Mode.STRUCTURE:
        scanner.problem(scanner.at, f"{_shown(scanner)} does not belong after {name!r}", _WANTED_AFTER[mode])
        _skip_entry(scanner)
        return None
    elif not _read_label(scanner, entry):
        return None
    if scanner.peek() == "{":
        _read_inner(scanner, entry, level)
    scanner.blank()
    if scanner.peek() and scanner.peek() in ",;":
        scanner.at += 1
        scanner.blank()
    entry.trailing = scanner.comment()
    return entry


_WANTED = {
    Mode.STRUCTURE: "the name of a declaration or a setting",
    Mode.FIELDS: "the name of a field",
    Mode.TYPES: "the name of a field",
}
_WANTED_AFTER = {Mode.FIELDS: ": and an expression", Mode.TYPES: ": and a type"}


def _read_name(scanner: Scanner, mode: Mode) -> str | None:
    name = scanner.take(NAME)
    if name is not None or mode is Mode.STRUCTURE or (text := scanner.take(STRING)) is None:
        return name
    try:
        return msgspec.json.decode(text, type=str)
    except msgspec.DecodeError:
        return text[1:-1]


def _read_value(scanner: Scanner, entry: Entry, mode: Mode) -> None:
    headed = mode is Mode.STRUCTURE and entry.name in _HEADS
    start = scanner.at
    text, span = scanner.raw(angles=mode is Mode.TYPES, stop_at_brace=headed)
    if not text:
        scanner.problem(start, f"{entry.name!r} has no value", "a value on the same line")
    entry.value = RawText(text, span)


def _read_label(scanner: Scanner, entry: Entry) -> bool:
    text, span = scanner.raw(stop_at_brace=True)
    if scanner.peek() != "{":
        message, expected = f"{entry.name!r} stands alone here", ": and a value, or a block { }"
        scanner.problems.append(SpecProblem(message=message, expected=expected, line=span.line, column=span.column))
        return False
    if text:
        entry.value = RawText(text, span)
    return True


def _read_inner(scanner: Scanner, entry: Entry, level: int) -> None:
    opening = scanner.at
    if level + 1 > BLOCK_LEVELS:
        scanner.problem(opening, f"blocks are nested too deeply: at most {BLOCK_LEVELS} levels")
        scanner.at = len(scanner.text)
        return
    scanner.at += 1
    scanner.blank()
    comment = scanner.comment()
    entry.block = _read_block(scanner, mode_of(entry), level + 1)
    entry.block.opening = comment
    if scanner.peek() == "}":
        scanner.at += 1
    else:
        scanner.problem(opening, f"the block of {entry.name!r} is not closed", "a }")


def mode_of(entry: Entry) -> Mode:
    if entry.name in _TYPES:
        return Mode.TYPES
    # `command: Entity.Command { … }` runs one, `command Name { … }` declares one.
    if entry.name in _FIELDS or (entry.name == "command" and entry.colon):
        return Mode.FIELDS
    return Mode.STRUCTURE


def _skip_entry(scanner: Scanner) -> None:
    """Skip an unreadable entry: the rest of its line, and a block that starts on it."""
    start = scanner.at
    noted = len(scanner.problems)
    scanner.raw()
    del scanner.problems[noted:]  # the entry has its problem already
    if scanner.at == start:
        scanner.at += 1


def _shown(scanner: Scanner) -> str:
    rest = scanner.text[scanner.at : scanner.at + 30].split("\n")[0].strip()
    return repr(rest) if rest else "the end of the line" if scanner.at < len(scanner.text) else "the end"
