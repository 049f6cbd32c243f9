"""Read the parameters of a query, with a clear error for each invalid value."""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime
from enum import StrEnum
from typing import TypeVar, get_args

import msgspec

from skep.clock import Instant
from skep.errors import Code, SkepError
from skep.model import SealedPayloads
from skep.wire.times import to_instant

E = TypeVar("E", bound=StrEnum)

POSITION_MAX = 2**63 - 1
POSITION_PATTERN = f"[0-9]{{1,{len(str(POSITION_MAX)) - 1}}}"
"""A number of at most this many digits always fits a position."""
SECONDS_MAX = 100 * 365 * 86_400
PREVIEW_BYTES_MAX = 64 * 1_024
COMPRESSIONS = ("none", "lz4", "zstd")
SEALED: tuple[SealedPayloads, ...] = get_args(SealedPayloads)

_TRUE = frozenset({"true", "1", "yes"})
_FALSE = frozenset({"false", "0", "no"})


def check_known(query: dict[str, str], known: Collection[str]) -> None:
    """Refuse a parameter that the route does not have: a misspelt one would be silently without effect."""
    for name in query:
        if name not in known:
            there = f"there are {', '.join(sorted(known))}" if known else "this route takes none"
            raise SkepError(Code.INVALID_REQUEST, f"there is no parameter {name[:100]!r} here; {there}")


def whole(query: dict[str, str], name: str, default: int) -> int:
    """A whole number."""
    text = query.get(name)
    if text is None:
        return default
    try:
        if len(text) > 20 or not text.isascii():
            raise ValueError
        return int(text)
    except ValueError:
        raise _unfit(name, text, "a whole number") from None


def position(query: dict[str, str], name: str) -> int | None:
    """A seq or another position in a history, or None when it is not given."""
    if name not in query:
        return None
    value = whole(query, name, 0)
    if not 0 <= value <= POSITION_MAX:
        raise _unfit(name, query[name], f"from 0 to {POSITION_MAX}")
    return value


def count(query: dict[str, str], name: str, default: int) -> int:
    """How many of something are wanted at most: one or more."""
    value = whole(query, name, default)
    if not 1 <= value <= POSITION_MAX:
        raise _unfit(name, query[name], f"from 1 to {POSITION_MAX}")
    return value


def duration_seconds(query: dict[str, str], name: str) -> float | None:
    """A stretch of time, or None when it is not given."""
    value = number(query, name)
    if value is not None and not 0 <= value <= SECONDS_MAX:  # NaN is within nothing
        raise _unfit(name, query[name], f"a number of seconds from 0 to {SECONDS_MAX}")
    return value


def needed(query: dict[str, str], name: str) -> str:
    """A text that must be given."""
    text = query.get(name)
    if text is None:
        raise SkepError(Code.INVALID_REQUEST, f"the parameter {name} is missing")
    return text


def number(query: dict[str, str], name: str) -> float | None:
    """A number, or None when it is not given."""
    text = query.get(name)
    if text is None:
        return None
    try:
        return msgspec.convert(text, float, strict=False)
    except msgspec.ValidationError:
        raise _unfit(name, text, "a number") from None


def flag(query: dict[str, str], name: str) -> bool:
    """Yes or no; no when it is not given."""
    text = query.get(name, "false").lower()
    if text in _TRUE:
        return True
    if text in _FALSE:
        return False
    raise _unfit(name, text, "true or false")


def sealed(query: dict[str, str]) -> SealedPayloads:
    """How payloads of an encrypted queue are wanted: opened, when it is not given."""
    text = query.get("sealed", "open")
    for known in SEALED:
        if text == known:
            return known
    raise _unfit("sealed", text, ", ".join(SEALED))


def time(query: dict[str, str], name: str) -> Instant | None:
    """An instant, or None when it is not given."""
    text = query.get(name)
    if text is None:
        return None
    try:
        return to_instant(msgspec.convert(text, datetime))
    except msgspec.ValidationError:
        raise _unfit(name, text, "a time like 2026-01-31T12:00:00Z") from None


def choice(query: dict[str, str], name: str, kind: type[E]) -> E | None:
    """One of an enumeration's values, or None when it is not given."""
    text = query.get(name)
    if text is None:
        return None
    try:
        return kind(text)
    except ValueError:
        raise _unfit(name, text, f"one of {', '.join(kind)}") from None


def _unfit(name: str, text: str, wanted: str) -> SkepError:
    return SkepError(Code.INVALID_REQUEST, f"{name} must be {wanted}, not {text[:100]!r}")
