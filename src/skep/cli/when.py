"""Times and positions as they are typed: `2026-01-31T12:00:00Z`, `10m`, `beginning`, a seq.

This module decides what a bare duration means. `instant` reads times that are usually past, such as --since: `10m` is ten
minutes ago. `deadline` reads times to come, such as --deliver-at: `10m` is ten minutes from now. A date means itself in both.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from skep.errors import Code, SkepError

if TYPE_CHECKING:
    from skep.client.queue_calls import Position

_DURATION = re.compile(r"(\d+)([smhd])", re.ASCII)
_UNITS = {"s": 1, "m": 60, "h": 3_600, "d": 86_400}

Since = Annotated[str | None, Parameter(help="Only from this time on: 2026-01-31T12:00:00Z, or 10m, 2h, 1d ago.")]
Until = Annotated[str | None, Parameter(help="Only before this time.")]


def instant(text: str) -> datetime:
    """A time, as a rule a past one; `10m` is ten minutes ago."""
    return _moment(text, ahead=False)


def deadline(text: str) -> datetime:
    """A time to come; `10m` is in ten minutes."""
    return _moment(text, ahead=True)


def duration(text: str) -> timedelta | None:
    """The duration that `90s`, `10m`, `2h` or `1d` says; None for any other text."""
    written = _DURATION.fullmatch(text)
    return None if written is None else timedelta(seconds=int(written[1]) * _UNITS[written[2]])


def length(text: str) -> timedelta:
    """A duration: `10m`, or a number of seconds."""
    try:
        span = duration(text)
        found = timedelta(seconds=float(text)) if span is None else span
        if found < timedelta(0):
            raise ValueError
    except (ValueError, OverflowError):
        raise SkepError(
            Code.INVALID_TIME, f"a delay is written 90s, 10m, 2h, 1d, or as a number of seconds, not {text!r}"
        ) from None
    return found


def position(text: str) -> Position:
    """The position in a log that the text says."""
    if text == "beginning":
        return "beginning"
    if text == "end":
        return "end"
    if text.isascii() and text.isdecimal():
        return int(text)
    try:
        return instant(text)
    except SkepError:
        raise SkepError(
            Code.INVALID_TIME,
            f"a place in a log is beginning, end, a seq, a time such as 2026-01-31T12:00:00Z, or 10m, 2h, 1d ago, not {text!r}",
        ) from None


def _moment(text: str, *, ahead: bool) -> datetime:
    """The time that the text says; a date without an offset is in the time zone of this machine."""
    try:
        if (span := duration(text)) is not None:
            return datetime.now(UTC) + (span if ahead else -span)
        return datetime.fromisoformat(text).astimezone()
    except (ValueError, OverflowError, OSError):
        meant = "from now" if ahead else "ago"
        raise SkepError(
            Code.INVALID_TIME, f"a time is written 2026-01-31T12:00:00Z, or 10m, 2h, 1d {meant}, not {text!r}"
        ) from None
