"""Acks of whole leases, the plain case: the call settles the lease in no other way.

A call acks the lease up to a seq (ACK_THROUGH), or it names all its messages. Completed seqs are cut off the front of the packed seqs
in the lease's row. Any other call goes the way of single messages (`settle`, `settle_sets`), with the same result.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Sequence

from skep.clock import Instant
from skep.model import Outcome, Settlement, SettleResult, SettleStatus
from skep.store.lease import COMPLETED, COMPLETED_FREES_NONE, REFUSED_NOT_IN_LEASE, REFUSED_STALE
from skep.store.outcomes import is_run, kept_acks, kept_sweep
from skep.store.sqlite.leases import ATTEMPTS, LEASED, LEASED_AT, OPEN, LeaseRow, set_leased_head, settle_down
from skep.store.sqlite.session import GroupRow, QueueRow, Row, Session
from skep.store.sqlite.sets import SQL as SETS_SQL

_PARTITION, _SEQS, _ATTEMPTS, _LEASED_AT, _ID = 0, 1, 2, 4, 7
"""Columns of a row of `set_lease`, as they are read."""


def sweep_partition(
    session: Session, queue: QueueRow, group: GroupRow, row: Row, said: Settlement, ended: list[Row], now: Instant
) -> tuple[SettleResult, LeaseRow | None]:
    """Complete the lease in a row up to a seq; returns the answer, and the changed lease (None when it did not change)."""
    held = array("q", row[OPEN])
    done = held[: bisect_right(held, said.seq, 0, row[LEASED])]
    if not done:
        return REFUSED_NOT_IN_LEASE, None
    ended.append(_ended(queue, group, said, done, row[ATTEMPTS], row[LEASED_AT], _swept(said, done), now))
    lease = _without(session, queue, group, row, held, len(done), now)
    return _completed(session, group, len(done), not lease.leased and not lease.is_empty), lease


def complete_named(
    session: Session,
    queue: QueueRow,
    group: GroupRow,
    row: Row,
    said: Sequence[Settlement],
    ended: list[Row],
    now: Instant,
) -> tuple[SettleResult, LeaseRow] | None:
    """Complete the lease in a row if the acks name all its messages, in order; returns the answer of each ack, and the changed lease.

    None for all other settlements, which go the way of single messages.
    """
    held = array("q", row[OPEN])
    done = held[: row[LEASED]]
    if len(said) != len(done):
        return None
    for one, seq in zip(said, done, strict=True):
        if one.seq != seq or one.outcome is not Outcome.ACK:
            return None
    ended.append(_ended(queue, group, said[0], done, row[ATTEMPTS], row[LEASED_AT], kept_acks(done), now))
    lease = _without(session, queue, group, row, held, len(done), now)
    group.completed += len(done)
    session.touch_group(group)
    return COMPLETED_FREES_NONE if lease.is_empty else COMPLETED, lease


def _without(
    session: Session, queue: QueueRow, group: GroupRow, row: Row, held: array[int], done: int, now: Instant
) -> LeaseRow:
    """The lease in a row without its first ``done`` messages. The lease ends when it holds no other."""
    values = list(row)
    values[OPEN] = held[done:].tolist()
    lease = LeaseRow(*values)
    lease.leased -= done
    if lease.leased:
        set_leased_head(session, queue, lease)
    else:
        settle_down(session, queue, group, lease, now)
    return lease


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
    """Complete leases of an unordered queue, all under one token. Returns the indexes of acks that it leaves to `settle_sets`.

    These are acks of a part of a lease, and all later acks of the same partition.
    """
    leases: dict[str, list[Row]] = {}
    for row in session.rows(SETS_SQL["sets_of_token"], (group.id, token)):
        leases.setdefault(row[_PARTITION], []).append(row)
    completed: set[str] = set()
    left: list[int] = []
    for i, ack in enumerate(said):
        if ack.partition in completed:
            results[places[i]] = REFUSED_NOT_IN_LEASE
            continue
        rows = leases.get(ack.partition, [])
        held = [array("q", row[_SEQS]) for row in rows]
        if any(seqs[-1] > ack.seq for seqs in held) or ack.partition in {said[other].partition for other in left}:
            left.append(i)
        elif rows:
            completed.add(ack.partition)
            for row, seqs in zip(rows, held, strict=True):
                session.db.execute(SETS_SQL["delete_set"], (row[_ID],))
                ended.append(_ended(queue, group, ack, seqs, row[_ATTEMPTS], row[_LEASED_AT], _swept(ack, seqs), now))
            results[places[i]] = _completed(session, group, sum(map(len, held)), False)
        else:
            results[places[i]] = REFUSED_STALE
    return left


def _ended(
    queue: QueueRow,
    group: GroupRow,
    said: Settlement,
    seqs: array[int],
    attempt: int,
    leased_at: int,
    kept: bytes | None,
    now: Instant,
) -> Row:
    """The row of the lease history."""
    figures = (seqs[0], seqs[-1], len(seqs), len(seqs), attempt, leased_at, now, "completed")
    return (queue.id, group.name, said.partition, *figures, said.token, kept)


def _swept(said: Settlement, seqs: array[int]) -> bytes:
    """The record of an ack that completed these seqs without naming them."""
    return kept_sweep(said.seq, None if is_run(seqs) else seqs.tobytes())


def _completed(session: Session, group: GroupRow, messages: int, frees: bool) -> SettleResult:
    group.completed += messages
    session.touch_group(group)
    return SettleResult(SettleStatus.COMPLETED, frees=frees, messages=messages)
