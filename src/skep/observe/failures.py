"""Calls that were refused or failed within the last minute: counted second by second, never extrapolated.

Only failures are counted here, so that a successful call pays nothing. Memory is bounded: a number of seconds, and in each second a
number of pairs of tenant and code. Failures beyond the bound count for the server as a whole, and for no tenant.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from skep.clock import MICROS_PER_SECOND, Instant

WINDOW_SECONDS = 60
PAIRS_PER_SECOND = 200
OTHER_TENANTS = ""
"""Stands for the tenants beyond the bound. No tenant has this name."""

Noted = tuple[int, str, str, int]
"""A second, a tenant, a code, and the number of calls."""


class Failures:
    """The calls that failed in each of the last seconds, by tenant and code."""

    def __init__(self) -> None:
        self._by_second: dict[int, Counter[tuple[str, str]]] = {}

    def add(self, now: Instant, tenant: str, code: str) -> None:
        """Count a call."""
        self._count(now // MICROS_PER_SECOND, tenant, code, 1)
        self._forget(now // MICROS_PER_SECOND)

    def merge(self, noted: Iterable[Noted]) -> None:
        """Add the counts of another process."""
        for second, tenant, code, calls in noted:
            self._count(second, tenant, code, calls)
        if self._by_second:
            self._forget(max(self._by_second))

    def notes(self) -> list[Noted]:
        """The counts, for another process."""
        return [(at, *pair, calls) for at, counts in self._by_second.items() for pair, calls in counts.items()]

    def lately(self, now: Instant, tenant: str | None = None) -> list[tuple[str, int]]:
        """The codes of the last minute and their numbers of calls, the most frequent first; of one tenant, or of all."""
        first = now // MICROS_PER_SECOND - WINDOW_SECONDS
        found: Counter[str] = Counter()
        for second, counts in self._by_second.items():
            if second > first:
                for (whose, code), calls in counts.items():
                    if tenant is None or whose == tenant:
                        found[code] += calls
        return sorted(found.items(), key=lambda one: (-one[1], one[0]))

    def _count(self, second: int, tenant: str, code: str, calls: int) -> None:
        counts = self._by_second.setdefault(second, Counter())
        pair = (tenant, code)
        if pair not in counts and len(counts) >= PAIRS_PER_SECOND:
            pair = (OTHER_TENANTS, code)
        counts[pair] += calls

    def _forget(self, second: int) -> None:
        """Drop counts that are older than the window, and counts from the future of a clock that was put back."""
        for old in [one for one in self._by_second if not second - WINDOW_SECONDS <= one <= second + WINDOW_SECONDS]:
            del self._by_second[old]
