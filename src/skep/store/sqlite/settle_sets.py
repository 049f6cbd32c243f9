"""Settling in unordered queues: each message leaves its row alone, and the others of its lease are not affected."""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy

from msgspec import structs

from skep.clock import Instant
from skep.model import Renewal, Settlement, SettleResult
from skep.store.lease import Effects, Ending, SettledSet, settle_sets
from skep.store.outcomes import kept_answers
from skep.store.sqlite.bury import apply_settled
from skep.store.sqlite.leases import SQL as LEASES_SQL
from skep.store.sqlite.leases import count_expired
from skep.store.sqlite.session import GroupRow, QueueRow, Session
from skep.store.sqlite.sets import SQL, SetRow, refresh_age, save_set, set_of_row, split_off, take_back


def settle_held_sets(
    session: Session, queue: QueueRow, group: GroupRow, token: bytes, said: Sequence[Settlement], now: Instant
) -> tuple[list[SettleResult], list[Ending]]:
    """Settle messages of one token; returns a result for each, and the endings of its sets, for the history."""
    held = [set_of_row(row) for row in session.rows(SQL["sets_of_token"], (group.id, token))]
    effects = Effects()
    results, settled = settle_sets(held, said, queue.settings, now, effects)
    for one in settled:
        _write_back(session, queue, group, one, now)
    answers, endings = apply_settled(session, queue, group, results, effects, now)
    answered = list(zip(said, answers, strict=True))
    return answers, [
        structs.replace(ending, answer=kept_answers([pair for pair in answered if pair[0].seq in one.fates], one.swept))
        for ending, one in zip(endings, settled, strict=True)
    ]


def _write_back(session: Session, queue: QueueRow, group: GroupRow, one: SettledSet[SetRow], now: Instant) -> None:
    """Remove settled messages from a row. Messages to retry, and those that reached nobody, get rows of their own."""
    row, left, released = one.of, one.left, one.released
    for seq, result, error in one.retries:
        found = session.row(LEASES_SQL["created_at"], (queue.base | seq,))
        if found is None:
            count_expired(session, group, 1)
        else:
            assert result.retry_at is not None
            split_off(session, queue, row, [seq], found[0], result.retry_at, error, said_at=now)
    if released:
        take_back(session, queue, group, row, released, now)
    row.seqs = left
    refresh_age(session, queue, row)
    save_set(session, row)


def renew_sets(
    session: Session, queue: QueueRow, group: GroupRow, renewal: Renewal, deadline: Instant, now: Instant
) -> bool:
    """Move the deadline of a token's rows in one partition, or of one of its messages; False when there are none."""
    if renewal.seq is not None and not _set_apart(session, queue, group, renewal):
        return False
    wanted = (group.id, renewal.token, renewal.partition, deadline, now, renewal.seq)
    session.db.execute(SQL["renew_sets"], wanted)
    return session.db.changes() > 0


def _set_apart(session: Session, queue: QueueRow, group: GroupRow, renewal: Renewal) -> bool:
    """Give a leased message a row of its own under the same lease; False when the lease has no such message."""
    for row in session.rows(SQL["sets_of_token"], (group.id, renewal.token)):
        held, seq = set_of_row(row), renewal.seq
        if held.partition == renewal.partition and seq in held.seqs:
            if len(held.seqs) > 1:
                apart = copy(held)
                found = session.row(LEASES_SQL["created_at"], (queue.base | seq,))
                split_off(session, queue, held, [seq], held.oldest_at if found is None else found[0], 0, None)
                apart.id, apart.seqs = session.db.last_insert_rowid(), [seq]
                for one in (held, apart):
                    refresh_age(session, queue, one)
                    save_set(session, one)
            return True
    return False
