"""Keys, sessions and the audit log. Whoever changes a key or ends a session tells the other servers in the same transaction."""

from __future__ import annotations

from collections.abc import Sequence

import asyncpg
import msgspec

from skep.clock import Instant
from skep.model import QueueKey
from skep.model.key import KEY_OWNER, SERVER, AuditDetail, AuditEntry, KeyRecord, SessionRecord
from skep.model.system_event import SystemEventKind
from skep.store.postgres import events
from skep.store.postgres.connection import Connection, Pool
from skep.store.postgres.rows import struct_of
from skep.store.protocol.access import AUDIT_ENTRIES_MAX, KEYS_MAX, SESSIONS_MAX
from skep.store.statements import load_statements

SQL = load_statements(__package__, "access")

LAST = 2**63 - 1


class PostgresAccess:
    """Implements `skep.store.protocol.access.AccessStore`."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool

    async def put_key(self, record: KeyRecord) -> bool:
        """Store a new key; False when there are too many. From then on keys are required."""

        async def put(connection: Connection) -> bool:
            done = await connection.execute(SQL["put_key"], *msgspec.structs.astuple(record), KEYS_MAX)
            if done != "INSERT 0 1":
                return False
            await connection.execute(SQL["set_closed"], True, record.created_at)
            await _tell(connection, SystemEventKind.KEY_MADE, record.id, record.created_at)
            return True

        return await self._pool.transaction(put)

    async def is_closed(self) -> bool | None:
        """Whether keys are required."""
        async with self._pool.connection() as connection:
            closed: bool | None = await connection.fetchval(SQL["is_closed"])
            return closed

    async def set_closed(self, closed: bool, now: Instant) -> None:
        """Set whether keys are required."""
        await self._pool.transaction(lambda c: c.execute(SQL["set_closed"], closed, now))

    async def get_key(self, id_: str) -> KeyRecord | None:
        """The key, or None."""
        async with self._pool.connection() as connection:
            return _key(await connection.fetchrow(SQL["get_key"], id_))

    async def list_keys(self, after: str = "", limit: int = 100) -> list[KeyRecord]:
        """Keys by id, those after ``after``."""
        async with self._pool.connection() as connection:
            return [KeyRecord(*row) for row in await connection.fetch(SQL["list_keys"], after, limit)]

    async def revoke_key(self, id_: str, now: Instant, forget_at: Instant) -> KeyRecord | None:
        """Revoke a key, and end its sessions."""

        async def revoke(connection: Connection) -> KeyRecord | None:
            await connection.execute(SQL["revoke_key"], id_, now, forget_at)
            await connection.execute(SQL["end_sessions_of"], KEY_OWNER + id_)
            found = _key(await connection.fetchrow(SQL["get_key"], id_))
            if found is not None:
                await _tell(connection, SystemEventKind.KEY_REVOKED, id_, now)
            return found

        return await self._pool.transaction(revoke)

    async def put_session(self, record: SessionRecord) -> None:
        """Store a new session; the longest unused ones end if its owner has too many."""

        async def put(connection: Connection) -> None:
            await connection.execute(SQL["end_oldest_sessions"], record.owner, SESSIONS_MAX - 1)
            await connection.execute(SQL["put_session"], *msgspec.structs.astuple(record))

        await self._pool.transaction(put)

    async def get_session(self, id_: str) -> SessionRecord | None:
        """The session, or None."""
        async with self._pool.connection() as connection:
            row = await connection.fetchrow(SQL["get_session"], id_)
        return None if row is None else SessionRecord(*row)

    async def use_session(self, id_: str, now: Instant) -> bool:
        """Note the use of a session; False when there is none."""
        done: str = await self._pool.transaction(lambda c: c.execute(SQL["use_session"], id_, now))
        return done == "UPDATE 1"

    async def end_session(self, id_: str, now: Instant) -> None:
        """End a session."""

        async def end(connection: Connection) -> None:
            await connection.execute(SQL["end_session"], id_)
            await _tell(connection, SystemEventKind.KEY_REVOKED, id_, now)

        await self._pool.transaction(end)

    async def note_audit(self, entry: AuditEntry) -> int:
        """Store an entry; returns its position."""
        queues = msgspec.json.encode(entry.queues).decode()
        given = (entry.at, entry.expires_at, entry.tenant, entry.actor, entry.action, queues, entry.outcome)

        async def note(connection: Connection) -> int:
            position: int = await connection.fetchval(SQL["note"], *given)
            await connection.execute(SQL["forget"], position - AUDIT_ENTRIES_MAX)
            return position

        return await self._pool.transaction(note)

    async def finish_audit(
        self, position: int, tenant: str, queues: Sequence[str], outcome: str, detail: AuditDetail | None = None
    ) -> None:
        """Store the outcome of an entry."""
        named = msgspec.json.encode(queues).decode()
        told = None if detail is None else msgspec.json.encode(detail).decode()
        await self._pool.transaction(lambda c: c.execute(SQL["finish"], position, tenant, named, outcome, told))

    async def list_audit(
        self, tenant: str | None = None, before: int | None = None, limit: int = 100
    ) -> list[AuditEntry]:
        """Entries, newest first."""
        place = (LAST if before is None else before, limit)
        async with self._pool.connection() as connection:
            if tenant is None:
                rows = await connection.fetch(SQL["list"], *place)
            else:
                rows = await connection.fetch(SQL["list_of"], *place, tenant)
        return [_entry(row) for row in rows]


async def _tell(connection: Connection, kind: SystemEventKind, id_: str, now: Instant) -> None:
    await events.note(connection, kind, QueueKey(id_, SERVER), now)


def _key(row: asyncpg.Record | None) -> KeyRecord | None:
    return None if row is None else KeyRecord(*row)


def _entry(row: asyncpg.Record) -> AuditEntry:
    queues = msgspec.json.decode(row["queues"], type=tuple[str, ...])
    detail = None if row["detail"] is None else msgspec.json.decode(row["detail"], type=AuditDetail)
    return struct_of(AuditEntry, row, queues=queues, detail=detail)
