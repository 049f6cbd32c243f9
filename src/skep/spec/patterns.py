"""Regular expressions, through RE2: their time is linear in the text and their memory bounded, whatever the pattern is."""

from __future__ import annotations

from functools import lru_cache
from typing import Protocol, cast

import re2

from skep.spec.faults import TextError

PATTERN_CHARACTERS = 1_000
PATTERN_MEMORY_BYTES = 1 << 20
PATTERNS_KEPT = 256


class Pattern(Protocol):
    """A compiled pattern."""

    def search(self, text: str) -> object | None:
        """Something when it occurs anywhere in the text."""


@lru_cache(PATTERNS_KEPT)
def compiled(pattern: str) -> Pattern:
    """A pattern ready to use; raises ValueError with what is wrong with it."""
    if len(pattern) > PATTERN_CHARACTERS:
        raise ValueError(f"a pattern has at most {PATTERN_CHARACTERS} characters")
    options = re2.Options()
    options.max_mem = PATTERN_MEMORY_BYTES
    options.log_errors = False
    try:
        return cast(Pattern, re2.compile(pattern, options))
    except re2.error as error:
        raise ValueError(_reason(error)) from None


def check_pattern(at: int, pattern: str) -> None:
    """A fault when the pattern is wrong."""
    try:
        compiled(pattern)
    except ValueError as error:
        raise TextError(at, f"the pattern is wrong: {error}", "a regular expression of RE2") from None


def _reason(error: Exception) -> str:
    reason = error.args[0] if error.args else "it cannot be compiled"
    return reason.decode(errors="replace") if isinstance(reason, bytes) else str(reason)
