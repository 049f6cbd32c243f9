"""Keys, sessions and the audit log."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Protocol, TypeVar

import msgspec

from skep.clock import Instant
from skep.model.key import KEY_OWNER, AuditDetail, AuditEntry, KeyRecord, SessionRecord
from skep.store.protocol.access import AUDIT_ENTRIES_MAX, KEYS_MAX, SESSIONS_MAX
from skep.store.sqlite.session import Session
from skep.store.statements import load_statements

SQL = load_statements(__package__, "access")

LAST = 2**63 - 1

T = TypeVar("T")


class Running(Protocol):
    """What runs work in a thread of the store."""

    def __call__(self, work: Callable[[Session], T], /) -> Awaitable[T]:
        """Wait for what the work returns."""
        ...


class SqliteAccess:
    """Implements `skep.store.protocol.access.AccessStore` with the store's own threads."""

    def __init__(self, write: Running, read: Running) -> None:
        self._write = write
        self._read = read

    async def put_key(self, record: KeyRecord) -> bool:
        """Keep a new key; False when there are too many."""

        def put(session: Session) -> bool:
            session.db.execute(SQL["put_key"], (*msgspec.structs.astuple(record), KEYS_MAX))
            if session.db.changes() != 1:
                return False
            session.db.execute(SQL["set_closed"], (True, record.created_at))
            return True

        return bool(await self._write(put))

    async def is_closed(self) -> bool | None:
        """Whether keys are asked for."""
        row = await self._read(lambda session: session.row(SQL["is_closed"]))
        return None if row is None else bool(row[0])

    async def set_closed(self, closed: bool, now: Instant) -> None:
        """Say whether keys are asked for."""
        await self._write(lambda session: session.db.execute(SQL["set_closed"], (closed, now)))

    async def get_key(self, id_: str) -> KeyRecord | None:
        """The key, or None."""
        return _key(await self._read(lambda session: session.row(SQL["get_key"], (id_,))))

    async def list_keys(self, after: str = "", limit: int = 100) -> list[KeyRecord]:
        """Keys by id, those after ``after``."""
        rows = await self._read(lambda session: session.rows(SQL["list_keys"], (after, limit)))
        return [KeyRecord(*row) for row in rows]

    async def revoke_key(self, id_: str, now: Instant, forget_at: Instant) -> KeyRecord | None:
        """Let a key count no longer."""

        def revoke(session: Session) -> KeyRecord | None:
            session.db.execute(SQL["revoke_key"], (id_, now, forget_at))
            session.db.execute(SQL["end_sessions_of"], (KEY_OWNER + id_,))
            return _key(session.row(SQL["get_key"], (id_,)))

        found: KeyRecord | None = await self._write(revoke)
        return found

    async def put_session(self, record: SessionRecord) -> None:
        """Keep a new session."""

        def put(session: Session) -> None:
            session.db.execute(SQL["end_oldest_sessions"], (record.owner, SESSIONS_MAX - 1))
            session.db.execute(SQL["put_session"], msgspec.structs.astuple(record))

        await self._write(put)

    async def get_session(self, id_: str) -> SessionRecord | None:
        """The session, or None."""
        row = await self._read(lambda session: session.row(SQL["get_session"], (id_,)))
        return None if row is None else SessionRecord(*row)

    async def use_session(self, id_: str, now: Instant) -> bool:
        """Note that a session was used."""

        def use(session: Session) -> bool:
            session.db.execute(SQL["use_session"], (id_, now))
            return session.db.changes() == 1

        return bool(await self._write(use))

    async def end_session(self, id_: str, now: Instant) -> None:  # noqa: ARG002 - there is no other server to tell
        """Let a session count no longer."""
        await self._write(lambda session: session.db.execute(SQL["end_session"], (id_,)))

    async def note_audit(self, entry: AuditEntry) -> int:
        """Keep an entry; the position it got."""
        queues = msgspec.json.encode(entry.queues).decode()
        given = (entry.at, entry.expires_at, entry.tenant, entry.actor, entry.action, queues, entry.outcome)

        def note(session: Session) -> int:
            row = session.row(SQL["note"], given)
            assert row is not None
            session.db.execute(SQL["forget"], (row[0] - AUDIT_ENTRIES_MAX,))
            return int(row[0])

        return int(await self._write(note))

    async def finish_audit(
        self, position: int, tenant: str, queues: Sequence[str], outcome: str, detail: AuditDetail | None = None
    ) -> None:
        """Say how it went."""
        told = None if detail is None else msgspec.json.encode(detail).decode()
        given = (position, tenant, msgspec.json.encode(queues).decode(), outcome, told)
        await self._write(lambda session: session.db.execute(SQL["finish"], given))

    async def list_audit(
        self, tenant: str | None = None, before: int | None = None, limit: int = 100
    ) -> list[AuditEntry]:
        """Entries, newest first."""
        place = (LAST if before is None else before, limit)
        statement, given = ("list", place) if tenant is None else ("list_of", (*place, tenant))
        return [_entry(row) for row in await self._read(lambda session: session.rows(SQL[statement], given))]


def _key(row: Sequence[Any] | None) -> KeyRecord | None:
    return None if row is None else KeyRecord(*row)


def _entry(row: Sequence[Any]) -> AuditEntry:
    position, at, actor, action, tenant, queues, outcome, expires_at, detail = row
    return AuditEntry(
        position=position, at=at, actor=actor, action=action, tenant=tenant, outcome=outcome, expires_at=expires_at,
        queues=msgspec.json.decode(queues, type=tuple[str, ...]),
        detail=None if detail is None else msgspec.json.decode(detail, type=AuditDetail),
    )  # fmt: skip
