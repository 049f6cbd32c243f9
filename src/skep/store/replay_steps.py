"""Bounded steps of a replay or purge through a dead-letter queue; the next step goes on where the last one ended."""

from __future__ import annotations

from skep.model import DeadLetterFilter, Seq

LOOKED_PER_STEP = 1_000
"""How many letters one step looks at, whether they match or not."""


def span(wanted: DeadLetterFilter, after: Seq | None, until: int) -> tuple[int, int]:
    """The first and the last seq that can match beyond ``after``, up to ``until``."""
    first, last = (after or 0) + 1, until if wanted.up_to is None else min(until, wanted.up_to)
    if wanted.seqs is not None:
        first, last = max(first, min(wanted.seqs, default=1)), min(last, max(wanted.seqs, default=0))
    return first, last
