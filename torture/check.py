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


def occasions(history: History) -> dict[str, int]:
    """How often each promise was put to the test: a promise with none was kept only because nobody asked for it."""
    answered = [pushed for pushed in history.pushes if pushed.is_stored]
    again = sum(given.delivery.attempt > 1 for given in history.gives)
    looks = sum(len(stats.groups) for _, stats in history.stats)
    copies = sum(len(call.answer or ()) for call in history.verb("copies"))
    return {
        "I1": (len(answered) if history.logs else 0) + copies,
        "I2": len(history.gives) + copies,
        "I3": sum(pushed.message.transaction_id is not None for pushed in history.pushes) + copies,
        "I4": sum(history.is_ordered(given.delivery.queue) for given in history.gives) + copies,
        "I5": len(history.gives_under),
        "I6": len(history.settles),
        "I7": sum(settled.is_final for settled in history.settles),
        "I8": looks,
        "I9": again,
        "I10": again,
        "I11": sum(len(letters) for letters in history.dead_letters.values()),
        "I12": looks,
        "I13": sum(pushed.call.verb == "accept" for pushed in history.pushes),
        "I14": sum(len(call.answer or ()) for call in history.verb("replay")),
        "I15": sum(call.ended is None and call.verb in ("push", "transact") for call in history.calls)
        + sum(len(causes) for call in history.verb("effects") for causes in (call.answer or {}).values()),
    }


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
