"""Instants on the wire: RFC 3339 in UTC with microseconds."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from skep.clock import Instant
from skep.errors import Code, SkepError

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


def to_datetime(instant: int) -> datetime:
    """The instant as a date and time."""
    return EPOCH + timedelta(0, 0, instant)  # positional arguments take two thirds of the time


def to_instant(value: datetime) -> Instant:
    """The instant of a date and time; INVALID_TIME when it has no offset from UTC."""
    if value.tzinfo is None:
        raise SkepError(Code.INVALID_TIME, "a time says its offset from UTC, like 2026-01-31T12:00:00Z")
    return Instant((value - EPOCH) // _MICROSECOND)
