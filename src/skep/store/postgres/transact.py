"""Settlements, pushes, effects and receipts that happen together or not at all (I15).

The order of locks over a whole call: receipts, entities, then groups and logs when there are several transactions, then what
each transaction settles and pushes. Receipts and effects are decided in memory, and written for all transactions together.
"""

from __future__ import annotations

from collections.abc import Sequence

import asyncpg
import msgspec

from skep.clock import Instant
from skep.errors import Code, SkepError
from skep.model import PushOutcome, SettleStatus
from skep.model.operation import operations_ahead
from skep.model.transaction import Transaction, TransactionOutcome
from skep.store.lease import Ending
from skep.store.outcomes import is_remembered, with_transaction
from skep.store.postgres import entities, push, receipts, settle
from skep.store.postgres.connection import Connection
from skep.store.postgres.database import Database
from skep.store.postgres.leases import QueueAndGroup
from skep.store.postgres.outcomes import remembered
from skep.store.rules import in_conflict, undone


class UndoneError(Exception):
    """Undoes the transaction of a call that has only one, and carries the answer."""

    def __init__(self, outcome: TransactionOutcome) -> None:
        super().__init__("undone")
        self.outcome = outcome


async def transact(
    db: Database, transactions: Sequence[Transaction], now: Instant, create_queues: bool = True
) -> list[TransactionOutcome]:
    """Perform each transaction, whole or not at all. One that was committed before gets its first answer."""
    try:
        outcomes, watched = await db.pool.transaction(_transact, transactions, now, create_queues, db.shard)
        db.news.announce(watched)
        return outcomes
    except UndoneError as undone:
        refusal: UndoneError | SkepError = undone
    except SkepError as error:
        # It would overtake queued operations, unless it was committed before.
        if error.code is not Code.OPERATIONS_AHEAD or len(transactions) > 1:
            raise
        refusal = error
    async with db.pool.connection() as connection:
        before = await _recall(connection, transactions[0], now, db.shard)
    if before is not None:
        return [before]
    if isinstance(refusal, UndoneError):
        return [refusal.outcome]
    raise refusal


async def _transact(
    connection: Connection, transactions: Sequence[Transaction], now: Instant, create_queues: bool, shard: int
) -> tuple[list[TransactionOutcome], list[int]]:
    """Perform each transaction; also returns the ids of queues that other servers watch.

    Several transactions have a savepoint each. A single one needs none: it raises `UndoneError` when it is refused.
    """
    taken = await receipts.take(connection, (r for t in transactions for r in t.receipts), now)
    locked = await entities.lock(connection, (e for t in transactions for e in t.effects), now)
    if len(transactions) > 1:
        # Each transaction locks the logs it pushes to. All are locked here, in the common order, so that two servers do not deadlock.
        keys = {message.queue: None for t in transactions for message in t.push.messages}
        if keys:
            # Groups come before logs (functions/locks.sql).
            await settle.share_groups(connection, (s for t in transactions for s in t.settlements))
            await push.open_logs(connection, list(keys), now)
    outcomes, watched = [], list[int]()
    for transaction in transactions:
        outcome = _conflict(transaction, taken, locked)
        if outcome is None:
            savepoint = connection.transaction() if len(transactions) > 1 else None
            outcome, seen = await _settle_and_push(connection, savepoint, transaction, now, create_queues, shard)
            watched += seen
        if outcome.committed:
            locked.apply(transaction.effects)
            for receipt in transaction.receipts:
                taken.keep(receipt)
        elif len(transactions) == 1:
            raise UndoneError(outcome)
        else:
            outcome = await _recall(connection, transaction, now, shard) or outcome
        outcomes.append(outcome)
    await locked.write(connection, now)
    await taken.write(connection)
    return outcomes, watched


async def _recall(
    connection: Connection, transaction: Transaction, now: Instant, shard: int
) -> TransactionOutcome | None:
    """The first answer of a refused transaction that was committed before; None when it was not."""
    if not is_remembered(transaction):
        return None
    first = transaction.settlements[0]
    account = await settle.find_account(connection, first.queue, first.group, shard)
    return None if account is None else (await remembered(connection, account, [first.token], now)).outcome(transaction)


def _conflict(transaction: Transaction, taken: receipts.Taken, locked: entities.Locked) -> TransactionOutcome | None:
    seen = set()
    for index, receipt in enumerate(transaction.receipts):
        if receipt.key in seen or taken.recorded(receipt.key) is not None:
            return in_conflict(transaction, Code.RECEIPT_EXISTS, index)
        seen.add(receipt.key)
    changed = locked.conflict(transaction.effects)
    return None if changed is None else in_conflict(transaction, Code.ENTITY_CHANGED, changed)


async def _settle_and_push(
    connection: Connection,
    savepoint: asyncpg.transaction.Transaction | None,
    transaction: Transaction,
    now: Instant,
    create_queues: bool,
    shard: int,
) -> tuple[TransactionOutcome, list[int]]:
    if savepoint is not None:
        await savepoint.start()
    ended: list[tuple[QueueAndGroup, list[Ending]]] = []
    settled = await settle.settle_each(connection, transaction.settlements, now, shard, ended)
    pushed, watched = PushOutcome([], {}), list[int]()
    if transaction.push.messages:
        held = savepoint is not None
        (pushed,), watched = await push.push_batches(
            connection, [transaction.push], now, create_queues, holds_logs=held
        )
        if pushed.held:
            # Undoes the whole call; of several transactions each is then tried by itself.
            raise operations_ahead()
    if pushed.refused or any(result.status is SettleStatus.REFUSED for result in settled):
        if savepoint is not None:
            await savepoint.rollback()
        return undone(transaction, settled, pushed), []
    outcome = TransactionOutcome(True, settled, pushed)
    for account, endings in ended:
        await settle.end_leases(connection, account, _with_outcome(account, endings, transaction, outcome), now)
    if savepoint is not None:
        await savepoint.commit()
    return outcome, watched


def _with_outcome(
    account: QueueAndGroup, endings: Sequence[Ending], transaction: Transaction, outcome: TransactionOutcome
) -> list[Ending]:
    """The ends of leases; that of the transaction's first settlement also keeps the transaction's outcome."""
    told = list(endings)
    if is_remembered(transaction):
        first = transaction.settlements[0]
        for index, ending in enumerate(told):
            # One pop may have leased messages of several queues under one token.
            if (account.queue.key, account.group, ending.token) == (first.queue, first.group, first.token):
                answer = with_transaction(ending.answer, transaction, outcome)
                told[index] = msgspec.structs.replace(ending, answer=answer)
                break
    return told
