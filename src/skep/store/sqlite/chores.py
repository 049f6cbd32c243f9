"""Chores: promoting due messages, settling expired messages, sweeping old rows. Retention and sampling have files of their own.

A pass touches at most ``limit`` messages or rows. It tells whether there is more to do now, and when there will be.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import TypeVar

from skep.clock import Instant, seconds
from skep.model import QUEUE_MODE_GROUP, QueueKey, scheduled
from skep.model.chores import Chore
from skep.store.lease import Effects, run_out_set
from skep.store.rules import KEYFRAME_SECONDS, PAST_SECONDS, TRACE_EVENTS_SECONDS, settles_unread
from skep.store.sqlite.bury import apply
from skep.store.sqlite.discover import discover
from skep.store.sqlite.leases import SQL as LEASES_SQL
from skep.store.sqlite.leases import drop_gone, lease_of_row, save, save_all
from skep.store.sqlite.pop import close_run_out, expire_heads
from skep.store.sqlite.scheduled import enter_log
from skep.store.sqlite.session import GroupRow, QueueRow, Row, Session
from skep.store.sqlite.sets import SQL as SETS_SQL
from skep.store.sqlite.sets import expire_set, read_set, refresh_age, save_set, set_of_row
from skep.store.statements import load_statements

SQL = load_statements(__package__, "chores")

T = TypeVar("T")

_DAY_SECONDS = 86_400.0
KEEP_LEASE_HISTORY_SECONDS = 7 * _DAY_SECONDS
KEEP_SAMPLES_SECONDS = 2.0 * KEYFRAME_SECONDS
"""Longer than a row stays the newest: the newest row is removed only when its queue or group is gone."""
KEEP_RETENTION_HISTORY_SECONDS = 30 * _DAY_SECONDS
KEEP_REPLAY_HISTORY_SECONDS = 90 * _DAY_SECONDS

_ALL = -1
"""No limit, in SQLite's terms."""

_AGED = (
    ("sweep_keys", "next_key_expiry", 0.0),
    ("sweep_receipts", "next_receipt_expiry", 0.0),
    ("sweep_staged", "next_staged_expiry", 0.0),
    ("sweep_access_keys", "next_access_key", 0.0),
    ("sweep_sessions", "next_session", 0.0),
    ("sweep_audit", "next_audit", 0.0),
    ("sweep_lease_history", "next_lease_history", KEEP_LEASE_HISTORY_SECONDS),
    ("sweep_failures", "next_failure", KEEP_LEASE_HISTORY_SECONDS),
    ("sweep_samples", "next_sample", KEEP_SAMPLES_SECONDS),
    ("sweep_past", "next_past", PAST_SECONDS + KEYFRAME_SECONDS),
    ("sweep_trace_events", "next_trace_event", TRACE_EVENTS_SECONDS),
    ("sweep_retention_history", "next_retention_history", KEEP_RETENTION_HISTORY_SECONDS),
    ("sweep_replay_history", "next_replay_history", KEEP_REPLAY_HISTORY_SECONDS),
)
_DATA_OF_A_QUEUE = (
    "strip_message",
    "strip_dead_letter",
    "strip_dedup",
    "strip_scheduled",
    "strip_partition_lease",
    "strip_set_lease",
    "strip_consumer_group",
    "strip_lease_history",
    "strip_failures",
    "strip_retention_history",
    "strip_sample",
    "strip_forgotten",
)


def promote(session: Session, key: QueueKey, now: Instant, limit: int) -> Chore:
    """Let scheduled messages that are due enter the log, oldest due first."""
    queue = session.queue(key)
    rows = list[Row]()
    left = scheduled.STEP_BYTES
    due = session.db.execute(SQL["due"], (queue.id, now, limit))
    for *row, size_bytes in due:
        rows.append(tuple(row))
        if (left := left - size_bytes) <= 0:
            break
    due.close(True)
    enter_log(session, queue, rows, now)
    following = session.row(SQL["next_due"], (queue.id,))
    if following is None:
        return Chore(len(rows))
    return Chore(len(rows), following[0] <= now, following[0])


def expire(session: Session, key: QueueKey, now: Instant, limit: int) -> Chore:
    """Settle messages past max_age or max_wait, and bury those whose attempts ran out with their lease."""
    queue = session.queue(key)
    settled_unread = settles_unread(queue.key.name, queue.settings, queue.holds_dead_letters)
    if queue.settings.max_age_seconds > 0 and not session.groups(queue) and session.unsettled(queue) and settled_unread:
        session.make_group(queue, QUEUE_MODE_GROUP, queue.first_seq - 1, now)
    left = limit
    undiscovered = False
    for group in [group for group in session.groups(queue).values() if not group.external]:
        if queue.lifetime_micros is not None:
            discover(session, queue, group, limit, now)
            undiscovered = undiscovered or group.scan_seq < queue.last_seq
        effects = Effects()
        expire_leases = _expire_ordered if queue.is_ordered else _expire_sets
        left -= expire_leases(session, queue, group, effects, left, now)
        apply(session, queue, group, effects, now)
    done = limit - left
    return Chore(done, left <= 0 or undiscovered, _next_expiry(session, queue, now))


