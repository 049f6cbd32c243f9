"""Receipts (idempotency records): stored in the transaction of the call that they prove, so that the call is done once (I15).

All receipts of a call are taken at its beginning, in ascending order and before any other lock: a call that waits for one holds
nothing that others need. A call that is refused after all deletes its receipts before the commit.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import asyncpg

from skep.clock import Instant
from skep.model.record import Receipt, ReceiptKey
from skep.store.postgres.connection import Connection
from skep.store.statements import load_statements

SQL = load_statements(__package__, "receipts")

LONG_WAY = "SK001"
"""The SQLSTATE that the fast way raises to undo itself (functions/records.sql)."""

Columns = tuple[list[str], list[str], list[str]]


class Taken:
    """The receipts of a call: earlier ones with their answers, and new ones."""

    def __init__(self, ours: dict[ReceiptKey, Receipt], recorded: dict[ReceiptKey, bytes], now: Instant) -> None:
        self._now = now
        self._ours = ours
        self._recorded = recorded
        self._kept: dict[ReceiptKey, Receipt] = {}

    def recorded(self, key: ReceiptKey) -> bytes | None:
        """The recorded answer, of an earlier call or from earlier in this one; None when there is none."""
        kept = self._kept.get(key)
        return kept.answer if kept is not None and kept.expires_at > self._now else self._recorded.get(key)

    def keep(self, receipt: Receipt) -> None:
        """Keep a new receipt, as its call was done."""
        self._kept[receipt.key] = receipt

    async def write(self, connection: Connection) -> None:
        """Write answers that changed since the receipts were taken, and delete the receipts that are not kept."""
        for key, receipt in self._kept.items():
            if self._ours[key] is not receipt:
                await connection.execute(SQL["rewrite"], *_astuple(key), receipt.answer, receipt.expires_at)
        unused = [key for key in self._ours if key not in self._kept]
        if unused:
            await connection.execute(SQL["drop"], *columns(unused))


async def take(connection: Connection, wanted: Iterable[Receipt], now: Instant) -> Taken:
    """Take each receipt that does not exist or has expired, and read the others."""
    first: dict[ReceiptKey, Receipt] = {}
    for receipt in wanted:
        first.setdefault(receipt.key, receipt)
    if not first:
        return Taken({}, {}, now)
    rows = await connection.fetch(SQL["take"], *arrays(in_order(first.values())), now)
    taken = {ReceiptKey(row["scope"], row["key"], row["tenant"]) for row in rows}
    lost = [key for key in first if key not in taken]
    found = await receipts(connection, lost, now) if lost else []
    recorded = {receipt.key: receipt.answer for receipt in found if receipt is not None}
    return Taken({key: receipt for key, receipt in first.items() if key in taken}, recorded, now)


async def push_plain_once(
    connection: Connection, arguments: tuple[object, ...], wanted: Sequence[Receipt]
) -> asyncpg.Record | None:
    """The fast way of a push with receipts, none of them twice; None when it must go the long way."""
    try:
        return await connection.fetchrow(SQL["push_plain_once"], *arguments, *arrays(in_order(wanted)))
    except asyncpg.PostgresError as error:
        if error.sqlstate == LONG_WAY:
            return None
        raise


def in_order(wanted: Iterable[Receipt]) -> list[Receipt]:
    """Receipts in the order in which every call locks them: that of the primary key."""
    return sorted(wanted, key=lambda receipt: _astuple(receipt.key))


def arrays(wanted: Sequence[Receipt]) -> tuple[list[str], list[str], list[str], list[int], list[bytes]]:
    """The columns of receipts."""
    return *columns([r.key for r in wanted]), [r.expires_at for r in wanted], [r.answer for r in wanted]


def columns(keys: Sequence[ReceiptKey]) -> Columns:
    """The columns of keys."""
    return [key.key for key in keys], [key.scope for key in keys], [key.tenant for key in keys]


def _astuple(key: ReceiptKey) -> tuple[str, str, str]:
    return key.key, key.scope, key.tenant


async def receipts(connection: Connection, keys: Sequence[ReceiptKey], now: Instant) -> list[Receipt | None]:
    """The receipt of each key; None when it does not exist or has expired."""
    found: list[Receipt | None] = [None] * len(keys)
    for row in await connection.fetch(SQL["find"], *columns(keys), now):
        index = row["ord"] - 1
        found[index] = Receipt(keys[index], row["answer"], row["expires_at"])
    return found
