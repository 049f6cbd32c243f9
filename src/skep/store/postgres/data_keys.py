"""Keys of queues' payloads, wrapped."""

from __future__ import annotations

from collections.abc import Sequence

from skep.clock import Instant
from skep.data_keys import WrappedKey
from skep.model import QueueKey
from skep.store.postgres.connection import Connection
from skep.store.postgres.events import note
from skep.store.statements import load_statements
from skep.system_events import SystemEventKind

SQL = load_statements(__package__, "data_keys")


async def put(connection: Connection, key: WrappedKey) -> None:
    """Keep a key."""
    await connection.execute(
        SQL["put"], key.id, key.queue.tenant, key.queue.name, key.master, key.wrapped, key.created_at
    )


async def every(connection: Connection) -> list[WrappedKey]:
    """All keys, oldest first."""
    return [
        WrappedKey(
            id=row["id"], queue=QueueKey(row["queue"], row["tenant"]), master=row["master"], wrapped=row["wrapped"],
            created_at=row["created_at"],
        )
        for row in await connection.fetch(SQL["list"])
    ]  # fmt: skip


async def rewrap(connection: Connection, keys: Sequence[WrappedKey], was: str) -> int:
    """Keep these keys as they are wrapped now, those that are still wrapped by ``was``; how many that were."""
    done = [await connection.fetchval(SQL["rewrap"], key.id, key.master, key.wrapped, was) for key in keys]
    return done.count(1)


async def shred(connection: Connection, tenant: str, queue: str | None, now: Instant) -> int:
    """Destroy the keys of a queue, or of all queues of a tenant, and tell all servers; how many there were."""
    gone = await connection.fetch(SQL["shred"], tenant, queue)
    await note(connection, SystemEventKind.DATA_KEY, QueueKey(queue or "", tenant), now)
    return len(gone)
