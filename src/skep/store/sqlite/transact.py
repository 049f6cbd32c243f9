"""Settlements, pushes, effects and receipts that happen together or not at all (I15)."""

from __future__ import annotations

from collections.abc import Sequence

from skep.clock import Instant
from skep.errors import Code
from skep.model import SettleStatus
from skep.store.rules import in_conflict, undone
from skep.store.sqlite import entities, order, receipts
from skep.store.sqlite.push import push_batch
from skep.store.sqlite.session import Session
from skep.store.sqlite.settle import settle
from skep.transactions import Transaction, TransactionOutcome


def transact(
    session: Session, transactions: Sequence[Transaction], now: Instant, create_queues: bool
) -> list[TransactionOutcome]:
    """Each transaction in a savepoint of its own; any refusal in it undoes all of it."""
    return [_transact_one(session, transaction, now, create_queues) for transaction in transactions]


def _transact_one(session: Session, transaction: Transaction, now: Instant, create_queues: bool) -> TransactionOutcome:
    try:
        with session.savepoint():
            order.check_batch(session, transaction.push)
            _record(session, transaction, now)
            settled = settle(session, transaction.settlements, now)
            pushed = push_batch(session, transaction.push, now, create_queues)
            if pushed.refused or any(result.status is SettleStatus.REFUSED for result in settled):
                raise _RefusedError(undone(transaction, settled, pushed))
    except _RefusedError as refused:
        return refused.outcome
    return TransactionOutcome(True, settled, pushed)


def _record(session: Session, transaction: Transaction, now: Instant) -> None:
    if transaction.receipts and not receipts.take_all(session, transaction.receipts, now):
        raise _RefusedError(in_conflict(transaction, Code.RECEIPT_EXISTS, _first_taken(session, transaction, now)))
    if transaction.effects:
        changed = entities.apply(session, transaction.effects, now)
        if changed is not None:
            raise _RefusedError(in_conflict(transaction, Code.ENTITY_CHANGED, changed))


def _first_taken(session: Session, transaction: Transaction, now: Instant) -> int:
    """Which receipt is the first that lives, or that the transaction names a second time."""
    keys = [receipt.key for receipt in transaction.receipts]
    found = receipts.receipts(session, keys, now)
    return next(i for i, key in enumerate(keys) if found[i] is not None or key in keys[:i])


class _RefusedError(Exception):
    """Undoes the transaction and carries what its caller is told."""

    def __init__(self, outcome: TransactionOutcome) -> None:
        super().__init__("refused")
        self.outcome = outcome
