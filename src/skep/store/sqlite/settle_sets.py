"""Settling in unordered queues: each message leaves its row alone, and the others of its lease are not affected."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct, structs

from skep.clock import Instant
from skep.errors import Code
from skep.model import DeadReason, Outcome, Settlement, SettleResult, SettleStatus
from skep.store.outcomes import Mark, Swept, kept_acks, kept_answers
from skep.store.rules import is_exhausted, retry_time
from skep.store.sqlite.bury import Burial, bury
from skep.store.sqlite.leases import SQL as LEASES_SQL
from skep.store.sqlite.leases import count_expired
from skep.store.sqlite.session import GroupRow, QueueRow, Row, Session
from skep.store.sqlite.sets import (
    SQL,
    SetLease,
    refresh_age,
    save_set,
    set_of_row,
    split_off,
    take_back,
)

_COMPLETED = SettleResult(SettleStatus.COMPLETED, frees=False)
_STALE = SettleResult(SettleStatus.REFUSED, Code.STALE_LEASE)
_NOT_IN_LEASE = SettleResult(SettleStatus.REFUSED, Code.NOT_IN_LEASE)


class Touched(Struct):
    """A row that a call settles messages of, and which."""

    row: SetLease
    acked: set[int]
    buried: set[int]
    retried: set[int]
    released: set[int]
    swept: Swept


Placed = Sequence[tuple[int, Settlement]]
"""Settlements, each with its place in the call's results."""


def settle_sets(
    session: Session,
    queue: QueueRow,
    group: GroupRow,
    token: bytes,
    items: Placed,
    whole: Placed,
    results: list[SettleResult],
    now: Instant,
) -> list[Row]:
    """Settle what one token holds, messages and then what is left of whole leases; results of a token that holds nothing stay as they are, stale.

    Returns the rows that the lease history is to get.
    """
    held = [set_of_row(row) for row in session.rows(SQL["sets_of_token"], (group.id, token))]
    if not held:
        return []
    row_of = {seq: row for row in held for seq in row.seqs}
    touched: dict[int, Touched] = {}
    for index, settlement in items:
        row = row_of.pop(settlement.seq, None)
        if row is None:
            results[index] = _NOT_IN_LEASE
            continue
        done = _touch(touched, row)
        if settlement.outcome is Outcome.ACK:
            done.acked.add(settlement.seq)
            results[index] = _COMPLETED
        elif settlement.outcome is Outcome.RELEASE:
            done.released.add(settlement.seq)
            results[index] = SettleResult(SettleStatus.RETRYING, retry_at=now)
        else:
            results[index] = _give_back(session, queue, group, done, settlement, now)
    for index, settlement in whole:
        results[index] = _sweep(touched, held, row_of, settlement)
    return [_close(session, queue, group, done, token, items, results, now) for done in touched.values()]


def _touch(touched: dict[int, Touched], row: SetLease) -> Touched:
    return touched.setdefault(row.id, Touched(row, set(), set(), set(), set(), Swept()))


def _sweep(
    touched: dict[int, Touched], held: list[SetLease], left: dict[int, SetLease], said: Settlement
) -> SettleResult:
    """Ack what is ``left`` of one lease up to a seq."""
    rows = [row for row in held if row.partition == said.partition]
    if not rows:
        return _STALE
    messages = 0
    for row in rows:
        seqs = [seq for seq in row.seqs if seq <= said.seq and seq in left]
        if seqs:
            done = _touch(touched, row)
            done.acked.update(seqs)
            done.swept.seqs += seqs
            done.swept.marks.append(Mark(said.seq, len(seqs)))
            messages += len(seqs)
            for seq in seqs:
                del left[seq]
    return structs.replace(_COMPLETED, messages=messages) if messages else _NOT_IN_LEASE


def _give_back(
    session: Session, queue: QueueRow, group: GroupRow, done: Touched, settlement: Settlement, now: Instant
) -> SettleResult:
    """Bury a message, or move it to a row of its own with a later time."""
    seq, row = int(settlement.seq), done.row
    rejected = settlement.outcome is Outcome.REJECT
    is_over = rejected or is_exhausted(queue.settings, row.attempts)
    session.add_failures(queue, group, row, [seq], "dead" if is_over else "retried", settlement.error, now)
    if is_over:
        reason = DeadReason.REJECTED if rejected else DeadReason.MAX_ATTEMPTS
        name = bury(session, queue, group, [Burial(seq, reason, settlement.error, row.attempts)], now)
        row.seqs.remove(seq)
        done.buried.add(seq)
        status = SettleStatus.DISCARDED if name is None else SettleStatus.DEAD
        return SettleResult(status, dead_letter_queue=name)
    ready_at = retry_time(queue.settings, settlement, row.attempts, now)
    found = session.row(LEASES_SQL["created_at"], (queue.base | seq,))
    if found is None:
        row.seqs.remove(seq)
        count_expired(session, group, 1)
    else:
        split_off(session, queue, row, [seq], found[0], ready_at, settlement.error, said_at=now)
    done.retried.add(seq)
    group.retried += 1
    session.touch_group(group)
    return SettleResult(SettleStatus.RETRYING, retry_at=ready_at)


def _close(
    session: Session,
    queue: QueueRow,
    group: GroupRow,
    done: Touched,
    token: bytes,
    items: Placed,
    results: list[SettleResult],
    now: Instant,
) -> Row:
    """Take the acked out of the row; what this call did to it, for the history."""
    row = done.row
    before = (row.attempts, row.leased_at, now)
    if done.acked:
        group.completed += len(done.acked)
        session.touch_group(group)
        row.seqs = [seq for seq in row.seqs if seq not in done.acked]
    if done.released:
        take_back(session, queue, group, row, sorted(done.released), now)
    outcome = "retried" if done.retried else "dead" if done.buried else "released" if done.released else "completed"
    seqs = sorted([*done.acked, *done.buried, *done.retried, *done.released])
    refresh_age(session, queue, row)
    save_set(session, row)
    if len(seqs) == len(done.acked):
        kept = kept_acks(seqs, done.swept.marks)
    else:
        given_back = set(seqs)
        kept = kept_answers(((s, results[index]) for index, s in items if s.seq in given_back), done.swept)
    figures = (seqs[0], seqs[-1], len(seqs), len(done.acked), *before, outcome)
    return (queue.id, group.name, row.partition, *figures, token, kept)


def renew_sets(
    session: Session, group: GroupRow, partition: str, token: bytes, deadline: Instant, now: Instant
) -> bool:
    """Move the deadline of the token's rows of one partition; whether there were any."""
    session.db.execute(SQL["renew_sets"], (group.id, token, partition, deadline, now))
    return session.db.changes() > 0
