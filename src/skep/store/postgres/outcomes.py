"""Repeats: a settlement or transaction that was made before gets its first answer (`skep.store.outcomes`).

Only the newest rows of the lease history are looked through, by their id, and only when something was refused. Whoever waited for the
lease of a settlement that was under way reads here after that has committed.
"""

from __future__ import annotations

from collections.abc import Iterable

from skep.clock import Instant, seconds
from skep.store.outcomes import REMEMBER_SECONDS, REMEMBERED_LEASES, EndedLease, Remembered
from skep.store.postgres.connection import Connection
from skep.store.postgres.leases import Account
from skep.store.rules import HISTORY_DISORDER_SECONDS
from skep.store.statements import load_statements

SQL = load_statements(__package__, "outcomes")


async def remembered(connection: Connection, account: Account, tokens: Iterable[bytes], now: Instant) -> Remembered:
    """What was said for a group under these tokens, a while ago at most."""
    rows = await connection.fetch(
        SQL["remembered"], account.queue.id, account.group_id, list(tokens), now - seconds(REMEMBER_SECONDS),
        seconds(HISTORY_DISORDER_SECONDS), REMEMBERED_LEASES,
    )  # fmt: skip
    return Remembered(EndedLease(*row) for row in rows)
