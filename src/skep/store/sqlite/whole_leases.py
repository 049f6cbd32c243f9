"""Acks of whole leases (ACK_THROUGH), the plain case: the call settles the lease in no other way.

The lease's row has the seqs of its messages, so the call need not name them. Completed seqs are cut off the front of the packed seqs,
and go to the lease history unchanged. Any other call goes the way of single messages (`settle`, `settle_sets`), with the same result.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Sequence

from skep.clock import Instant
from skep.model import Settlement, SettleResult, SettleStatus
from skep.store.lease import REFUSED_NOT_IN_LEASE, REFUSED_STALE
from skep.store.outcomes import is_run, kept_sweep
from skep.store.sqlite.leases import LEASED, OPEN, TOKEN, LeaseRow, set_leased_head, settle_down
from skep.store.sqlite.leases import SQL as LEASES_SQL
from skep.store.sqlite.session import GroupRow, QueueRow, Row, Session
from skep.store.sqlite.sets import SQL as SETS_SQL

_PARTITION, _SEQS, _ATTEMPTS, _LEASED_AT, _ID = 0, 1, 2, 4, 7
"""Columns of a row of `set_lease`, as they are read."""


def sweep_partition(
    session: Session, queue: QueueRow, group: GroupRow, said: Settlement, ended: list[Row], now: Instant
) -> tuple[SettleResult, LeaseRow | None]:
    """Complete a lease of a partition up to a seq; returns the answer, and the changed row (None when it did not change)."""
    row = session.row(LEASES_SQL["lease_of_partition"], (group.id, said.partition))
    if row is None or row[TOKEN] != said.token:
        return REFUSED_STALE, None
    held = array("q", row[OPEN])
    done = held[: bisect_right(held, said.seq, 0, row[LEASED])]
    if not done:
        return REFUSED_NOT_IN_LEASE, None
    values = list(row)
    values[OPEN] = held[len(done) :].tolist()
    lease = LeaseRow(*values)
    ended.append(_ended(queue, group, said, done, lease.attempts, lease.leased_at, now))
    lease.leased -= len(done)
    if lease.leased:
        set_leased_head(session, queue, lease)
    else:
        settle_down(session, queue, group, lease, now)
    frees = not lease.leased and bool(lease.open or lease.pending)
    return _completed(session, group, len(done), frees), lease


def sweep_sets(
    session: Session,
    queue: QueueRow,
    group: GroupRow,
    token: bytes,
    said: Sequence[Settlement],
    places: Sequence[int],
    results: list[SettleResult],
    ended: list[Row],
    now: Instant,
) -> list[int]:
    """Complete leases of an unordered queue, all under one token. Returns the indexes of acks that are left to the long way.

    These are acks that would leave a part of the lease, and all later acks of the same partition.
    """
    leases: dict[str, list[Row]] = {}
    for row in session.rows(SETS_SQL["sets_of_token"], (group.id, token)):
        leases.setdefault(row[_PARTITION], []).append(row)
    left: list[int] = []
    for i, ack in enumerate(said):
        rows = leases.get(ack.partition, [])
        held = [array("q", row[_SEQS]) for row in rows]
        if any(seqs[-1] > ack.seq for seqs in held) or ack.partition in {said[other].partition for other in left}:
            left.append(i)
            continue
        leases[ack.partition] = []
        for row, seqs in zip(rows, held, strict=True):
            session.db.execute(SETS_SQL["delete_set"], (row[_ID],))
            ended.append(_ended(queue, group, ack, seqs, row[_ATTEMPTS], row[_LEASED_AT], now))
        results[places[i]] = _completed(session, group, sum(map(len, held)), False) if rows else REFUSED_STALE
    return left


def _ended(
    queue: QueueRow, group: GroupRow, said: Settlement, seqs: array[int], attempt: int, leased_at: int, now: Instant
) -> Row:
    """The row of the lease history."""
    figures = (seqs[0], seqs[-1], len(seqs), len(seqs), attempt, leased_at, now, "completed")
    kept = kept_sweep(said.seq, None if is_run(seqs) else seqs.tobytes())
    return (queue.id, group.name, said.partition, *figures, said.token, kept)


def _completed(session: Session, group: GroupRow, messages: int, frees: bool) -> SettleResult:
    group.completed += messages
    session.touch_group(group)
    return SettleResult(SettleStatus.COMPLETED, frees=frees, messages=messages)
