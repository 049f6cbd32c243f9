"""Figures as text for people."""

from __future__ import annotations

MOST_NAMES = 20


def seconds_text(value: float | None) -> str | None:
    """A duration with a suitable unit; None stays None."""
    return None if value is None else duration(value)


def duration(value: float) -> str:
    """A duration with a suitable unit."""
    if value == 0:
        return "0 s"
    if value < 1:
        return f"{value * 1000:.1f} ms" if value < 0.01 else f"{value * 1000:.0f} ms"
    for most, unit, name in ((120, 1, "s"), (7_200, 60, "min"), (172_800, 3_600, "h")):
        if value < most:
            return f"{value / unit:.1f} {name}"
    return f"{value / 86_400:.1f} d"


def names_text(names: list[str]) -> str:
    """Some names, and how many more there are."""
    if len(names) <= MOST_NAMES:
        return ", ".join(names) or "none"
    return f"{', '.join(names[:MOST_NAMES])} and {len(names) - MOST_NAMES:,} more"