def _expire_ordered(
    session: Session, queue: QueueRow, group: GroupRow, effects: Effects, limit: int, now: Instant
) -> int:
    done = 0
    if queue.settings.max_attempts > 0:
        rows = session.rows(LEASES_SQL["run_out_leases"], (group.id, now, queue.settings.max_attempts, limit))
        worn_out = list(map(lease_of_row, rows))
        for lease in worn_out:
            close_run_out(session, queue, group, lease, effects, now)
        save_all(session, worn_out)
        done += len(rows)
    if queue.may_lose:
        run_out = session.db.execute(LEASES_SQL["run_out_leases"], (group.id, now, 0, _ALL))
        leases = ((lease, lease.open) for lease in map(lease_of_row, run_out))
        gone = list(islice(_gone(session, queue, leases), max(0, limit - done)))
        run_out.close()
        for lease in gone:
            close_run_out(session, queue, group, lease, effects, now)
            drop_gone(session, queue, group, lease, now)
            save(session, lease)
            done += 1
    if queue.lifetime_micros is None:
        return done
    for lease in map(lease_of_row, session.rows(LEASES_SQL["expiring_leases"], (group.id, now, limit - done))):
        if done >= limit:
            break
        if lease.token is not None:
            close_run_out(session, queue, group, lease, effects, now)
        done += expire_heads(session, queue, group, lease, effects, limit - done, now)
        save(session, lease)
    return done


def _gone(session: Session, queue: QueueRow, held: Iterable[tuple[T, Iterable[int]]]) -> Iterator[T]:
    """The leases or sets with a message that is no longer in the log; each is given with its seqs."""
    for one, seqs in held:
        if any(session.row(LEASES_SQL["created_at"], (queue.base | seq,)) is None for seq in seqs):
            yield one


def _expire_sets(session: Session, queue: QueueRow, group: GroupRow, effects: Effects, limit: int, now: Instant) -> int:
    done = 0
    if queue.settings.max_attempts > 0:
        rows = session.rows(SETS_SQL["run_out_sets"], (group.id, now, queue.settings.max_attempts, limit))
        for held in map(set_of_row, rows):
            if done >= limit:
                break
            done += len(held.seqs)
            run_out_set(held, queue.settings, effects)
            save_set(session, held)
    if queue.may_lose and done < limit:
        run_out = session.db.execute(SETS_SQL["run_out_sets"], (group.id, now, 0, _ALL))
        sets = ((held, held.seqs) for held in map(set_of_row, run_out))
        gone = list(islice(_gone(session, queue, sets), limit - done))
        run_out.close()
        for held in gone:
            run_out_set(held, queue.settings, effects)
            read_set(session, queue, group, held)
            refresh_age(session, queue, held)
            save_set(session, held)
            done += 1
    if queue.lifetime_micros is None or done >= limit:
        return min(done, limit)
    for held in map(set_of_row, session.rows(SETS_SQL["expiring_sets"], (group.id, now, limit - done))):
        if done >= limit:
            break
        if held.is_worn_out(queue.settings):
            continue
        if held.token is not None:
            run_out_set(held, queue.settings, effects)
        messages = read_set(session, queue, group, held)
        _, expired = expire_set(queue, held, messages, effects, limit - done, now)
        done += expired
        save_set(session, held)
    return min(done, limit)


def _next_expiry(session: Session, queue: QueueRow, now: Instant) -> Instant | None:
    """The next deadline of a lease, or expiry of a message, over all groups."""
    names = ("next_deadline", "next_expiry") if queue.is_ordered else ("next_set_deadline", "next_set_expiry")
    file = LEASES_SQL if queue.is_ordered else SETS_SQL
    found = [
        row[0]
        for group in session.groups(queue).values()
        for name in names
        if (row := session.row(file[name], (group.id, now))) is not None
    ]
    return min(found, default=None)


def sweep(session: Session, now: Instant, limit: int) -> Chore:
    """Remove expired and old rows, and the data of deleted queues."""
    left = limit
    due: list[Instant] = []
    for statement, following, kept_seconds in _AGED:
        left -= _delete(session, statement, now - seconds(kept_seconds), left)
        row = session.row(SQL[following])
        if row is not None:
            due.append(Instant(row[0] + seconds(kept_seconds)))
    while left > 0 and (deleted := session.row(SQL["deleted_queue"])) is not None:
        left -= _strip(session, deleted[0], left)
    more = left <= 0 or any(at <= now for at in due) or session.row(SQL["deleted_queue"]) is not None
    return Chore(limit - left, more, min(due, default=None))


def _strip(session: Session, queue_id: int, limit: int) -> int:
    """Remove up to ``limit`` rows of a deleted queue, its own row last; returns how many."""
    done = 0
    for statement in _DATA_OF_A_QUEUE:
        done += _delete(session, statement, queue_id, limit - done)
        if done >= limit:
            return done
    session.db.execute(SQL["strip_queue"], (queue_id,))
    session.cut_log_soon()
    return done + 1


def _delete(session: Session, statement: str, argument: int, limit: int) -> int:
    if limit <= 0:
        return 0
    session.db.execute(SQL[statement], (argument, limit))
    return session.db.changes()
