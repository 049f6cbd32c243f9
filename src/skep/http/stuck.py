"""Stuck partitions: their oldest message is old, or their next message has failed before."""

from __future__ import annotations

from typing import NamedTuple

from skep.clock import Instant, seconds
from skep.engine import Engine
from skep.errors import Code, SkepError
from skep.http.tenant_scan import TenantScan
from skep.model import GroupStats, PartitionStats

WALKED_PARTITIONS = 10_000
"""The most partitions that one search reads."""
_PAGE = 1_000


class Stuck(NamedTuple):
    """The worst partitions; ``complete`` is False when others were not read or not listed."""

    partitions: list[PartitionStats]
    complete: bool


async def stuck_partitions(engine: Engine, seen: TenantScan, older_than_seconds: float, limit: int) -> Stuck:
    """The stuck partitions, most attempts first, then the oldest.

    Groups are read in the order of their lag, the largest first, so that a search that ends early has read the worst ones.
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
    """Whether to read the partitions of a group. Without an old message or a retry, none of them is stuck."""
    return group.oldest_at is not None and (group.oldest_at < before or group.retried > 0)


def is_stuck(partition: PartitionStats, before: Instant, now: Instant) -> bool:
    """Whether a partition has an old message, or a failed one. The first delivery of a message counts as failed only when its lease has ended."""
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
    except SkepError as error:  # it was deleted meanwhile
        if error.code not in (Code.QUEUE_NOT_FOUND, Code.GROUP_NOT_FOUND):
            raise
    return found
