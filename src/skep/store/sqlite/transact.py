"""Settlements, pushes, effects and receipts that happen together or not at all (I15)."""

from __future__ import annotations

from collections.abc import Sequence

from skep.clock import Instant
from skep.errors import Code, SkepError
from skep.model import SettleStatus
from skep.model.transaction import Transaction, TransactionOutcome
from skep.store.outcomes import is_remembered, with_transaction
from skep.store.rules import in_conflict, undone
from skep.store.sqlite import entities, order, receipts
from skep.store.sqlite.outcomes import recall_transaction
from skep.store.sqlite.push import push_batch
from skep.store.sqlite.session import Row, Session
from skep.store.sqlite.settle import settle_new


def transact(
    session: Session, transactions: Sequence[Transaction], now: Instant, create_queues: bool = True
) -> list[TransactionOutcome]:
    """Commit each transaction in a savepoint of its own; any refusal in it undoes all of it.

    A repeat of a committed transaction changes nothing, and gets the first answer.
    """
    return [_transact_one(session, transaction, now, create_queues) for transaction in transactions]


def _transact_one(session: Session, transaction: Transaction, now: Instant, create_queues: bool) -> TransactionOutcome:
    try:
        with session.savepoint():
            order.check_batch(session, transaction.push)
            _record(session, transaction, now)
            settled, ended = settle_new(session, transaction.settlements, now)
            pushed = push_batch(session, transaction.push, now, create_queues)
            if pushed.refused or any(result.status is SettleStatus.REFUSED for result in settled):
                raise _RefusedTransactionError(undone(transaction, settled, pushed))
            outcome = TransactionOutcome(True, settled, pushed)
            _note(session, transaction, outcome, ended)
    except _RefusedTransactionError as refused:
        outcome = refused.outcome
    except SkepError as error:
        # Operations are ahead of the transaction. A repeat of a committed one overtakes none of them.
        if error.code is not Code.OPERATIONS_AHEAD or not is_remembered(transaction):
            raise
        before = recall_transaction(session, transaction, now)
        if before is None:
            raise
        return before
    if not outcome.committed and is_remembered(transaction):
        return recall_transaction(session, transaction, now) or outcome
    return outcome


def _note(session: Session, transaction: Transaction, outcome: TransactionOutcome, ended: list[Row]) -> None:
    """Add the ended leases to the history; the row of the first settlement's lease keeps the outcome of the transaction."""
    first = transaction.settlements[0] if is_remembered(transaction) else None
    queue = None if first is None else session.find_queue(first.queue)
    for row in ended:
        *lease, token, kept = row
        # One pop may have leased messages of several queues under one token.
        if (
            first is not None
            and queue is not None
            and (lease[0], lease[1], token) == (queue.id, first.group, first.token)
        ):
            first, kept = None, with_transaction(kept, transaction, outcome)
        session.add_history((*lease, token, kept))


def _record(session: Session, transaction: Transaction, now: Instant) -> None:
    if transaction.receipts and not receipts.take_all(session, transaction.receipts, now):
        raise _RefusedTransactionError(
            in_conflict(transaction, Code.RECEIPT_EXISTS, _first_taken(session, transaction, now))
        )
    if transaction.effects:
        changed = entities.apply(session, transaction.effects, now)
        if changed is not None:
            raise _RefusedTransactionError(in_conflict(transaction, Code.ENTITY_CHANGED, changed))


def _first_taken(session: Session, transaction: Transaction, now: Instant) -> int:
    """The index of the first receipt that exists already, or that the transaction names a second time."""
    keys = [receipt.key for receipt in transaction.receipts]
    found = receipts.receipts(session, keys, now)
    return next(i for i, key in enumerate(keys) if found[i] is not None or key in keys[:i])


class _RefusedTransactionError(Exception):
    """Undoes the transaction, and carries the outcome for its caller."""

    def __init__(self, outcome: TransactionOutcome) -> None:
        super().__init__("refused")
        self.outcome = outcome
