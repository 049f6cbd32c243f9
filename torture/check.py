"""Checking a history: all promises that it shows to be broken, and the shortest witness of each."""

from __future__ import annotations

import gc
from itertools import islice

from torture.history import Call, History, Violation
from torture.rules import RULES
from torture.track import Tracks

MOST_PER_RULE = 100
"""A broken store may break a promise for every message; so many are enough to see how."""


def check(history: History) -> list[Violation]:
    """All promises that the history shows to be broken."""
    was_on = gc.isenabled()
    gc.disable()  # millions of objects, none of which is garbage before the end
    try:
        tracks = Tracks(history)
        return [violation for rule in RULES for violation in islice(rule(tracks), MOST_PER_RULE)]
    finally:
        if was_on:
            gc.enable()


def shortest(violations: list[Violation]) -> list[Violation]:
    """For each promise that is broken, the violation that the fewest calls show."""
    found: dict[str, Violation] = {}
    for violation in violations:
        known = found.get(violation.promise)
        if known is None or _size(violation) < _size(known):
            found[violation.promise] = violation
    return [found[promise] for promise in sorted(found, key=lambda name: int(name[1:]))]


def _size(violation: Violation) -> tuple[int, int]:
    return len(violation.witness), max((_span(call) for call in violation.witness), default=0)


def _span(call: Call) -> int:
    return call.last_tick - call.started
