"""Times and durations in expressions: RFC 3339 and Go-like spellings, to the microsecond, always in UTC; and time zones.

Finer times are refused: neither `datetime` nor a Spark timestamp can hold them, and two different times would be equal. A
duration is at most ten thousand years, as in CEL; a time lies in the years 1 to 9999. The difference of two times is at most 64 bits
of nanoseconds (292 years), also as in CEL.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from functools import lru_cache
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

TIMES_KEPT = 4_096
"""The size of the caches of times: the mapping, the events and the state of a message read and write the same times."""
ZONES_KEPT = 256
DURATION_MAX = timedelta(seconds=315_576_000_000)
DIFFERENCE_MAX = timedelta(microseconds=(2**63 - 1) // 1_000)
TOO_FINE = "finer than a microsecond, which is the finest that is kept"

_TIME = re.compile(
    r"(\d{4}-\d{2}-\d{2})[Tt ](\d{2}:\d{2}:\d{2})(?:\.(\d{1,9}))?([Zz]|[+-]\d{2}:\d{2})", re.ASCII
)  # fmt: skip
_DURATION = re.compile(r"([+-]?)((?:\d{1,15}(?:\.\d{1,15})?(?:ns|us|ms|h|m|s))+|0)", re.ASCII)
_PART = re.compile(r"(\d+)(?:\.(\d+))?(ns|us|ms|h|m|s)", re.ASCII)
_OFFSET = re.compile(r"([+-]?)([01]\d|2[0-3]):([0-5]\d)", re.ASCII)
_ZONE = re.compile(r"(?!(?:posix|right)/|localtime|posixrules|Factory)[A-Za-z][A-Za-z0-9_+/-]{0,63}", re.ASCII)
"""A name of the IANA database. The other names of a system's folder mean something else on each machine, or count leap seconds."""
_UNIT_NANOSECONDS = {
    "h": 3_600_000_000_000,
    "m": 60_000_000_000,
    "s": 1_000_000_000,
    "ms": 1_000_000,
    "us": 1_000,
    "ns": 1,
}


@lru_cache(maxsize=TIMES_KEPT)
def parse_time(text: str) -> datetime:
    """An RFC 3339 time, in UTC; raises ValueError."""
    match = _TIME.fullmatch(text)
    if match is None:
        raise ValueError("not a time like 2026-01-31T12:00:00Z")
    day, clock, fraction, zone = match.groups()
    micros, finer = (fraction or "0")[:6].ljust(6, "0"), (fraction or "")[6:]
    if finer.strip("0"):
        raise ValueError(TOO_FINE)
    offset = "+00:00" if zone in "Zz" else zone
    try:
        return datetime.fromisoformat(f"{day}T{clock}.{micros}{offset}").astimezone(UTC)
    except (ValueError, OverflowError):
        raise ValueError("not a time that there is") from None


@lru_cache(maxsize=TIMES_KEPT)
def print_time(value: datetime) -> str:
    """RFC 3339 in UTC, with none, three or six digits of the second's fraction."""
    text = value.astimezone(UTC).replace(tzinfo=None, microsecond=0).isoformat()
    return f"{text}{_fraction(value.microsecond)}Z"


def parse_duration(text: str) -> timedelta:
    """A duration like 1h30m, 1.5s or -250ms; raises ValueError."""
    match = _DURATION.fullmatch(text)
    if match is None:
        raise ValueError("not a duration like 1h30m, 1.5s or -250ms")
    nanoseconds = sum(_part(*part.groups()) for part in _PART.finditer(match[2]))
    microseconds, finer = divmod(nanoseconds, 1000)
    if finer:
        raise ValueError(TOO_FINE)
    if microseconds > DURATION_MAX // timedelta(microseconds=1):
        raise ValueError("longer than ten thousand years")
    duration = timedelta(microseconds=microseconds)
    return -duration if match[1] == "-" else duration


def print_duration(value: timedelta) -> str:
    """Seconds, with none, three or six digits after the point: 5400s, 1.500s."""
    micros = value // timedelta(microseconds=1)
    sign, micros = ("-", -micros) if micros < 0 else ("", micros)
    return f"{sign}{micros // 1_000_000}{_fraction(micros % 1_000_000)}s"


@lru_cache(maxsize=ZONES_KEPT)
def parse_zone(text: str) -> tzinfo:
    """A time zone: UTC, a name of the IANA database, or an offset like +02:00 or 02:00; raises ValueError."""
    if (offset := _OFFSET.fullmatch(text)) is not None:
        length = timedelta(hours=int(offset[2]), minutes=int(offset[3]))
        return timezone(-length if offset[1] == "-" else length)
    if text == "UTC":
        return UTC
    if _ZONE.fullmatch(text):
        try:
            return ZoneInfo(text)
        except (ZoneInfoNotFoundError, ValueError, OSError):
            pass
    raise ValueError("no time zone like Europe/Berlin or +02:00")


def _part(whole: str, fraction: str | None, unit: str) -> int:
    scale = _UNIT_NANOSECONDS[unit]
    part, finer = divmod(int(fraction) * scale, 10 ** len(fraction)) if fraction else (0, 0)
    if finer:
        raise ValueError(TOO_FINE)
    return int(whole) * scale + part


def _fraction(micros: int) -> str:
    if not micros:
        return ""
    return f".{micros // 1000:03}" if micros % 1000 == 0 else f".{micros:06}"
