"""Messages that were forgotten for good: their seqs, and which of them the lake has obeyed by deleting its copies.

A message that the server has forgotten is in the lake until the next run of the archive. Until then, readers of the lake leave it out.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import NamedTuple

import msgspec
import numpy as np
import pyarrow as pa

from skep.spark.lake.place import OWN, Place

OBEYED = "forgotten.json"
"""The log of each queue, and the position of the last tombstone that the lake has obeyed."""

RANGES_AT_ONCE = 200_000
"""The most ranges of seqs that a driver holds. Those of a customer may be as many as the messages of that customer."""


class Seqs(NamedTuple):
    """Seqs of one generation of a queue, both ends inclusive."""

    generation: int
    first: int
    last: int


def obeyed(root: Place) -> dict[str, tuple[int, int]]:
    """The log of each queue, and the position of the last tombstone that the lake has obeyed."""
    try:
        return msgspec.json.decode((root / OWN / OBEYED).read_bytes(), type=dict[str, tuple[int, int]])
    except FileNotFoundError:
        return {}


def note_obeyed(root: Place, positions: dict[str, tuple[int, int]]) -> None:
    (root / OWN / OBEYED).write_whole(msgspec.json.encode(positions))


def portions(found: Iterable[tuple[str, Seqs]]) -> Iterator[dict[str, list[Seqs]]]:
    """Ranges of seqs by queue, so many at a time as a driver holds."""
    left = iter(found)
    while some := list(islice(left, RANGES_AT_ONCE)):
        by_queue: dict[str, list[Seqs]] = defaultdict(list)
        for queue, seqs in some:
            by_queue[queue].append(seqs)
        yield dict(by_queue)


def is_forgotten(rows: pa.RecordBatch, seqs: Sequence[Seqs]) -> pa.BooleanArray:
    """Whether each row, with a generation and a seq, is one of some seqs."""
    numbers = rows.column("seq").to_numpy()
    generations = rows.column("generation").to_numpy(zero_copy_only=False)
    found = np.zeros(len(numbers), bool)
    for generation in {one.generation for one in seqs}:
        mine = sorted((one.first, one.last) for one in seqs if one.generation == generation)
        firsts, lasts = np.array([first for first, _ in mine]), np.array([last for _, last in mine])
        place = np.searchsorted(firsts, numbers, side="right") - 1
        found |= (place >= 0) & (numbers <= lasts[np.maximum(place, 0)]) & (generations == generation)
    return pa.array(found)
