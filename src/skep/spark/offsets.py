"""Offsets: one number per queue, the last seq that was read; 0 is the beginning. And how a range is split into tasks.

So an offset has the meaning of a group's progress, the lag is the last seq minus the offset, and a range from one offset to another
holds the seqs after the first up to the second. What Spark keeps in a checkpoint also says which log each number is of.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from itertools import pairwise
from math import ceil
from typing import Any

from msgspec import Struct

ROWS_WORTH_A_TASK = 20_000
"""Fewer rows than this are not worth a task of their own: it costs some ten milliseconds."""
ROWS_OF_A_TASK = 1_000_000
"""More rows than this are too much to do again when a task fails."""

ROWS_WORTH_A_QUEUE = 500
"""To ask the server for one more queue takes about as long as so many rows."""

LOGS = "."
"""Beside the queues of an offset, none of which can have this name: by queue, the log that its number is of."""

Offsets = dict[str, int]


class Stretch(Struct, frozen=True):
    """Seqs of one queue, both ends inclusive."""

    queue: str
    first: int
    last: int

    def __len__(self) -> int:
        return max(0, self.last - self.first + 1)


def in_order(offsets: Mapping[str, int]) -> Offsets:
    """Sorted by queue: Spark compares offsets as texts."""
    return {queue: offsets[queue] for queue in sorted(offsets)}


def noted(offsets: Mapping[str, int], logs: Mapping[str, int]) -> dict[str, Any]:
    """Offsets as a checkpoint keeps them: a queue that is made anew begins at 1 again, and must not be taken for the old one."""
    return {**in_order(offsets), LOGS: in_order({queue: logs[queue] for queue in offsets if queue in logs})}


def parted(kept: Mapping[str, Any]) -> tuple[Offsets, Offsets]:
    """What a checkpoint kept: the offsets, and the logs they are of, where it is known."""
    return {queue: offset for queue, offset in kept.items() if queue != LOGS}, kept.get(LOGS, {})


def stretches(start: Mapping[str, int], end: Mapping[str, int]) -> list[Stretch]:
    """What lies between two offsets, queue by queue. A queue that starts nowhere is new and read from its beginning."""
    found = [Stretch(queue, start.get(queue, 0) + 1, last) for queue, last in sorted(end.items())]
    return [stretch for stretch in found if len(stretch)]


def split(whole: list[Stretch], at_least: int | None, cores: int | None = None) -> list[Stretch]:
    """The same seqs in even portions, in order: as many as are worth while for so many cores, or as are asked for."""
    rows = sum(map(len, whole))
    if not rows:
        return []
    if at_least is None:
        at_least = min(cores or os.cpu_count() or 1, ceil(rows / ROWS_WORTH_A_TASK))
    count = max(at_least, ceil(rows / ROWS_OF_A_TASK))
    return [part for stretch in whole for part in _cut(stretch, max(1, round(count * len(stretch) / rows)))]


def packed(parts: list[Stretch], at_least: int | None, cores: int | None = None) -> list[list[Stretch]]:
    """What each task reads: parts in their order, small ones together, so that thousands of small queues are a few tasks."""
    weights = [len(part) + ROWS_WORTH_A_QUEUE for part in parts]
    total = sum(weights)
    if at_least is None:
        at_least = min(cores or os.cpu_count() or 1, ceil(total / ROWS_WORTH_A_TASK))
    count = max(at_least, ceil(sum(map(len, parts)) / ROWS_OF_A_TASK))
    if len(parts) <= count:
        return [[part] for part in parts]
    tasks: list[list[Stretch]] = [[] for _ in range(count)]
    before = 0
    for part, weight in zip(parts, weights, strict=True):
        # By where its middle lies, so that equal parts go to tasks of their own.
        tasks[(2 * before + weight) * count // (2 * total)].append(part)
        before += weight
    return [task for task in tasks if task]


def _cut(stretch: Stretch, count: int) -> list[Stretch]:
    count = min(count, len(stretch))
    ends = [stretch.first - 1 + len(stretch) * number // count for number in range(count + 1)]
    return [Stretch(stretch.queue, low + 1, high) for low, high in pairwise(ends)]


def shares(wanted: Mapping[str, int], most: int) -> Offsets:
    """How much each queue gets when there is less than all want: in proportion, and together no more than there is."""
    total = sum(wanted.values())
    if total <= most:
        return dict(wanted)
    given = {queue: most * amount // total for queue, amount in wanted.items()}
    left = most - sum(given.values())
    # What rounding left goes to those who want most, so that none of many small ones waits for ever.
    for queue in sorted(wanted, key=lambda queue: (given[queue], -wanted[queue], queue)):
        if left and given[queue] < wanted[queue]:
            given[queue] += 1
            left -= 1
    return given
