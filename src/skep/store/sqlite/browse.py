"""Browsing: pages of the log with filters and the state of each message for a group, single messages, bounds of logs.

Reads only. A page walks a bounded piece of the log, so it may be short, or empty with ``after`` set.
"""

from __future__ import annotations

from collections.abc import Sequence

from skep.clock import Instant
from skep.model import (
    QUEUE_MODE_GROUP,
    LogBounds,
    MessageFilter,
    MessagePage,
    MessageState,
    QueueKey,
    Seq,
    StoredMessage,
)
from skep.store.sqlite.forget import last_tombstone
from skep.store.sqlite.leases import find_lease
from skep.store.sqlite.log_position import find_seq_at
from skep.store.sqlite.session import MAX_SEQ, GroupRow, QueueRow, Row, Session
from skep.store.sqlite.sets import sets_of
from skep.store.statements import load_statements

SQL = load_statements(__package__, "browse")

WALK_MESSAGES = 10_000
"""How many messages one page walks at most."""


def log_bounds(session: Session, key: QueueKey) -> LogBounds:
    """The seqs that the log holds."""
    return _bounds_of(session, session.queue(key))


def bounds_of_logs(session: Session, tenant: str, queues: Sequence[str]) -> dict[str, LogBounds]:
    """The seqs that some logs hold, without queues that do not exist: a few look-ups by key for each."""
    return {name: _bounds_of(session, queue) for name, queue in session.find_queues(tenant, queues).items()}


def _bounds_of(session: Session, queue: QueueRow) -> LogBounds:
    last_at = Instant(queue.last_at) if queue.last_at else None
    forgotten = last_tombstone(session, queue)
    return LogBounds(Seq(queue.first_seq), Seq(queue.last_seq), last_at, queue.created_at, forgotten)


def messages(session: Session, wanted: MessageFilter, now: Instant) -> MessagePage:
    """One page of the log."""
    queue = session.queue(wanted.queue)
    view = _view(session, queue, wanted, now)
    low, high = _bounds(session, queue, wanted)
    if low > high or wanted.limit <= 0:
        return MessagePage([], None)
    walked = _walk(session, queue, wanted, low, high)
    shown: list[StoredMessage] = []
    for index, row in enumerate(walked):
        state = view.state(row[0] & MAX_SEQ, row[1], row[5]) if view is not None and _matches(row, wanted) else None
        if _matches(row, wanted) and wanted.state in (None, state):
            shown += show(session, wanted.queue, row[0], wanted.preview_bytes, state)
        if len(shown) == wanted.limit:
            is_last = index == len(walked) - 1 and len(walked) < WALK_MESSAGES
            return MessagePage(shown, None if is_last else Seq(row[0] & MAX_SEQ))
    is_over = len(walked) < WALK_MESSAGES
    return MessagePage(shown, None if is_over else Seq(walked[-1][0] & MAX_SEQ))


def _bounds(session: Session, queue: QueueRow, wanted: MessageFilter) -> tuple[int, int]:
    """The first and the last seq that the page may show."""
    # Cleared messages stay in the log until retention deletes them. Only a filter by state shows them.
    low = 1 if wanted.cleared or wanted.state is not None else queue.first_seq
    high = queue.last_seq
    if wanted.since is not None:
        low = max(low, find_seq_at(session, queue, wanted.since))
    if wanted.until is not None:
        high = min(high, find_seq_at(session, queue, wanted.until) - 1)
    if wanted.after is not None and wanted.descending:
        high = min(high, wanted.after - 1)
    elif wanted.after is not None:
        low = max(low, wanted.after + 1)
    return low, high


