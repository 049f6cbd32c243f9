"""The needed parts of a log, merged to a few reads."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise
from typing import NamedTuple


class Stretch(NamedTuple):
    """Some seqs, both ends inclusive."""

    first: int
    last: int


def merged(wanted: Iterable[Stretch], held: Stretch, most: int) -> list[Stretch]:
    """The wanted parts of a log, in order and without overlaps, at most so many.

    Where there would be more, parts with the smallest gaps between them are joined.
    """
    joined: list[Stretch] = []
    for one in sorted(wanted):
        part = Stretch(max(one.first, held.first), min(one.last, held.last))
        if part.first > part.last:
            continue
        if joined and part.first <= joined[-1].last + 1:
            joined[-1] = Stretch(joined[-1].first, max(joined[-1].last, part.last))
        else:
            joined.append(part)
    gaps = sorted(range(1, len(joined)), key=lambda place: joined[place].first - joined[place - 1].last, reverse=True)
    cuts = [0, *sorted(gaps[: most - 1]), len(joined)]
    return [Stretch(joined[low].first, joined[high - 1].last) for low, high in pairwise(cuts) if low < high]
