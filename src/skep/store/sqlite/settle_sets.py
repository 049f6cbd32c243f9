"""Settling in unordered queues: each message leaves its row alone, and the others of its lease are not affected."""

from __future__ import annotations

from skep.clock import Instant
from skep.errors import Code
from skep.model import DeadReason, Outcome, Settlement, SettleResult, SettleStatus
from skep.store.rules import is_exhausted, retry_time
from skep.store.sqlite.bury import Burial, bury
from skep.store.sqlite.leases import SQL as LEASES_SQL
from skep.store.sqlite.session import GroupRow, QueueRow, Session
from skep.store.sqlite.sets import SQL, SetLease, add_set_history, refresh_age, save_set, set_of_row, split_off

_COMPLETED = SettleResult(SettleStatus.COMPLETED)
_NOT_IN_LEASE = SettleResult(SettleStatus.REFUSED, Code.NOT_IN_LEASE)


def settle_sets(
    session: Session,
    queue: QueueRow,
    group: GroupRow,
    token: bytes,
    items: list[tuple[int, Settlement]],
    results: list[SettleResult],
    now: Instant,
) -> None:
    """Settle what one token holds; results of a token that holds nothing stay as they are, stale."""
    held = [set_of_row(row) for row in session.rows(SQL["sets_of_token"], (group.id, token))]
    if not held:
        return
    row_of = {seq: row for row in held for seq in row.seqs}
    touched: dict[int, SetLease] = {}
    acked: set[int] = set()
    # Acks and rejects first: a nack of the same message later in the call is then not in the lease.
    for index, settlement in sorted(items, key=lambda item: item[1].outcome is Outcome.NACK):
        row = row_of.pop(settlement.seq, None)
        if row is None:
            results[index] = _NOT_IN_LEASE
            continue
        touched[row.id] = row
        if settlement.outcome is Outcome.ACK:
            acked.add(settlement.seq)
            row.lease_completed += 1
            results[index] = _COMPLETED
        else:
            results[index] = _give_back(session, queue, group, row, settlement, now)
    if acked:
        group.completed += len(acked)
        session.touch_group(group)
    for row in touched.values():
        _close(session, queue, group, row, acked, now)


def _give_back(
    session: Session, queue: QueueRow, group: GroupRow, row: SetLease, settlement: Settlement, now: Instant
) -> SettleResult:
    """Bury a message, or move it to a row of its own with a later time."""
    seq = int(settlement.seq)
    rejected = settlement.outcome is Outcome.REJECT
    if rejected or is_exhausted(queue.settings, row.attempts):
        reason = DeadReason.REJECTED if rejected else DeadReason.MAX_ATTEMPTS
        name = bury(session, queue, group, [Burial(seq, reason, settlement.error, row.attempts)], now)
        row.seqs.remove(seq)
        row.lease_dead += 1
        status = SettleStatus.DISCARDED if name is None else SettleStatus.DEAD
        return SettleResult(status, dead_letter_queue=name)
    ready_at = retry_time(queue.settings, settlement, row.attempts, now)
    found = session.row(LEASES_SQL["created_at"], (queue.base | seq,))
    oldest_at = row.oldest_at if found is None else found[0]
    split_off(session, queue, row, [seq], oldest_at, ready_at, settlement.error)
    row.lease_retried += 1
    group.retried += 1
    session.touch_group(group)
    return SettleResult(SettleStatus.RETRYING, retry_at=ready_at)


def _close(session: Session, queue: QueueRow, group: GroupRow, row: SetLease, acked: set[int], now: Instant) -> None:
    """Take the acked out of the row; when that was the last of it, the lease has ended."""
    row.seqs = [seq for seq in row.seqs if seq not in acked]
    if not row.seqs:
        outcome = "dead" if row.lease_dead else "retried" if row.lease_retried else "completed"
        add_set_history(session, queue, group, row, now, outcome)
    else:
        refresh_age(session, queue, row)
    save_set(session, row)


def renew_sets(session: Session, group: GroupRow, partition: str, token: bytes, deadline: Instant) -> bool:
    """Move the deadline of the token's rows of one partition; whether there were any."""
    session.db.execute(SQL["renew_sets"], (group.id, token, partition, deadline))
    return session.db.changes() > 0
