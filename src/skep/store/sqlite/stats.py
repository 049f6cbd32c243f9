"""Figures of queues, groups, partitions and leases, and the retention history. Reads only."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from skep.clock import MICROS_PER_SECOND, Instant
from skep.ids import Id
from skep.model import (
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
from skep.model.history import RetentionPass
from skep.store.archives import archive_stats
from skep.store.rates import Sample, rate, rates_since
from skep.store.sqlite.leases import SQL as LEASES_SQL
from skep.store.sqlite.leases import LeaseRow, find_lease, lease_of_row, unpack
from skep.store.sqlite.log_position import message_at_or_after, unarchived_at
from skep.store.sqlite.session import GroupRow, QueueRow, Row, Session
from skep.store.sqlite.sets import SQL as SETS_SQL
from skep.store.sqlite.sets import SetRow, set_of_row
from skep.store.statements import load_statements

SQL = load_statements(__package__, "stats")

_QUEUE_ITSELF = 0
_NEVER = (1 << 63) - 1

Counters = tuple[int, int, int, int]
"""The counters in a sample: pushed, completed, retried, dead."""


def queue_stats(session: Session, key: QueueKey, now: Instant) -> QueueStats:
    """The figures of a queue and of its groups."""
    queue = session.queue(key)
    rows = sorted(session.groups(queue).values(), key=lambda group: group.name)
    groups = [group_stats(session, queue, group, now) for group in rows]
    age = max((group.lag_seconds for group in groups), default=0.0)
    if not groups and (first := message_at_or_after(session, queue, queue.first_seq)) is not None:
        age = (now - first[1]) / MICROS_PER_SECOND
    return QueueStats(
        queue=key,
        first_seq=Seq(queue.first_seq),
        last_seq=Seq(queue.last_seq),
        depth=session.depth(queue),
        scheduled=queue.scheduled,
        dead_letters=session.one(SQL["count_dead"], (queue.id,))[0],
        in_flight=sum(group.in_flight for group in groups),
        oldest_age_seconds=age,
        rates=_rates(session, queue, _QUEUE_ITSELF, queue_counters(session, queue), now),
        groups=groups,
        gaps=queue.gaps,
        archive=_archive_stats(session, queue, now) if queue.settings.retention_requires_archive else None,
    )


def _archive_stats(session: Session, queue: QueueRow, now: Instant) -> ArchiveStats:
    groups = [(group.scan_seq, group.gaps) for group in session.groups(queue).values()]
    archived, oldest_at = session.archived_seq(queue), unarchived_at(session, queue)
    return archive_stats(archived, oldest_at, queue.first_seq, queue.last_seq, queue.gaps, groups, now)


def stats_of(session: Session, queues: Sequence[Queue], now: Instant) -> list[QueueStats | None]:
    """The figures of queues; None for one that is gone."""
    return [None if session.find_queue(queue.key) is None else queue_stats(session, queue.key, now) for queue in queues]


def group_stats(session: Session, queue: QueueRow, group: GroupRow, now: Instant) -> GroupStats:
    """The figures of a group; its counts add up (I12)."""
    figures = session.one(SQL["lease_figures" if queue.is_ordered else "set_figures"], (group.id, now))
    partitions, leased_partitions, in_flight, oldest_at, head_seq = figures
    undiscovered = session.row(
        LEASES_SQL["head_of_queue"],
        (queue.base | group.scan_seq, queue.base | queue.last_seq, group.id, group.external),
    )
    if undiscovered is not None and oldest_at is None:
        oldest_at = undiscovered[1]
    return GroupStats(
        queue=queue.key,
        group=group.name,
        progress_seq=Seq(group.scan_seq if head_seq is None else head_seq - 1),
        start_seq=Seq(group.start_seq),
        pushed=group.pushed(queue.last_seq),
        completed=group.completed,
        pending=group.unsettled(queue.last_seq) - in_flight,
        in_flight=in_flight,
        dead=group.dead,
        expired=group.expired,
        retried=group.retried,
        partitions_pending=partitions - leased_partitions,
        partitions_leased=leased_partitions,
        oldest_at=oldest_at,
        lag_seconds=(now - oldest_at) / MICROS_PER_SECOND if oldest_at is not None else 0.0,
        rates=_rates(session, queue, group.id, group_counters(queue, group), now),
        created_at=group.created_at,
        external=bool(group.external),
        active_at=Instant(group.active_at),
        inactive_seconds=max(0, now - group.active_at) / MICROS_PER_SECOND,
        idle=bool(group.idle),
        archived_seq=None if group.archived_seq is None else Seq(group.archived_seq),
    )


def progress_of(session: Session, queue: QueueRow, group: GroupRow) -> int:
    """The seq up to which the group has settled everything."""
    statement = LEASES_SQL["least_head"] if queue.is_ordered else SETS_SQL["least_set_head"]
    row = session.row(statement, (group.id,))
    return group.scan_seq if row is None or row[0] is None else min(row[0] - 1, group.scan_seq)


def progress_of_logs(session: Session, tenant: str, queues: Sequence[str], group: str) -> dict[str, Seq]:
    """The progress of a group in some logs, without logs that it does not read."""
    rows = {
        name: (queue, session.find_group(queue, group)) for name, queue in session.find_queues(tenant, queues).items()
    }
    return {name: Seq(progress_of(session, queue, found)) for name, (queue, found) in rows.items() if found is not None}


def group_counters(queue: QueueRow, group: GroupRow) -> Counters:
    """The counters of a group in a sample."""
    return group.pushed(queue.last_seq), group.completed, group.retried, group.dead


def queue_counters(session: Session, queue: QueueRow) -> Counters:
    """The counters of a queue in a sample: of its log, and the sums of its groups."""
    groups = session.groups(queue).values()
    completed, retried, dead = (
        (sum(values) for values in zip(*((g.completed, g.retried, g.dead) for g in groups), strict=True))
        if groups
        else (0, 0, 0)
    )
    return queue.last_seq, completed, retried, dead


def _rates(session: Session, queue: QueueRow, group_id: int, counters: Counters, now: Instant) -> Rates:
    """Growth per second over the last minute."""
    wanted = (queue.id, group_id, rates_since(now))
    before, after = (session.row(SQL[name], wanted) for name in ("sample_before", "sample_after"))
    return Rates(*(rate(value, now, _sample(before, n), _sample(after, n)) for n, value in enumerate(counters, 1)))


def _sample(row: Row | None, column: int) -> Sample | None:
    return None if row is None else (row[0], row[column])


def partition_stats(
    session: Session, key: QueueKey, group: str, now: Instant, after: str = "", limit: int = 100
) -> list[PartitionStats]:
    """Partitions with unsettled, discovered messages, by name."""
    queue = session.queue(key)
    found = session.find_group(queue, group)
    if found is None:
        return []
    rows = session.rows(SQL["partitions" if queue.is_ordered else "set_partitions"], (found.id, after, limit, now))
    return [
        PartitionStats(
            queue=key,
            group=group,
            partition=partition,
            pending=pending,
            in_flight=in_flight,
            attempts=attempts,
            oldest_at=oldest_at,
            ready_at=ready_at,
            lease_deadline=deadline,
            last_error=last_error,
        )
        for partition, pending, in_flight, attempts, oldest_at, ready_at, deadline, last_error in rows
    ]


def leases(
    session: Session,
    tenant: str,
    now: Instant,
    key: QueueKey | None = None,
    expiring_before: Instant | None = None,
    limit: int = 100,
) -> list[LeaseInfo]:
    """Live leases by deadline."""
    if key is not None and key.tenant != tenant:
        return []
    before = _NEVER if expiring_before is None else expiring_before
    found: list[LeaseInfo] = []
    for group_id, queue_name, group_name, ordering in session.rows(
        SQL["groups_of_tenant"], (tenant, None if key is None else key.name)
    ):
        statement = SQL["live_sets" if ordering == Ordering.UNORDERED else "live_leases"]
        rows = session.rows(statement, (group_id, now, before, limit))
        found += [_lease_info(QueueKey(queue_name, tenant), group_name, row) for row in rows]
    found.sort(key=lambda info: (info.deadline, info.partition))
    return found[:limit]


def _lease_info(key: QueueKey, group: str, row: Row) -> LeaseInfo:
    partition, messages, first_seq, last, leased_at, deadline, attempts, consumer = row
    return LeaseInfo(
        queue=key,
        group=group,
        partition=partition,
        messages=messages,
        first_seq=first_seq,
        last_seq=Seq(unpack(last)[0]),
        leased_at=leased_at,
        deadline=deadline,
        attempts=attempts,
        consumer=consumer,
    )


def leased_messages(session: Session, wanted: Sequence[LeaseFilter], now: Instant) -> list[list[LeasedMessage]]:
    """The unsettled messages under live leases, by partition and seq."""
    return [sorted(_leased(session, one, now), key=lambda m: (m.partition, m.seq)) for one in wanted]


def _leased(session: Session, wanted: LeaseFilter, now: Instant) -> Iterator[LeasedMessage]:
    queue = session.find_queue(wanted.queue)
    group = None if queue is None else session.find_group(queue, wanted.group)
    if queue is None or group is None:
        return
    partition = None if wanted.partition is None else queue.stored_partition(wanted.partition)
    for lease in _live_leases(session, queue, group, partition, wanted.token, now):
        if lease.token is None or wanted.token not in (None, lease.token) or partition not in (None, lease.partition):
            continue
        for seq in lease.held if isinstance(lease, LeaseRow) else lease.seqs:
            # A message that is no longer in the log stays in its lease until the next delivery.
            for id_, transaction_id in session.rows(LEASES_SQL["names_at"], (queue.base | seq,)):
                yield LeasedMessage(
                    partition=lease.partition, seq=Seq(seq), id=Id(id_), transaction_id=transaction_id,
                    token=Token(lease.token), deadline=Instant(lease.ready_at),
                )  # fmt: skip


def _live_leases(
    session: Session, queue: QueueRow, group: GroupRow, partition: str | None, token: Token | None, now: Instant
) -> Iterator[LeaseRow | SetRow]:
    """The live rows of a partition or of a token, by the index that has fewer of them."""
    found: list[LeaseRow | SetRow]
    if not queue.is_ordered:
        named = ("sets_of_partition", partition) if token is None else ("sets_of_token", token)
        found = [set_of_row(row) for row in session.rows(SETS_SQL[named[0]], (group.id, named[1]))]
    elif partition is not None:
        lease = find_lease(session, group, partition)
        found = [] if lease is None else [lease]
    else:
        found = [lease_of_row(row) for row in session.rows(LEASES_SQL["leases_of_token"], (group.id, token, now))]
    return (lease for lease in found if lease.is_live(now))


def retention_history(session: Session, key: QueueKey, limit: int = 100) -> list[RetentionPass]:
    """The latest retention passes, newest first."""
    queue = session.queue(key)
    return [
        RetentionPass(queue=key, at=at, deleted=deleted, first_seq=first_seq, settled_seq=settled_seq)
        for at, deleted, first_seq, settled_seq in session.rows(SQL["retention_history"], (queue.id, limit))
    ]
