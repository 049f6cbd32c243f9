"""Repeats: a settlement or transaction that was made before gets its first answer (`skep.store.outcomes`).

Only the newest rows of the lease history are looked through, by their id, and only when something was refused. Whoever waited for the
lease of a settlement that was under way reads here after that has committed.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from skep.clock import Instant, seconds
from skep.model import Ordering, QueueKey, Settlement, SettleResult
from skep.model.transaction import Transaction, TransactionOutcome
from skep.store.outcomes import LOST, REMEMBER_SECONDS, REMEMBERED_LEASES, EndedLease, Remembered
from skep.store.postgres.connection import Connection
from skep.store.postgres.leases import Account
from skep.store.postgres.settle import find_account, settle
from skep.store.rules import HISTORY_DISORDER_SECONDS
from skep.store.statements import load_statements

SQL = load_statements(__package__, "outcomes")


async def settle_once(
    connection: Connection, settlements: Sequence[Settlement], now: Instant, shard: int
) -> list[SettleResult]:
    """Settle each message; what was settled before gets its first answer in place of a refusal."""
    results = await settle(connection, settlements, now, shard)
    lost: dict[tuple[QueueKey, str], list[int]] = {}
    for place, result in enumerate(results):
        if result.code in LOST:
            lost.setdefault((settlements[place].queue, settlements[place].group), []).append(place)
    for (key, name), places in lost.items():
        account = await find_account(connection, key, name, shard)
        if account is None:
            continue
        found = await remembered(connection, account, {settlements[place].token for place in places}, now)
        ordered = account.queue.settings.ordering is not Ordering.UNORDERED
        for place in places:
            answer = found.answer(settlements[place], ordered)
            if answer is not None:
                results[place] = answer
    return results


async def recall_transaction(
    connection: Connection, transaction: Transaction, now: Instant, shard: int
) -> TransactionOutcome | None:
    """What was answered when the same transaction was committed; None when it was not."""
    first = transaction.settlements[0]
    account = await find_account(connection, first.queue, first.group, shard)
    return None if account is None else (await remembered(connection, account, [first.token], now)).outcome(transaction)


async def remembered(connection: Connection, account: Account, tokens: Iterable[bytes], now: Instant) -> Remembered:
    """What was said for a group under these tokens, a while ago at most."""
    rows = await connection.fetch(
        SQL["remembered"], account.queue.id, account.group_id, list(tokens), now - seconds(REMEMBER_SECONDS),
        seconds(HISTORY_DISORDER_SECONDS), REMEMBERED_LEASES,
    )  # fmt: skip
    return Remembered(EndedLease(*row) for row in rows)
