"""Data keys of encrypted queues, wrapped by a master key."""

from __future__ import annotations

from collections.abc import Sequence

from skep.clock import Instant
from skep.ids import Id
from skep.model import QueueKey
from skep.model.data_key import WrappedKey
from skep.model.system_event import SystemEventKind
from skep.store.postgres.connection import Connection
from skep.store.postgres.events import note
from skep.store.postgres.rows import struct_of
from skep.store.statements import load_statements

SQL = load_statements(__package__, "data_keys")

# Reads and writes of keys wait for this lock. It waits for a running dump, which has the keys.
LOCK = "LOCK TABLE data_key IN ACCESS EXCLUSIVE MODE"
# Not DELETE: it leaves its rows in the file, and so does VACUUM, which takes them off the list and does not write over them. TRUNCATE
# gives the table a new file, and the old one is cut to nothing at commit. The rows that stay were read under the lock, and come back.
EMPTY = "TRUNCATE data_key"


async def put(connection: Connection, key: WrappedKey) -> None:
    """Store a key."""
    await connection.execute(SQL["put"], *_columns(key))


def _columns(key: WrappedKey) -> tuple[object, ...]:
    return key.id, key.queue.tenant, key.queue.name, key.master, key.wrapped, key.created_at


async def every(connection: Connection) -> list[WrappedKey]:
    """All keys, oldest first."""
    return [
        struct_of(WrappedKey, row, queue=QueueKey(row["queue"], row["tenant"]))
        for row in await connection.fetch(SQL["list"])
    ]


async def rewrap(connection: Connection, keys: Sequence[WrappedKey], was: str) -> int:
    """Replace keys that the master key ``was`` still wraps; returns how many."""
    await connection.execute(LOCK)
    changed = {key.id: key for key in keys}
    kept = await every(connection)
    done = {key.id for key in kept if key.id in changed and key.master == was}
    await _keep_only(connection, [changed[key.id] if key.id in done else key for key in kept])
    return len(done)


async def shred(connection: Connection, tenant: str, queue: str | None, now: Instant) -> int:
    """Destroy the keys of a queue, or of all queues of a tenant, and tell all servers; returns how many."""
    await connection.execute(LOCK)
    found = await every(connection)
    gone = {key.id for key in found if key.queue.tenant == tenant and queue in (None, key.queue.name)}
    await _keep_only(connection, [key for key in found if key.id not in gone])
    await connection.execute(SQL["forget_uses"], list(gone))
    await note(connection, SystemEventKind.DATA_KEY, QueueKey(queue or "", tenant), now)
    return len(gone)


async def reserve(connection: Connection, id_: Id, messages: int) -> int | None:
    """Count messages that a key is about to seal; returns how many it has sealed with them, None when there is no such key."""
    found: int | None = await connection.fetchval(SQL["reserve"], id_, messages)
    return found


async def _keep_only(connection: Connection, keys: Sequence[WrappedKey]) -> None:
    """Write the table anew, into a new file."""
    await connection.execute(EMPTY)
    await connection.executemany(SQL["put"], [_columns(key) for key in keys])
