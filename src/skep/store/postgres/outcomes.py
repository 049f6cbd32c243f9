"""Repeats: a settlement or transaction that was made before gets its first answer (`skep.store.outcomes`).

Only the newest rows of the lease history are searched, by their id, and only after a refusal. A repeat that waited for the lock of a
settlement under way reads after its commit, and so finds its row.
"""

from __future__ import annotations

from collections.abc import Iterable

from skep.clock import Instant, seconds
from skep.store.outcomes import REMEMBER_SECONDS, REMEMBERED_LEASES, LeaseHistoryRow, Remembered
from skep.store.postgres.connection import Connection
from skep.store.postgres.leases import QueueAndGroup
from skep.store.rules import HISTORY_DISORDER_SECONDS
from skep.store.statements import load_statements

SQL = load_statements(__package__, "outcomes")


async def remembered(
    connection: Connection, account: QueueAndGroup, tokens: Iterable[bytes], now: Instant
) -> Remembered:
    """The kept answers of a group for these tokens, up to `REMEMBER_SECONDS` old."""
    rows = await connection.fetch(
        SQL["remembered"], account.queue.id, account.group_id, list(tokens), now - seconds(REMEMBER_SECONDS),
        seconds(HISTORY_DISORDER_SECONDS), REMEMBERED_LEASES,
    )  # fmt: skip
    return Remembered(LeaseHistoryRow(*row) for row in rows)