def _walk(session: Session, queue: QueueRow, wanted: MessageFilter, low: int, high: int) -> list[Row]:
    way = "down" if wanted.descending else "up"
    # Without such a filter, one message beyond the page tells whether there is a next page.
    filtered = wanted.state is not None or wanted.transaction_id is not None or wanted.trace_id is not None
    limit = WALK_MESSAGES if filtered else min(WALK_MESSAGES, wanted.limit + 1)
    span = (queue.base | low, queue.base | high, limit)
    if wanted.transaction_id is not None:
        return session.rows(SQL[f"walk_transaction_id_{way}"], (*span, queue.id, wanted.transaction_id))
    if wanted.partition is None:
        return session.rows(SQL[f"walk_{way}"], span)
    return session.rows(SQL[f"walk_partition_{way}"], (*span, queue.id, wanted.partition))


def _matches(row: Row, wanted: MessageFilter) -> bool:
    _, partition, id_, transaction_id, trace_id, _ = row
    return (
        wanted.transaction_id in (None, transaction_id)
        and wanted.trace_id in (None, trace_id or id_)
        and wanted.partition in (None, partition)
    )


def show(
    session: Session, key: QueueKey, position: int, preview_bytes: int | None, state: MessageState | None = None
) -> list[StoredMessage]:
    """The message at a position, in a list; an empty list when there is none."""
    row = session.row(SQL["show"], (position, preview_bytes))
    if row is None:
        return []
    return [
        StoredMessage(
            queue=key,
            seq=Seq(row[0] & MAX_SEQ),
            partition=row[1],
            id=row[2],
            transaction_id=row[3],
            trace_id=row[4],
            headers=row[5],
            content_type=row[6],
            payload=row[7],
            payload_bytes=row[8],
            priority=row[9],
            created_at=row[10],
            state=state,
        )
    ]


def message(session: Session, key: QueueKey, seq: Seq) -> StoredMessage | None:
    """One message with its whole payload."""
    queue = session.queue(key)
    found = show(session, key, queue.base | seq, None) if 0 < seq <= MAX_SEQ else []
    return found[0] if found else None


# a group's view


class _View:
    """The states of messages for a group. Lease rows are read once per page and partition."""

    def __init__(self, session: Session, queue: QueueRow, group: GroupRow, now: Instant) -> None:
        self._now = now
        self._session = session
        self._queue = queue
        self._group = group
        self._leased: dict[str, set[int]] = {}
        self._waiting: dict[str, set[int]] = {}
        self._delivered: dict[str, int] = {}

    def state(self, seq: int, partition: str, audience: int | None) -> MessageState | None:
        """The state of a message; None when the message is for another group only."""
        if audience not in (None, self._group.id) and not self._group.external:
            return None
        if seq > self._group.scan_seq:
            return MessageState.PENDING
        name = self._queue.stored_partition(partition) if self._queue.is_ordered else partition
        if name not in self._leased:
            self._read(name)
        if seq in self._leased[name]:
            return MessageState.IN_FLIGHT
        if seq in self._waiting[name] or seq > self._delivered[name]:
            return MessageState.PENDING
        dead = self._session.row(SQL["is_dead"], (self._queue.id, seq, self._group.name))
        return MessageState.SETTLED if dead is None else MessageState.DEAD

    def _read(self, partition: str) -> None:
        leased: set[int] = set()
        waiting: set[int] = set()
        delivered = MAX_SEQ
        if self._queue.is_ordered:
            lease = find_lease(self._session, self._group, partition)
            if lease is not None:
                held = lease.leased if lease.is_live(self._now) else 0
                leased.update(lease.open[:held])
                waiting.update(lease.open[held:])
                delivered = lease.delivered_seq if lease.pending else MAX_SEQ
        else:
            for one in sets_of(self._session, self._group, partition):
                (leased if one.is_live(self._now) else waiting).update(one.seqs)
        self._leased[partition], self._waiting[partition], self._delivered[partition] = leased, waiting, delivered


def _view(session: Session, queue: QueueRow, wanted: MessageFilter, now: Instant) -> _View | None:
    name = wanted.group
    if name is None and wanted.state is not None:
        name = QUEUE_MODE_GROUP
    return None if name is None else _View(session, queue, session.group(queue, name), now)
