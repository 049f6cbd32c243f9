"""Spark's offsets, one number per queue: the last seq that was read, or 0 before the first. And how a range is split into tasks.

An offset means the same as a group's progress. The lag is the last seq minus the offset. A range from one offset to another holds the
seqs after the first offset, up to and including the second. A checkpoint also keeps which log each number belongs to.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from itertools import pairwise
from math import ceil
from typing import Any

from msgspec import Struct

ROWS_WORTH_A_TASK = 20_000
"""Fewer rows than this get no task of their own: a task costs some ten milliseconds."""
ROWS_OF_A_TASK = 1_000_000
"""About the most rows of one task: a failed task is done again from its start."""

ROWS_WORTH_A_QUEUE = 500
"""The cost of asking the server for one more queue, as a number of rows."""

LOGS = "."
"""The key in an offset that holds the log of each queue's number. No queue can have this name."""

Offsets = dict[str, int]


class QueueStretch(Struct, frozen=True):
    """Seqs of one queue, both ends inclusive."""

    queue: str
    first: int
    last: int

    def __len__(self) -> int:
        return max(0, self.last - self.first + 1)


def in_order(offsets: Mapping[str, int]) -> Offsets:
    """Offsets sorted by queue: Spark compares offsets as text."""
    return {queue: offsets[queue] for queue in sorted(offsets)}


def noted(offsets: Mapping[str, int], logs: Mapping[str, int]) -> dict[str, Any]:
    """Offsets as a checkpoint keeps them, with their logs: a queue that was deleted and made anew begins at 1 again."""
    return {**in_order(offsets), LOGS: in_order({queue: logs[queue] for queue in offsets if queue in logs})}


def parted(kept: Mapping[str, Any]) -> tuple[Offsets, Offsets]:
    """The offsets that a checkpoint kept, and the logs they belong to, where these are known."""
    return {queue: offset for queue, offset in kept.items() if queue != LOGS}, kept.get(LOGS, {})


def stretches(start: Mapping[str, int], end: Mapping[str, int]) -> list[QueueStretch]:
    """The seqs between two offsets, queue by queue. A queue without a start is read from seq 1."""
    found = [QueueStretch(queue, start.get(queue, 0) + 1, last) for queue, last in sorted(end.items())]
    return [stretch for stretch in found if len(stretch)]


def split(whole: list[QueueStretch], at_least: int | None, cores: int | None = None) -> list[QueueStretch]:
    """Cut stretches into even parts, in order: about one for each core if there are enough rows, or as many as are asked for."""
    rows = sum(map(len, whole))
    if not rows:
        return []
    if at_least is None:
        at_least = min(cores or os.cpu_count() or 1, ceil(rows / ROWS_WORTH_A_TASK))
    count = max(at_least, ceil(rows / ROWS_OF_A_TASK))
    return [part for stretch in whole for part in _cut(stretch, max(1, round(count * len(stretch) / rows)))]


def packed(parts: list[QueueStretch], at_least: int | None, cores: int | None = None) -> list[list[QueueStretch]]:
    """The parts of each task, in order. Small parts share a task, so that thousands of small queues make a few tasks."""
    weights = [len(part) + ROWS_WORTH_A_QUEUE for part in parts]
    total = sum(weights)
    if at_least is None:
        at_least = min(cores or os.cpu_count() or 1, ceil(total / ROWS_WORTH_A_TASK))
    count = max(at_least, ceil(sum(map(len, parts)) / ROWS_OF_A_TASK))
    if len(parts) <= count:
        return [[part] for part in parts]
    tasks: list[list[QueueStretch]] = [[] for _ in range(count)]
    before = 0
    for part, weight in zip(parts, weights, strict=True):
        # The middle of a part decides, so that parts of equal size get tasks of their own.
        tasks[(2 * before + weight) * count // (2 * total)].append(part)
        before += weight
    return [task for task in tasks if task]


def _cut(stretch: QueueStretch, count: int) -> list[QueueStretch]:
    count = min(count, len(stretch))
    ends = [stretch.first - 1 + len(stretch) * number // count for number in range(count + 1)]
    return [QueueStretch(stretch.queue, low + 1, high) for low, high in pairwise(ends)]


def shares(wanted: Mapping[str, int], most: int) -> Offsets:
    """Divide ``most`` rows among queues in proportion to what they have; all rows when that is enough."""
    total = sum(wanted.values())
    if total <= most:
        return dict(wanted)
    given = {queue: most * amount // total for queue, amount in wanted.items()}
    left = most - sum(given.values())
    # The rows that rounding left over go to the queues with the smallest shares first, so that no small queue waits for ever.
    for queue in sorted(wanted, key=lambda queue: (given[queue], -wanted[queue], queue)):
        if left and given[queue] < wanted[queue]:
            given[queue] += 1
            left -= 1
    return given
