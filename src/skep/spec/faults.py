"""The error that the small parsers of this package raise: an offset in their text, and the fault there.

It never leaves the package: a caller that knows the text's source turns it into a `Problem` or an error.
"""

from __future__ import annotations


class TextError(Exception):
    """Something at an offset of a small text is wrong."""

    def __init__(self, at: int, message: str, expected: str | None = None) -> None:
        super().__init__(message)
        self.at = at
        self.message = message
        self.expected = expected
