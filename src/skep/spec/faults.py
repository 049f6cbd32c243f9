"""What the small parsers of this package raise at each other: an offset in their text, and what is wrong there.

It never leaves the package: whoever knows where the text came from turns it into a `Problem` or an error for the caller.
"""

from __future__ import annotations


class TextError(Exception):
    """Something at an offset of a small text is wrong."""

    def __init__(self, at: int, message: str, expected: str | None = None) -> None:
        super().__init__(message)
        self.at = at
        self.message = message
        self.expected = expected
