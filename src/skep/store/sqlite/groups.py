"""Groups: seeking, progress reports, deleting; also clearing queues and ending leases."""

from __future__ import annotations

from collections.abc import Mapping

from skep.clock import Instant
from skep.model import Cleared, ClearScope, GroupStats, QueueKey, Seq, Start, Token
from skep.store.rules import check_reported, group_is_not_external
from skep.store.sqlite import outcomes
from skep.store.sqlite.discover import start_seq
from skep.store.sqlite.leases import SQL as LEASES_SQL
from skep.store.sqlite.leases import count_expired, lease_of_row, save
from skep.store.sqlite.session import GroupRow, QueueRow, Session
from skep.store.sqlite.sets import SQL as SETS_SQL
from skep.store.sqlite.sets import save_set, set_of_row
from skep.store.sqlite.stats import group_stats
from skep.store.statements import load_statements

SQL = load_statements(__package__, "groups")


def seek(session: Session, key: QueueKey, group: str, start: Start, now: Instant) -> GroupStats:
    """Move a group, or make it: its leases end, and its counters start again."""
    queue = session.queue(key)
    before = start_seq(session, queue, start) - 1
    found = session.find_group(queue, group)
    if found is None:
        found = session.make_group(queue, group, before, now)
    else:
        _drop_rows(session, found)
        found.start_seq = found.scan_seq = before
        found.active_at, found.idle = now, 0
        found.completed = found.dead = found.expired = found.retried = 0
        found.skipped = found.gaps = session.gaps_after(queue, before)
        if found.archived_seq is not None:  # an archive that is moved back may have lost what is beyond
            found.archived_seq = min(found.archived_seq, before)
        session.touch_group(found)
    return group_stats(session, queue, found, now)


def report_progress(
    session: Session, key: QueueKey, group: str, seq: int, now: Instant, archived: bool = False
) -> GroupStats:
    """Move an external group forward, or make it."""
    queue = session.queue(key)
    return group_stats(session, queue, _report(session, queue, group, seq, now, archived), now)


def report_progress_of_logs(
    session: Session, tenant: str, group: str, seqs: Mapping[str, Seq], now: Instant, archived: bool = False
) -> dict[str, Seq]:
    """Move an external group forward in many logs, or make it there."""
    found = session.find_queues(tenant, seqs)
    return {
        name: Seq(_report(session, queue, group, seqs[name], now, archived).scan_seq) for name, queue in found.items()
    }


def _report(session: Session, queue: QueueRow, group: str, seq: int, now: Instant, archived: bool) -> GroupRow:
    check_reported(queue.key.name, seq, queue.last_seq)
    found = session.find_group(queue, group)
    if found is None:
        found = session.make_group(queue, group, max(seq, queue.first_seq - 1), now, external=True)
    elif not found.external:
        raise group_is_not_external(queue.key.name, group)
    elif seq > found.scan_seq:
        # An external group reads the messages for other groups, too. Gaps are counted already.
        gaps = seq - found.scan_seq - session.messages_between(queue, found.scan_seq, seq) if found.gaps else 0
        known = min(gaps, found.gaps)
        found.completed += seq - found.scan_seq - known
        found.gaps -= known
        found.scan_seq = seq
        session.touch_group(found)
    if archived and (found.archived_seq is None or seq > found.archived_seq):
        found.archived_seq = seq
        session.touch_group(found)
    session.mark_active(found, now)
    return found


def delete_group(session: Session, key: QueueKey, group: str, now: Instant) -> bool:
    """Delete a group, its leases and its kept answers; False when there is none."""
    queue = session.queue(key)
    found = session.find_group(queue, group)
    if found is None:
        return False
    _drop_rows(session, found)
    outcomes.forget(session, queue, found, now)
    session.db.execute(SQL["delete_group"], (found.id,))
    session.drop_group(queue, found)
    return True


def clear(session: Session, key: QueueKey, scope: ClearScope, now: Instant) -> Cleared:
    """Settle pending messages as expired (ALL: leased ones, too), and delete scheduled ones, by scope."""
    queue = session.queue(key)
    taken = dropped = 0
    if scope is not ClearScope.SCHEDULED:
        groups = session.groups(queue).values()
        taken = 0 if groups else session.unsettled(queue)
        for group in groups:
            taken += _clear_group(session, queue, group, scope is ClearScope.ALL, now)
        queue.first_seq, queue.gaps = queue.last_seq + 1, 0
    if scope is not ClearScope.PENDING:
        dropped = queue.scheduled
        session.db.execute(SQL["delete_scheduled"], (queue.id,))
        queue.scheduled = 0
    session.touch_queue(queue)
    return Cleared(taken, dropped)


def _clear_group(session: Session, queue: QueueRow, group: GroupRow, leased_too: bool, now: Instant) -> int:
    """Count unsettled messages as expired, those under live leases only with ``leased_too``; returns how many."""
    unsettled = group.unsettled(queue.last_seq)
    if leased_too:
        _drop_rows(session, group)
        kept = 0
    elif queue.is_ordered:
        kept = _keep_live_partitions(session, queue, group, now)
    else:
        kept = _keep_live_sets(session, group, now)
    group.scan_seq, group.gaps = queue.last_seq, 0
    session.touch_group(group)
    count_expired(session, group, unsettled - kept)
    return unsettled - kept


def _keep_live_partitions(session: Session, queue: QueueRow, group: GroupRow, now: Instant) -> int:
    """Keep only the messages under live leases; returns how many."""
    kept = 0
    for row in session.rows(LEASES_SQL["leases_of_group"], (group.id,)):
        lease = lease_of_row(row)
        lease.open = lease.open[: lease.leased] if lease.is_live(now) else []
        lease.pending = 0
        # All messages up to here are settled; the next ones are searched beyond.
        lease.delivered_seq = queue.last_seq
        kept += len(lease.open)
        save(session, lease)
    return kept


def _keep_live_sets(session: Session, group: GroupRow, now: Instant) -> int:
    kept = 0
    for row in session.rows(SETS_SQL["sets_of_group"], (group.id,)):
        held = set_of_row(row)
        if held.is_live(now):
            kept += len(held.seqs)
        else:
            held.seqs = []
            save_set(session, held)
    return kept


def _drop_rows(session: Session, group: GroupRow) -> None:
    session.db.execute(LEASES_SQL["delete_leases_of_group"], (group.id,))
    session.db.execute(SETS_SQL["delete_sets_of_group"], (group.id,))


def end_leases(session: Session, key: QueueKey, group: str, partition: str, now: Instant) -> int:
    """Let the leases of a partition run out now; returns how many. The next pop ends them."""
    queue = session.queue(key)
    found = session.find_group(queue, group)
    if found is None:
        return 0
    statement = "end_lease" if queue.is_ordered else "end_sets"
    session.db.execute(SQL[statement], (found.id, queue.stored_partition(partition), now))
    return session.db.changes()


def release_lease(session: Session, key: QueueKey, group: str, partition: str, token: Token, now: Instant) -> int:
    """Let the leases of a token run out now, and fence the token; returns how many."""
    queue = session.queue(key)
    found = session.find_group(queue, group)
    if found is None:
        return 0
    return release(session, queue, found, partition, token, now)


def release(session: Session, queue: QueueRow, group: GroupRow, partition: str, token: Token, now: Instant) -> int:
    """Like `release_lease`, for a known group."""
    statement = "release_lease" if queue.is_ordered else "release_sets"
    session.db.execute(SQL[statement], (group.id, queue.stored_partition(partition), token, now))
    return session.db.changes()
