"""Histories: figures by the minute, finished leases, failed attempts, trace events, reasons of dead letters. Every read is bounded."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import structs

from skep.clock import Instant, seconds
from skep.ids import Id
from skep.model import DeadReason, QueueKey, Seq
from skep.model.history import Death, FailedAttempt, FinishedLease, Journey, LeaseTime, Moment, TraceEvent, TraceName
from skep.store.outcomes import outcome_for
from skep.store.rules import FAILURES_SHOWN, HISTORY_DISORDER_SECONDS, PAST_SECONDS, SEARCHED_LEASES, TIMED_LEASES
from skep.store.sqlite.dead_letters import dead_queue
from skep.store.sqlite.log_position import first_since
from skep.store.sqlite.session import MAX_SEQ, Row, Session
from skep.store.statements import load_statements

SQL = load_statements(__package__, "history")

MINUTE = seconds(60)
POINTS = PAST_SECONDS // 60 + 3
_WHOLE_TENANT = 0
_LAST_POSITION = (1 << 63) - 1


def figures(session: Session, tenant: str, names: Sequence[str] | None, since: Instant) -> list[list[Moment]]:
    """Figures by the minute of each queue, or of the tenant as a whole; also the last row before ``since``."""
    ids = [_WHOLE_TENANT] if names is None else [_queue_id(session, tenant, name) for name in names]
    return [
        []
        if id_ is None
        else [Moment(*row) for row in session.rows(SQL["figures"], (tenant, id_, since // MINUTE, POINTS))]
        for id_ in ids
    ]


def _queue_id(session: Session, tenant: str, name: str) -> int | None:
    queue = session.find_queue(QueueKey(name, tenant))
    return None if queue is None else queue.id


def lease_history(
    session: Session, key: QueueKey, after: int = 0, limit: int = 1000, since: Instant | None = None
) -> list[tuple[int, FinishedLease]]:
    """Finished leases with their positions in the history."""
    queue = session.queue(key)
    if since is not None:
        first = _first_ended(session, queue.id, Instant(since - seconds(HISTORY_DISORDER_SECONDS)))
        after = max(after, 0 if first is None else first - 1)
    rows = session.rows(SQL["lease_history"], (queue.id, after, limit, since or 0))
    return [(row[-1], _lease(key, row)) for row in rows]


def deliveries(session: Session, journeys: Sequence[Journey]) -> list[list[FinishedLease]]:
    """The finished leases of each message, as far as a bounded search finds them."""
    return [_deliveries(session, journey) for journey in journeys]


def _deliveries(session: Session, journey: Journey) -> list[FinishedLease]:
    queue = session.find_queue(journey.queue)
    if queue is None:
        return []
    first = _first_ended(session, queue.id, journey.created_at)
    if first is None:
        return []
    wanted = (queue.stored_partition(journey.partition), journey.seq)
    rows = session.rows(SQL["leases_from"], (queue.id, first, SEARCHED_LEASES, *wanted))
    rows += session.rows(SQL["leases_until"], (queue.id, SEARCHED_LEASES, *wanted))
    found = {row[-1]: row for row in rows}
    return [_told(journey, found[position]) for position in sorted(found)]


def _told(journey: Journey, row: Row) -> FinishedLease:
    """A finished lease, with the outcome of one of its messages."""
    return structs.replace(_lease(journey.queue, row), outcome=outcome_for(journey.seq, row[9], row[10]))


def failures(session: Session, places: Sequence[tuple[QueueKey, Seq]]) -> list[list[FailedAttempt]]:
    """The failed attempts of each message, oldest first."""
    return [_failures(session, key, seq) for key, seq in places]


def _failures(session: Session, key: QueueKey, seq: Seq) -> list[FailedAttempt]:
    queue = session.find_queue(key)
    if queue is None:
        return []
    rows = session.rows(SQL["failures"], (queue.id, seq, FAILURES_SHOWN))
    return [
        FailedAttempt(
            queue=key, seq=seq, group=group, attempt=attempt, leased_at=leased_at, failed_at=failed_at, outcome=outcome,
            error=error, consumer=consumer,
        )
        for group, attempt, leased_at, failed_at, outcome, error, consumer in reversed(rows)
    ]  # fmt: skip


def lease_times(session: Session, key: QueueKey, since: Instant) -> list[LeaseTime]:
    """The wait and handler times of a queue's newest leases, newest first."""
    queue = session.queue(key)
    return [LeaseTime(*row) for row in session.rows(SQL["lease_times"], (queue.id, TIMED_LEASES, queue.base, since))]


def _first_ended(session: Session, queue_id: int, at: Instant) -> int | None:
    """The position of the first lease that ended at or after an instant. Rows are in the order of ending."""
    newest = session.row(SQL["last_lease_ended"], (queue_id,))
    oldest = session.row(SQL["lease_ended_at"], (queue_id, 0))
    if newest is None or oldest is None:
        return None
    return first_since(
        lambda position: session.row(SQL["lease_ended_at"], (queue_id, position)), oldest[0], newest[0] + 1, at
    )


def _lease(key: QueueKey, row: Row) -> FinishedLease:
    return FinishedLease(
        queue=key, group=row[0], partition=row[1], first_seq=row[2], last_seq=row[3], messages=row[4], completed=row[5],
        attempt=row[6], leased_at=row[7], settled_at=row[8], outcome=row[9],
    )  # fmt: skip


def note_events(session: Session, tenant: str, events: Sequence[TraceEvent]) -> None:
    """Store events of traces."""
    session.db.executemany(
        SQL["note_event"],
        [(event.at, tenant, event.trace_id, event.message_id, event.queue, event.name, event.data) for event in events],
    )


def events_of_trace(session: Session, tenant: str, trace_id: Id, limit: int = 1000) -> list[TraceEvent]:
    """The events of a trace, in the order in which they were reported."""
    return [_event(row) for row in session.rows(SQL["events_of_trace"], (tenant, trace_id, limit))]


def events_of_name(
    session: Session, tenant: str, name: str, before: int | None = None, limit: int = 100
) -> list[TraceEvent]:
    """Events with a name before a position, newest first."""
    start = _LAST_POSITION if before is None else before
    return [_event(row) for row in session.rows(SQL["events_of_name"], (tenant, name, start, limit))]


def names(session: Session, tenant: str, after: str = "", limit: int = 100) -> list[TraceName]:
    """The names of trace events after ``after``, in alphabetical order."""
    found: list[TraceName] = []
    while len(found) < limit and (row := session.row(SQL["next_name"], (tenant, after))) is not None:
        found.append(TraceName(row[0], row[1]))
        after = row[0]
    return found


def _event(row: Row) -> TraceEvent:
    trace_id, name, data, at, message_id, queue, position = row
    return TraceEvent(
        trace_id=trace_id, name=name, data=data, at=at, message_id=message_id, queue=queue, position=position
    )


def deaths(session: Session, key: QueueKey, limit: int) -> list[Death]:
    """The reasons of the newest dead letters of a dead-letter queue, newest first."""
    queue = dead_queue(session, key)
    rows = session.rows(SQL["deaths"], (queue.base, queue.base | MAX_SEQ, limit))
    return [
        Death(Seq(position & MAX_SEQ), source, group, DeadReason(reason), error, attempts, failed_at)
        for position, source, group, reason, error, attempts, failed_at in rows
    ]
