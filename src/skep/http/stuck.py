"""Stuck partitions: whose oldest message is old, or whose next message has failed already."""

from __future__ import annotations

from typing import NamedTuple

from skep.clock import Instant, seconds
from skep.engine import Engine
from skep.errors import Code, SkepError
from skep.http.tenant_scan import TenantScan
from skep.model import GroupStats, PartitionStats

WALKED_PARTITIONS = 10_000
"""Partitions that one look takes in."""
_PAGE = 1_000


class Stuck(NamedTuple):
    """The worst of them; not complete when there is more to look at."""

    partitions: list[PartitionStats]
    complete: bool


async def stuck_partitions(engine: Engine, seen: TenantScan, older_than_seconds: float, limit: int) -> Stuck:
    """The stuck partitions, most attempts first, then the oldest.

    Groups are looked at from the one that lags most, so that a cut walk has seen where it matters.
    """
    now = engine.now()
    before = Instant(now - seconds(older_than_seconds))
    groups = [group for one in seen.queues for group in one.stats.groups if _may_be_stuck(group, before)]
    groups.sort(key=lambda group: group.lag_seconds, reverse=True)
    left = WALKED_PARTITIONS
    found: list[PartitionStats] = []
    complete = seen.complete
    for group in groups:
        walked = await _partitions(engine, group, left)
        left -= len(walked)
        found += [one for one in walked if is_stuck(one, before, now)]
        if left <= 0:
            complete = False
            break
    found.sort(key=lambda one: (-one.attempts, one.oldest_at, one.queue, one.group, one.partition))
    return Stuck(found[:limit], complete and len(found) <= limit)


def _may_be_stuck(group: GroupStats, before: Instant) -> bool:
    """Without an old message or a retry, none of its partitions is stuck, and they need not be walked."""
    return group.oldest_at is not None and (group.oldest_at < before or group.retried > 0)


def is_stuck(partition: PartitionStats, before: Instant, now: Instant) -> bool:
    """Old, or failed before; a first delivery that is being worked on is neither, unless it is old."""
    is_first_try = partition.lease_deadline is not None and partition.lease_deadline > now and partition.attempts <= 1
    return partition.oldest_at < before or (partition.attempts > 0 and not is_first_try)


async def _partitions(engine: Engine, group: GroupStats, most: int) -> list[PartitionStats]:
    found: list[PartitionStats] = []
    try:
        while len(found) < most:
            limit = min(_PAGE, most - len(found))
            after = found[-1].partition if found else ""
            page = await engine.browse.partition_stats(group.queue, group.group, after=after, limit=limit)
            found += page
            if len(page) < limit:
                break
    except SkepError as error:  # deleted while it was looked at
        if error.code not in (Code.QUEUE_NOT_FOUND, Code.GROUP_NOT_FOUND):
            raise
    return found
