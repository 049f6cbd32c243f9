"""Retention: deleting messages from the head of the log, as far as settings and earlier clearing allow.

It waits for the slowest group in use, unless retention ignores groups or a dead letter is past its age. Then messages that a group
had not settled count as expired for it.
"""

from __future__ import annotations

import structlog

from skep.clock import Instant, seconds
from skep.model import QueueKey
from skep.model.chores import Chore
from skep.store.rules import LOOK_AGAIN_SECONDS, LOOK_FOR_IDLE_MICROS, dead_letter_target, idle_micros, removal_age
from skep.store.sqlite.gone import Gone, forget_messages
from skep.store.sqlite.leases import SQL as LEASES_SQL
from skep.store.sqlite.log_position import find_seq_at, message_at_or_after
from skep.store.sqlite.session import MAX_SEQ, GroupRow, QueueRow, Session
from skep.store.sqlite.sets import SQL as SETS_SQL
from skep.store.sqlite.stats import progress_of
from skep.store.statements import load_statements

SQL = load_statements(__package__, "retain")

log = structlog.get_logger(__name__)


def retain(session: Session, key: QueueKey, now: Instant, limit: int) -> Chore:
    """One pass over one queue."""
    queue = session.queue(key)
    _mark_idle(session, queue, now)
    settled = settled_seq(session, queue)
    until = max(
        _old_until(session, queue, settled, now),
        _completed_until(session, queue, settled, now),
        _past_age_until(session, queue, now),
    )
    if queue.settings.retention_requires_archive:
        until = min(until, session.archived_seq(queue) or 0)
    # Whoever clears a queue wants its messages gone, archived or not.
    until = max(until, _cleared_until(queue, settled))
    deleted, more = _delete(session, queue, until, limit, now)
    _record(session, queue, deleted, settled or 0, now)
    return Chore(deleted, more, None if more else _next_pass(session, queue, settled, now))


def settled_seq(session: Session, queue: QueueRow) -> int | None:
    """The least progress of the groups that hold back retention; None without groups."""
    return min((progress_of(session, queue, group) for group in session.holding_groups(queue)), default=None)


def _mark_idle(session: Session, queue: QueueRow, now: Instant) -> None:
    """Mark groups as idle that were not used for too long, and others as no longer idle. The last used group is never idle."""
    may_mark_idle = session.attendance.may_mark_idle(now)
    limit = idle_micros(queue.settings)
    groups = sorted(session.groups(queue).values(), key=lambda group: (group.active_at, group.id))
    for group in groups:
        idle = limit is not None and group is not groups[-1] and group.active_at <= now - limit
        if bool(group.idle) == (idle and not _has_live_lease(session, queue, group, now)) or (
            idle and not may_mark_idle
        ):
            continue
        group.idle = int(not group.idle)
        session.touch_group(group)
        if group.idle:
            log.warning(
                "group is idle: retention and max_depth no longer wait for it",
                queue=queue.key.name, group=group.name, last_active_at=group.active_at,
                unsettled=group.unsettled(queue.last_seq),
            )  # fmt: skip


def _has_live_lease(session: Session, queue: QueueRow, group: GroupRow, now: Instant) -> bool:
    statement = LEASES_SQL["next_deadline"] if queue.is_ordered else SETS_SQL["next_set_deadline"]
    return session.row(statement, (group.id, now)) is not None


def _cleared_until(queue: QueueRow, settled: int | None) -> int:
    """The last seq below first_seq that no group still needs."""
    below = queue.first_seq - 1
    return below if settled is None else min(below, settled)


def _old_until(session: Session, queue: QueueRow, settled: int | None, now: Instant) -> int:
    """The last seq past retention_seconds that may go: settled by all groups, unless groups are ignored."""
    settings = queue.settings
    if settings.retention_seconds <= 0 or (settled is None and not settings.retention_ignores_groups):
        return 0
    old = find_seq_at(session, queue, now - seconds(settings.retention_seconds) + 1) - 1
    return old if settled is None or settings.retention_ignores_groups else min(old, settled)


