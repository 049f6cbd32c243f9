"""The firings of a schedule: cron expressions in their time zone, as instants. Pure functions; cronsim handles daylight saving time.

An hour that a zone skips in spring is made up for right after it, one that it has twice in autumn counts once, as in Debian's
cron; an expression with a star for the minute or the hour goes by real time instead.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Protocol
from zoneinfo import ZoneInfo

from cronsim import CronSim

from skep.clock import Instant, seconds

LOOK_BACK_SECONDS = 60.0
LOOK_BACK_FACTOR = 4
LOOK_BACK_SECONDS_MAX = 10 * 366 * 86_400.0

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


class Firings(Protocol):
    """A cron expression in its time zone, such as a schedule."""

    @property
    def cron(self) -> str: ...

    @property
    def timezone(self) -> str: ...


def first_after(firings: Firings, moment: Instant) -> Instant | None:
    """The first firing after a moment; None when there is none for decades."""
    return next(_after(firings, moment), None)


def last_until(firings: Firings, moment: Instant) -> Instant | None:
    """The last firing at or before a moment, within ten years.

    It is found by going forward, so that it is one of those that `first_after` gives: where the clocks change, the way back
    may see others.
    """
    back = LOOK_BACK_SECONDS
    while back <= LOOK_BACK_SECONDS_MAX and seconds(back) <= moment:
        last: Instant | None = None
        for firing in _after(firings, Instant(moment - seconds(back))):
            if firing > moment:
                break
            last = firing
        if last is not None:
            return last
        back *= LOOK_BACK_FACTOR
    return None


def _after(firings: Firings, moment: Instant) -> Iterator[Instant]:
    for found in CronSim(firings.cron, as_datetime(moment).astimezone(ZoneInfo(firings.timezone))):
        firing = Instant((found - _EPOCH) // _MICROSECOND)
        # In the second of two equal hours cronsim names the first one's firings again.
        if firing > moment:
            yield firing


def as_datetime(moment: Instant) -> datetime:
    """An instant for expressions."""
    return _EPOCH + moment * _MICROSECOND
