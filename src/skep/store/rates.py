"""Rates: the growth of a counter over the last minute, from the samples around the beginning of that minute."""

from __future__ import annotations

from skep.clock import MICROS_PER_SECOND, Instant, seconds
from skep.store.rules import RATE_SECONDS

Sample = tuple[int, int]
"""The time of a sample, and the value of the counter."""


def rates_since(now: Instant) -> Instant:
    """The beginning of the last minute."""
    return Instant(now - seconds(RATE_SECONDS))


def rate(value: int, now: Instant, before: Sample | None, after: Sample | None) -> float:
    """Growth per second since the minute began, or since the first sample if there is none before the minute.

    ``before`` is the newest sample up to the beginning, ``after`` the first one past it. Between the two, growth is interpolated.
    Without ``after``, the counter had not changed since ``before``.
    """
    since = rates_since(now)
    if before is None:
        if after is None or after[0] >= now:
            return 0.0
        since, began = Instant(after[0]), float(after[1])
    elif after is None:
        began = before[1]
    else:
        share = (since - before[0]) / max(1, after[0] - before[0])
        began = before[1] + (after[1] - before[1]) * share
    return max(0.0, value - began) * MICROS_PER_SECOND / (now - since)