def _completed_until(session: Session, queue: QueueRow, settled: int | None, now: Instant) -> int:
    """The last seq that all groups had settled at a pass completed_retention_seconds ago."""
    settings = queue.settings
    if settings.completed_retention_seconds <= 0 or settled is None or settings.retention_ignores_groups:
        return 0
    found = session.row(SQL["settled_by"], (queue.id, now - seconds(settings.completed_retention_seconds)))
    return 0 if found is None else min(found[0], settled)


def _past_age_until(session: Session, queue: QueueRow, now: Instant) -> int:
    """The last seq past its removal age. If the queue buries such messages, all popping groups must have settled them first."""
    age = removal_age(queue.settings, queue.holds_dead_letters)
    if age is None:
        return 0
    old = find_seq_at(session, queue, now - age + 1) - 1
    if dead_letter_target(queue.key.name, queue.settings, queue.holds_dead_letters) is None:
        return old
    popping = [group for group in session.groups(queue).values() if not group.external]
    return min(old, min((progress_of(session, queue, group) for group in popping), default=0))


def _delete(session: Session, queue: QueueRow, until: int, limit: int, now: Instant) -> tuple[int, bool]:
    """Delete the oldest messages up to a seq, and begin the log behind them; how many, and whether some are left."""
    if until <= 0 or limit <= 0:
        return 0, False
    rows = session.rows(SQL["doomed"], (queue.base, queue.base | until, limit + 1))
    gone = [Gone(position & MAX_SEQ, partition, audience) for position, partition, audience in rows[:limit]]
    more = len(rows) > limit
    if gone:
        first, last = queue.base | gone[0].seq, queue.base | gone[-1].seq
        session.db.execute(SQL["delete_range"], (first, last))
        if queue.holds_dead_letters:
            session.db.execute(SQL["delete_dead_range"], (first, last))
        queue.floor_seq = max(queue.floor_seq, gone[-1].seq)
        session.touch_queue(queue)
        if any(gone[-1].seq > progress_of(session, queue, group) for group in session.groups(queue).values()):
            forget_messages(session, queue, gone, now)
    reached = gone[-1].seq if more else until
    if reached >= queue.first_seq:
        queue.gaps -= reached - queue.first_seq + 1 - sum(one.seq >= queue.first_seq for one in gone)
        queue.first_seq = reached + 1
        session.touch_queue(queue)
    return len(gone), more


def _record(session: Session, queue: QueueRow, deleted: int, settled: int, now: Instant) -> None:
    """Add a row to the history when something was deleted or the settled part grew."""
    settings = queue.settings
    if not (
        settings.retention_seconds
        or settings.completed_retention_seconds
        or removal_age(settings, queue.holds_dead_letters)
    ):
        return
    latest = session.row(SQL["latest_pass"], (queue.id,))
    if deleted or latest is None or latest[0] != settled:
        session.db.execute(SQL["add_pass"], (queue.id, now, deleted, queue.first_seq, settled))


def _next_pass(session: Session, queue: QueueRow, settled: int | None, now: Instant) -> Instant | None:
    """When the next message will be old enough to go, as far as this is known."""
    settings = queue.settings
    oldest = message_at_or_after(session, queue, 1)
    known: list[int] = []
    age = removal_age(settings, queue.holds_dead_letters)
    if age is not None:
        # New dead letters are not announced to this chore. The next letter is not older than this one, so its pass is in time.
        due = age + (now if oldest is None else oldest[1])
        known.append(due if due > now else now + seconds(LOOK_AGAIN_SECONDS))
    limit = idle_micros(settings)
    if limit is not None:
        known.append(now + min(limit, LOOK_FOR_IDLE_MICROS))
    if oldest is None:
        return Instant(min(known)) if known else None
    if settings.retention_requires_archive and oldest[0] > (session.archived_seq(queue) or 0):
        # A report of the archive makes a pass due.
        return Instant(min(known)) if known else None
    may_go = settings.retention_ignores_groups or (settled is not None and oldest[0] <= settled)
    if settings.retention_seconds > 0 and may_go:
        known.append(oldest[1] + seconds(settings.retention_seconds))
    if settings.completed_retention_seconds > 0 and settled is not None:
        wait = seconds(settings.completed_retention_seconds)
        row = session.row(SQL["next_settled"], (queue.id, now - wait, oldest[0]))
        if row is not None:
            known.append(row[0] + wait)
    return Instant(min(known)) if known else None
