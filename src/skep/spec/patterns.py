r"""Regular expressions, through RE2, and their cost.

RE2 is linear in the text, but not free: compiling `\pL{50}` makes 60,000 instructions, and a search may visit every instruction
for every byte. So the size of the program decides the cost of both. A literal pattern is compiled once, with its expression. A
pattern from a message is compiled for that message: its program must be small, and its highest possible cost is paid before
RE2 sees it. The cost is the same whether or not the pattern is in the cache.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Protocol

import re2
from msgspec import Struct

from skep.spec.faults import TextError
from skep.spec.scope import Scope

PATTERN_CHARACTERS = 1_000
CONSTANT_MEMORY_BYTES = 1 << 20
"""The memory of a literal pattern: a program of some 60,000 instructions."""
MESSAGE_MEMORY_BYTES = 1 << 16
"""The memory of a pattern from a message: RE2 stops at some 4,000 instructions, after a few milliseconds."""
MESSAGE_PROGRAM_SIZE = 4_096
PATTERNS_KEPT = 256

_BASE_UNITS = 60
_CHARACTER_UNITS = 3
_PROPERTY_UNITS = 600
"""For a class like \\pL: it has hundreds of ranges, and RE2 sorts them each time."""
_COUNT_UNITS = 7
"""For each possible repetition of a counted one."""
_INSTRUCTION_UNITS = 3
"""For each instruction; there are two programs, one to read a text forwards, one backwards."""
_SEARCH_BASE_UNITS = 10
_STEPS_SEARCHED = 64
"""How many steps of a search, each one instruction at one byte, a unit pays for."""

_PROPERTY = re.compile(r"\\[pP]")
_COUNT = re.compile(r"\{(\d{0,4}),?(\d{0,4})", re.ASCII)
_TOO_LARGE = "too large"


class _Program(Protocol):
    def search(self, text: bytes) -> object | None: ...


class Pattern(Struct, frozen=True, eq=False):
    """A compiled pattern; ``size`` is the number of its instructions."""

    program: _Program
    size: int

    def occurs_in(self, text: str, scope: Scope) -> bool:
        """Whether it occurs anywhere in a text. The evaluation pays for the search."""
        encoded = text.encode("utf-8", "surrogatepass")
        scope.spend(search_units(self.size, len(encoded)))
        return self.program.search(encoded) is not None


class MessagePattern(Struct, frozen=True, eq=False):
    """A pattern from a message: compiled, or its error. ``units`` is the cost of compiling it."""

    pattern: Pattern | None
    error: str
    units: int


def search_units(size: int, text_bytes: int) -> int:
    """The highest cost of a search with a program of so many instructions in a text of so many bytes."""
    return _SEARCH_BASE_UNITS + size * text_bytes // _STEPS_SEARCHED


def compiled(pattern: str) -> Pattern:
    """Compile a literal pattern; ValueError names its fault."""
    return _compiled(pattern, CONSTANT_MEMORY_BYTES)


def of_message(pattern: str, scope: Scope) -> Pattern:
    """Compile a pattern from a message; the evaluation pays. ValueError names its fault."""
    _check_length(pattern)
    scope.spend(reading_units(pattern))
    found = _of_message(pattern)
    scope.spend(found.units)
    if found.pattern is None:
        raise ValueError(found.error)
    return found.pattern


def reading_units(pattern: str) -> int:
    """The highest cost for RE2 to read a pattern. It follows from the text alone, so that it can be paid beforehand."""
    counts = sum(max(int(least or 0), int(most or 0)) for least, most in _COUNT.findall(pattern))
    properties = len(_PROPERTY.findall(pattern))
    return _BASE_UNITS + _CHARACTER_UNITS * len(pattern) + _PROPERTY_UNITS * properties + _COUNT_UNITS * counts


@lru_cache(PATTERNS_KEPT)
def _of_message(pattern: str) -> MessagePattern:
    """A pattern from a message, cached. Wrong patterns are cached, too, or they would be compiled again and again."""
    try:
        found = _compiled(pattern, MESSAGE_MEMORY_BYTES)
    except ValueError as error:
        size = MESSAGE_PROGRAM_SIZE if _TOO_LARGE in str(error) else 0
        return MessagePattern(None, str(error), _INSTRUCTION_UNITS * size)
    return MessagePattern(found, "", _INSTRUCTION_UNITS * found.size)


def check_pattern(at: int, pattern: str) -> None:
    """Raise a fault when the pattern is wrong."""
    try:
        compiled(pattern)
    except ValueError as error:
        raise TextError(at, f"the pattern is wrong: {error}", "a regular expression of RE2") from None


def _compiled(pattern: str, memory_bytes: int) -> Pattern:
    _check_length(pattern)
    options = re2.Options()
    options.max_mem = memory_bytes
    options.log_errors = False
    options.never_capture = True  # groups are not needed
    try:
        program = re2.compile(pattern, options)
    except (re2.error, UnicodeEncodeError) as error:
        raise ValueError(_reason(error)) from None
    return Pattern(program, program.programsize)


def _check_length(pattern: str) -> None:
    if len(pattern) > PATTERN_CHARACTERS:
        raise ValueError(f"a pattern has at most {PATTERN_CHARACTERS} characters")


def _reason(error: Exception) -> str:
    reason = error.args[0] if error.args else "it cannot be compiled"
    return reason.decode(errors="replace") if isinstance(reason, bytes) else str(reason)
