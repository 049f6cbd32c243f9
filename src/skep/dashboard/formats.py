"""Numbers, durations and times as people read them: short, of one width, with their unit."""

from __future__ import annotations

from datetime import UTC, datetime

from skep.clock import MICROS_PER_SECOND, Instant
from skep.dashboard.filters import quoted
from skep.model.consumer import consumer_of

_MINUTE, _HOUR, _DAY = 60, 3_600, 86_400
_BYTES = ("B", "KiB", "MiB", "GiB", "TiB")
_LARGE = ((1_000_000_000, "G"), (1_000_000, "M"), (10_000, "k"))
NOTHING = "\N{EN DASH}"


def count(value: int) -> str:
    """A whole number with its thousands apart."""
    return f"{value:,}"


def short(value: float) -> str:
    """A large number in a few characters: 12.3k, 4.56M."""
    for size, letter in _LARGE:
        if value >= size:
            scaled = value / (1_000 if letter == "k" else size)
            return f"{scaled:.{2 if scaled < 10 else 1 if scaled < 100 else 0}f}{letter}"
    return f"{value:,.0f}"


def rate(value: float) -> str:
    """A rate per second. A very small rate is still shown as more than zero."""
    if value <= 0:
        return "0"
    if value < 0.1:
        return "<0.1"
    return f"{value:.1f}" if value < 100 else short(value)


def duration(seconds: float | None) -> str:
    """A stretch of time in its two largest units."""
    if seconds is None:
        return NOTHING
    if seconds < 0.9995:
        return f"{max(0.0, seconds) * 1000:.0f} ms"
    if seconds < 9.95:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < _MINUTE:
        return f"{whole} s"
    if whole < _HOUR:
        return f"{whole // _MINUTE} m {whole % _MINUTE:02} s"
    if whole < _DAY:
        return f"{whole // _HOUR} h {whole % _HOUR // _MINUTE:02} m"
    return f"{whole // _DAY} d {whole % _DAY // _HOUR:02} h"


def age(seconds: float) -> str:
    """How long something has waited; nothing waits when it is 0."""
    return NOTHING if seconds <= 0 else "<1 s" if seconds < 1 else duration(seconds)


def coarse(seconds: float) -> str:
    """How long something has waited, in one unit: for a figure in a card."""
    return NOTHING if seconds <= 0 else "<1 s" if seconds < 1 else ago(seconds).removesuffix(" ago")


def ago(seconds: float) -> str:
    """How long ago something was, rounded to one unit."""
    whole = int(seconds)
    if whole < 1:
        return "just now"
    for unit, letter in ((_DAY, "d"), (_HOUR, "h"), (_MINUTE, "m")):
        if whole >= unit * 2 or (whole >= unit and letter == "m"):
            return f"{whole // unit} {letter} ago"
    return f"{whole} s ago"


def reason(value: str) -> str:
    """Why a message was given up, in words."""
    return {
        "max_attempts": "attempts exhausted",
        "rejected": "rejected",
        "expired": "expired",
        "invalid": "invalid",
    }.get(value, value)


def size(value: int) -> str:
    """Bytes in the unit that fits."""
    scaled = float(value)
    for unit in _BYTES[:-1]:
        if scaled < 1024:
            return f"{scaled:.0f} {unit}" if unit == "B" else f"{scaled:.1f} {unit}"
        scaled /= 1024
    return f"{scaled:.1f} {_BYTES[-1]}"


def consumer(kept: str | None) -> str:
    """A consumer in a few words: its name, its host and its process."""
    if kept is None:
        return NOTHING
    who = consumer_of(kept)
    place = ":".join(part for part in (who.host, who.pid) if part)
    return "@".join(part for part in (who.name, place) if part) or NOTHING


def version(kept: str | None) -> str:
    """The version of the client that holds something."""
    return (kept and consumer_of(kept).version) or NOTHING


def iso(at: Instant) -> str:
    """An instant as machines read it."""
    return datetime.fromtimestamp(at / MICROS_PER_SECOND, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def clock_time(at: Instant) -> str:
    """An instant as people read it, in UTC."""
    return datetime.fromtimestamp(at / MICROS_PER_SECOND, UTC).strftime("%Y-%m-%d %H:%M:%S")


def share(value: float) -> str:
    """A part of the whole in percent."""
    return f"{value * 100:.0f}%"


def setting(value: object) -> str:
    """A setting as one writes it: a whole number of seconds without a point."""
    return f"{value:.15g}" if isinstance(value, float) else str(value)


FILTERS = {
    "ago": ago, "coarse": coarse, "reason": reason,
    "setting": setting, "consumer": consumer, "version": version,
    "quoted": quoted,
    "count": count, "short": short, "rate": rate, "duration": duration, "age": age, "size": size, "iso": iso,
    "clock_time": clock_time, "share": share,
}  # fmt: skip
