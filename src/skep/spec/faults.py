"""The error of the small parsers in this package: a fault at an offset of their text.

It never leaves the package: callers that know the source of the text turn it into a `Problem` or an error.
"""

from __future__ import annotations


class TextError(Exception):
    """A fault at an offset of a small text."""

    def __init__(self, at: int, message: str, expected: str | None = None) -> None:
        super().__init__(message)
        self.at = at
        self.message = message
        self.expected = expected
