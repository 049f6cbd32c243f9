"""The figures of a queue whose retention waits for the archive (`retention_requires_archive`)."""

from __future__ import annotations

from collections.abc import Iterable

from skep.clock import MICROS_PER_SECOND, Instant
from skep.model import ArchiveStats, Seq


def archive_stats(
    archived: int | None,
    oldest_at: int | None,
    first_seq: int,
    last_seq: int,
    gaps: int,
    groups: Iterable[tuple[int, int]],
    now: Instant,
) -> ArchiveStats:
    """How far the archive is. ``oldest_at`` is the time of the first message that it has not reported, None without one.

    ``groups`` are the scan_seq of each group and the gaps beyond it. Elsewhere nobody knows how many gaps there are, and they count
    as messages: after a seek of the archive's group, until it reports again.
    """
    if oldest_at is None:
        return ArchiveStats(None if archived is None else Seq(archived), 0, 0.0)
    after = max(archived or 0, first_seq - 1)
    known = {**dict(groups), first_seq - 1: gaps}
    return ArchiveStats(
        None if archived is None else Seq(archived),
        last_seq - after - known.get(after, 0),
        max(0, now - oldest_at) / MICROS_PER_SECOND,
    )
