"""Times and positions as they are typed: `2026-01-31T12:00:00Z`, `10m` (ago), `beginning`, a seq."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Annotated, Literal

from cyclopts import Parameter

from skep.errors import Code, SkepError

_AGO = re.compile(r"(\d+)([smhd])")
_UNITS = {"s": 1, "m": 60, "h": 3_600, "d": 86_400}

Since = Annotated[str | None, Parameter(help="Only from this time on: 2026-01-31T12:00:00Z, or 10m, 2h, 1d ago.")]
Until = Annotated[str | None, Parameter(help="Only before this time.")]


def instant(text: str) -> datetime:
    """The time that is meant; one without an offset is that of this machine."""
    try:
        if (ago := _AGO.fullmatch(text)) is not None:
            return datetime.now(UTC) - timedelta(seconds=int(ago[1]) * _UNITS[ago[2]])
        return datetime.fromisoformat(text).astimezone()
    except (ValueError, OverflowError, OSError):
        raise SkepError(
            Code.INVALID_TIME, f"a time is written 2026-01-31T12:00:00Z, or 10m, 2h, 1d for so long ago, not {text!r}"
        ) from None


def position(text: str) -> Literal["beginning", "end"] | datetime | int:
    """The place in a log that is meant."""
    if text == "beginning":
        return "beginning"
    if text == "end":
        return "end"
    return int(text) if text.isascii() and text.isdecimal() else instant(text)
