"""Repeats: a settlement or transaction that was made before gets its first answer (`skep.store.outcomes`).

Only the newest rows of the lease history are searched, by their position, and only after a refusal.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from skep.clock import Instant, seconds
from skep.model import QueueKey, Settlement, SettleResult
from skep.model.transaction import Transaction, TransactionOutcome
from skep.store.outcomes import LOST, REMEMBER_SECONDS, REMEMBERED_LEASES, LeaseHistoryRow, Remembered
from skep.store.sqlite.log_position import first_since
from skep.store.sqlite.session import GroupRow, QueueRow, Session
from skep.store.statements import load_statements

SQL = load_statements(__package__, "outcomes")

_TOKENS = (1, 10, 100, 1_000)
"""How many tokens one statement searches for: the smallest size that fits. The last token is repeated to fill it."""


def recall(
    session: Session, settlements: Sequence[Settlement], results: list[SettleResult], now: Instant
) -> list[SettleResult]:
    """The results, with the first answer in place of the refusal of a repeated settlement."""
    lost: dict[tuple[QueueKey, str], list[int]] = {}
    for place, result in enumerate(results):
        if result.code in LOST:
            lost.setdefault((settlements[place].queue, settlements[place].group), []).append(place)
    if not lost:
        return results
    session.flush()  # a message may be named twice in one call
    results = list(results)
    for (key, name), places in lost.items():
        queue = session.find_queue(key)
        group = None if queue is None else session.find_group(queue, name)
        if queue is None or group is None:
            continue
        found = remembered(session, queue, group, {settlements[place].token for place in places}, now)
        for place in places:
            answer = found.answer(settlements[place], queue.is_ordered)
            if answer is not None:
                results[place] = answer
    return results


def recall_transaction(session: Session, transaction: Transaction, now: Instant) -> TransactionOutcome | None:
    """The first answer of a transaction that was committed before; None when it was not."""
    first = transaction.settlements[0]
    queue = session.find_queue(first.queue)
    group = None if queue is None else session.find_group(queue, first.group)
    if queue is None or group is None:
        return None
    return remembered(session, queue, group, {first.token}, now).outcome(transaction)


def remembered(session: Session, queue: QueueRow, group: GroupRow, tokens: Iterable[bytes], now: Instant) -> Remembered:
    """The kept answers of a group for these tokens, up to `REMEMBER_SECONDS` old."""
    since = now - seconds(REMEMBER_SECONDS)
    first = _first_position(session, since)
    left = list(tokens)
    rows: list[LeaseHistoryRow] = []
    while left:
        size = next((size for size in _TOKENS if size >= len(left)), _TOKENS[-1])
        some, left = left[:size], left[size:]
        statement = SQL["remembered"].format(", ".join(["?"] * size))
        padded = some + some[-1:] * (size - len(some))
        found = session.rows(statement, (first, since, queue.id, group.name, *padded))
        rows += [
            LeaseHistoryRow(token, partition, low, high, completed, None, kept)
            for token, partition, low, high, completed, kept in found
        ]
    return Remembered(rows)


def forget(session: Session, queue: QueueRow, group: GroupRow, now: Instant) -> None:
    """Forget the kept answers of a deleted group."""
    session.flush()
    session.db.execute(SQL["forget"], (_first_position(session, now - seconds(REMEMBER_SECONDS)), queue.id, group.name))


def _first_position(session: Session, since: int) -> int:
    """The first position to search: by binary search among the newest `REMEMBERED_LEASES` rows, which are in order of time."""
    newest = session.row(SQL["newest"])
    if newest is None:
        return 0
    end = newest[0] + 1
    oldest = max(0, end - REMEMBERED_LEASES)
    return first_since(lambda position: session.row(SQL["ended_at"], (position,)), oldest, end, since)
