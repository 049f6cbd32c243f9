"""Figures of queues, groups, partitions and leases, and the passes of retention. Reads only.

Figures come from counters and from the rows of unsettled partitions; nothing walks the log.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import asyncpg

from skep.clock import MICROS_PER_SECOND, Instant
from skep.model import (
    DEFAULT_PARTITION,
    ArchiveStats,
    GroupStats,
    LeasedMessage,
    LeaseFilter,
    LeaseInfo,
    Ordering,
    PartitionStats,
    Queue,
    QueueKey,
    QueueStats,
    Rates,
    Seq,
    Token,
)
from skep.model.group import no_group
from skep.model.history import RetentionPass
from skep.model.queue import no_queue
from skep.store.archives import archive_stats
from skep.store.postgres import queues
from skep.store.postgres.connection import Connection
from skep.store.postgres.rows import struct_of
from skep.store.rates import rate, rates_since
from skep.store.statements import load_statements

SQL = load_statements(__package__, "stats")
BROWSE = load_statements(__package__, "browse")


async def queue_stats(connection: Connection, key: QueueKey, now: Instant) -> QueueStats:
    """A queue's figures, and those of its groups."""
    [found] = await stats_of(connection, [await queues.need(connection, key)], now)
    if found is None:
        raise no_queue(key.name)
    return found


async def stats_of(connection: Connection, queues: Sequence[Queue], now: Instant) -> list[QueueStats | None]:
    """The figures of queues, in two statements; None for one that is gone."""
    ids, since = [queue.id for queue in queues], rates_since(now)
    heads = {row["id"]: row for row in await connection.fetch(SQL["queue_figures"], ids, since)}
    groups: dict[int, list[asyncpg.Record]] = {}
    for row in await connection.fetch(SQL["group_figures"], ids, now, since, None):
        groups.setdefault(row["queue_id"], []).append(row)
    return [
        None if queue.id not in heads else _queue_stats(queue, heads[queue.id], groups.get(queue.id, []), now)
        for queue in queues
    ]


def _queue_stats(queue: Queue, head: asyncpg.Record, rows: Sequence[asyncpg.Record], now: Instant) -> QueueStats:
    groups = [_group_stats(row, queue, head["last_seq"], now) for row in rows]
    ages = [now - group.oldest_at for group in groups if group.oldest_at is not None]
    if not groups and head["first_at"] is not None:
        ages = [now - head["first_at"]]
    return QueueStats(
        queue=queue.key,
        first_seq=head["first_seq"],
        last_seq=head["last_seq"],
        depth=head["depth"],
        scheduled=head["scheduled_count"],
        dead_letters=head["dead_letters"],
        in_flight=sum(group.in_flight for group in groups),
        oldest_age_seconds=max(ages, default=0) / MICROS_PER_SECOND,
        rates=Rates(
            pushed=_rate(head, "seq", head["last_seq"], now),
            completed=sum(group.rates.completed for group in groups),
            retried=sum(group.rates.retried for group in groups),
            dead=sum(group.rates.dead for group in groups),
        ),
        groups=groups,
        gaps=head["gaps"],
        archive=_archive_stats(head, rows, now) if queue.settings.retention_requires_archive else None,
    )


def _archive_stats(head: asyncpg.Record, rows: Sequence[asyncpg.Record], now: Instant) -> ArchiveStats:
    groups = [(row["scan_seq"], row["gaps"]) for row in rows]
    return archive_stats(
        head["archived_seq"], head["unarchived_at"], head["first_seq"], head["last_seq"], head["gaps"], groups, now
    )


async def group_stats(connection: Connection, key: QueueKey, group: str, now: Instant) -> GroupStats:
    """The figures of one group."""
    queue = await queues.need(connection, key)
    last_seq = await connection.fetchval(SQL["last_seq"], queue.id)
    row = await connection.fetchrow(SQL["group_figures"], [queue.id], now, rates_since(now), group)
    if row is None:
        raise no_group(key.name, group)
    return _group_stats(row, queue, last_seq, now)


async def progress_of_logs(connection: Connection, tenant: str, queues: Sequence[str], group: str) -> dict[str, Seq]:
    """The progress of a group in some logs, without logs that it does not read."""
    rows = await connection.fetch(SQL["progress_of_logs"], tenant, list(queues), group)
    return {row["name"]: Seq(row["seq"]) for row in rows}


def _group_stats(row: asyncpg.Record, queue: Queue, last_seq: int, now: Instant) -> GroupStats:
    in_flight = row["in_flight"]
    oldest_at = min((at for at in (row["oldest_at"], row["undiscovered_at"]) if at is not None), default=None)
    return GroupStats(
        queue=queue.key,
        group=row["name"],
        progress_seq=row["progress_seq"],
        start_seq=row["start_seq"],
        pushed=last_seq - row["start_seq"] - row["skipped"],
        completed=row["completed"],
        pending=last_seq - row["scan_seq"] - row["gaps"] + row["unsettled"] - in_flight,
        in_flight=in_flight,
        dead=row["dead"],
        expired=row["expired"],
        retried=row["retried"],
        partitions_pending=row["partitions"],
        partitions_leased=row["leased_partitions"],
        oldest_at=oldest_at,
        lag_seconds=0.0 if oldest_at is None else max(0, now - oldest_at) / MICROS_PER_SECOND,
        rates=Rates(
            pushed=_rate(row, "seq", last_seq, now),
            completed=_rate(row, "completed", row["completed"], now),
            retried=_rate(row, "retried", row["retried"], now),
            dead=_rate(row, "dead", row["dead"], now),
        ),
        created_at=row["created_at"],
        external=row["external"],
        active_at=row["active_at"],
        inactive_seconds=max(0, now - row["active_at"]) / MICROS_PER_SECOND,
        idle=row["idle"],
        archived_seq=row["archived_seq"],
    )


