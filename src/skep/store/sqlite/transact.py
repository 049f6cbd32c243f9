"""Settlements and pushes that happen together or not at all (I15)."""

from __future__ import annotations

from collections.abc import Sequence

from skep.clock import Instant
from skep.errors import Code
from skep.model import (
    PushOutcome,
    PushResult,
    PushStatus,
    SettleResult,
    SettleStatus,
)
from skep.store.sqlite.push import push_batch
from skep.store.sqlite.session import Session
from skep.store.sqlite.settle import settle
from skep.transactions import Transaction, TransactionOutcome

_HELD_BACK = SettleResult(SettleStatus.REFUSED, Code.BATCH_REFUSED)


def transact(
    session: Session, transactions: Sequence[Transaction], now: Instant, create_queues: bool
) -> list[TransactionOutcome]:
    """Each transaction in a savepoint of its own; any refusal in it undoes all of it."""
    return [_transact_one(session, transaction, now, create_queues) for transaction in transactions]


def _transact_one(session: Session, transaction: Transaction, now: Instant, create_queues: bool) -> TransactionOutcome:
    try:
        with session.savepoint():
            settled = settle(session, transaction.settlements, now)
            pushed = push_batch(session, transaction.push, now, create_queues)
            if pushed.refused or any(result.status is SettleStatus.REFUSED for result in settled):
                raise _RefusedError(settled, pushed)
    except _RefusedError as refused:
        return TransactionOutcome(
            False,
            [result if result.status is SettleStatus.REFUSED else _HELD_BACK for result in refused.settled],
            PushOutcome([_held_back(result) for result in refused.pushed.results], {}),
        )
    return TransactionOutcome(True, settled, pushed)


def _held_back(result: PushResult) -> PushResult:
    """What stood in the way says so; the rest was refused for its sake."""
    if result.status is PushStatus.REFUSED:
        return result
    return PushResult(
        PushStatus.REFUSED,
        result.id,
        transaction_id=result.transaction_id,
        trace_id=result.trace_id,
        code=Code.BATCH_REFUSED,
        reason="another part of the transaction was refused",
    )


class _RefusedError(Exception):
    """Undoes the transaction and carries what its parts said."""

    def __init__(self, settled: list[SettleResult], pushed: PushOutcome) -> None:
        super().__init__("refused")
        self.settled = settled
        self.pushed = pushed
