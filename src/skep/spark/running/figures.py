"""How figures are written where people read them."""

from __future__ import annotations


def seconds_text(value: float | None) -> str | None:
    """A duration, with a unit that suits it."""
    if value is None:
        return None
    if value < 1:
        return f"{value * 1000:.0f} ms"
    return f"{value:.1f} s" if value < 120 else f"{value / 60:.1f} min"