def _rate(row: asyncpg.Record, counter: str, value: int, now: Instant) -> float:
    """The growth of a counter over the last minute, by the samples around its beginning."""
    before, after = (
        None if row[f"{which}_at"] is None else (row[f"{which}_at"], row[f"{which}_{counter}"])
        for which in ("before", "after")
    )
    return rate(value, now, before, after)


async def partition_stats(
    connection: Connection, key: QueueKey, group: str, now: Instant, after: str = "", limit: int = 100
) -> list[PartitionStats]:
    """Partitions with unsettled messages that the group has discovered, by name."""
    queue = await queues.need(connection, key)
    rows = await connection.fetch(SQL["partitions"], queue.id, group, now, after, limit)
    return [
        struct_of(PartitionStats, row, queue=key, group=group, pending=row["unsettled"] - row["in_flight"])
        for row in rows
    ]


async def leases(
    connection: Connection,
    tenant: str,
    now: Instant,
    key: QueueKey | None = None,
    expiring_before: Instant | None = None,
    limit: int = 100,
) -> list[LeaseInfo]:
    """Live leases by deadline."""
    rows = await connection.fetch(SQL["leases"], tenant, now, None if key is None else key.name, expiring_before, limit)
    return [
        struct_of(
            LeaseInfo, row, queue=QueueKey(row["queue_name"], tenant), group=row["group_name"], deadline=row["ready_at"]
        )
        for row in rows
    ]


async def leased_messages(
    connection: Connection, wanted: Sequence[LeaseFilter], now: Instant
) -> list[list[LeasedMessage]]:
    """The unsettled messages under live leases, by partition and seq. The partitions of a group are looked at together."""
    groups: dict[tuple[QueueKey, str], list[LeaseFilter]] = {}
    for one in wanted:
        groups.setdefault((one.queue, one.group), []).append(one)
    found: dict[LeaseFilter, list[LeasedMessage]] = {}
    for (key, group), filters in groups.items():
        found |= await _leased(connection, key, group, filters, now)
    return [found.get(one, []) for one in wanted]


async def _leased(
    connection: Connection, key: QueueKey, group: str, filters: Sequence[LeaseFilter], now: Instant
) -> dict[LeaseFilter, list[LeasedMessage]]:
    """What the filters of one group find: by its partition, or by its token where it names no partition, or sets have the token."""
    queue = await queues.get_queue(connection, key)
    group_id = None if queue is None else await connection.fetchval(BROWSE["group_id"], queue.id, group)
    if queue is None or group_id is None:
        return {}
    ordering = queue.settings.ordering
    partitions: set[str] = set()
    tokens: set[Token] = set()
    for one in filters:
        if one.token is not None and (one.partition is None or ordering == Ordering.UNORDERED):
            tokens.add(one.token)
        elif one.partition is not None:
            partitions.add(DEFAULT_PARTITION if ordering == Ordering.FIFO else one.partition)
    rows: list[asyncpg.Record] = []
    if partitions:
        rows += await connection.fetch(SQL["leased_in_partitions"], queue.id, group_id, list(partitions), now)
    for token in tokens:
        rows += await connection.fetch(SQL["leased_under_token"], queue.id, group_id, token, now)
    by_partition: dict[str, dict[Seq, LeasedMessage]] = {}
    for row in sorted(rows, key=lambda row: (row["partition"], row["seq"])):
        by_partition.setdefault(row["partition"], {})[row["seq"]] = struct_of(LeasedMessage, row)
    return {one: _matching(one, by_partition, ordering == Ordering.FIFO) for one in filters}


def _matching(
    wanted: LeaseFilter, by_partition: Mapping[str, Mapping[Seq, LeasedMessage]], is_fifo: bool
) -> list[LeasedMessage]:
    """The messages that a filter means, of those that were found for all filters. A fifo queue has one partition, whatever is named."""
    named = list(by_partition) if wanted.partition is None else [DEFAULT_PARTITION if is_fifo else wanted.partition]
    return [
        message
        for name in named
        for message in by_partition.get(name, {}).values() if wanted.token in (None, message.token)
    ]  # fmt: skip


async def retention_history(connection: Connection, key: QueueKey, limit: int = 100) -> list[RetentionPass]:
    """The latest passes of retention, newest first."""
    queue = await queues.need(connection, key)
    rows = await connection.fetch(SQL["retention_history"], queue.id, limit)
    return [struct_of(RetentionPass, row, queue=key) for row in rows]
