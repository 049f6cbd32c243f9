"""Pages: every list is bounded and goes on after the key of its last row."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from skep.errors import Code, SkepError
from skep.http.request import parameters
from skep.http.request.route import Parameter

Row = TypeVar("Row")
Key = TypeVar("Key")

PAGE = 100
PAGE_MAX = 1_000
"""Rows of one page. Each may need a look-up of its own, so a page is shorter than the engine would allow."""

LIMIT = Parameter("limit", int, f"rows of one page, 1 to {PAGE_MAX}; {PAGE} by default")
AFTER_NAME = Parameter("after", str, "where the page starts: the ``after`` of the page before")
AFTER_SEQ = Parameter("after", int, AFTER_NAME.description)


def page_limit(query: dict[str, str]) -> int:
    """How many rows the page may have."""
    limit = parameters.whole(query, "limit", PAGE)
    if not 1 <= limit <= PAGE_MAX:
        raise SkepError(Code.INVALID_REQUEST, f"limit must be from 1 to {PAGE_MAX}", value=limit)
    return limit


def next_after(rows: Sequence[Row], limit: int, key: Callable[[Row], Key]) -> Key | None:
    """The key after which the next page starts; None after a page that was not full."""
    return key(rows[-1]) if len(rows) == limit else None
