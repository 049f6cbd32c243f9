"""Keys, sessions and the audit log."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from skep.clock import Instant
from skep.model.key import KEY_OWNER, AuditDetail, AuditEntry, KeyRecord, SessionRecord
from skep.store.protocol.access import AUDIT_ENTRIES_MAX, KEYS_MAX, SESSIONS_MAX
from skep.store.sqlite.database import Part, read, written
from skep.store.sqlite.session import Row, Session
from skep.store.statements import load_statements

SQL = load_statements(__package__, "access")

LAST = 2**63 - 1


def put_key(session: Session, record: KeyRecord) -> bool:
    """Store a new key, and require keys from now on; False when there are too many."""
    session.db.execute(SQL["put_key"], (*msgspec.structs.astuple(record), KEYS_MAX))
    if session.db.changes() != 1:
        return False
    set_closed(session, True, record.created_at)
    return True


def is_closed(session: Session) -> bool | None:
    """Whether keys are required; None when this was never set."""
    row = session.row(SQL["is_closed"])
    return None if row is None else bool(row[0])


def set_closed(session: Session, closed: bool, now: Instant) -> None:
    session.db.execute(SQL["set_closed"], (closed, now))


def get_key(session: Session, id_: str) -> KeyRecord | None:
    row = session.row(SQL["get_key"], (id_,))
    return None if row is None else KeyRecord(*row)


def list_keys(session: Session, after: str = "", limit: int = 100) -> list[KeyRecord]:
    """Keys by id, after the id ``after``."""
    return [KeyRecord(*row) for row in session.rows(SQL["list_keys"], (after, limit))]


def revoke_key(session: Session, id_: str, now: Instant, forget_at: Instant) -> KeyRecord | None:
    """Revoke a key and end its sessions; returns the key, or None when there is none."""
    session.db.execute(SQL["revoke_key"], (id_, now, forget_at))
    session.db.execute(SQL["end_sessions_of"], (KEY_OWNER + id_,))
    return get_key(session, id_)


def put_session(session: Session, record: SessionRecord) -> None:
    """Store a new session; the longest unused sessions of its owner make room."""
    session.db.execute(SQL["end_oldest_sessions"], (record.owner, SESSIONS_MAX - 1))
    session.db.execute(SQL["put_session"], msgspec.structs.astuple(record))


def get_session(session: Session, id_: str) -> SessionRecord | None:
    row = session.row(SQL["get_session"], (id_,))
    return None if row is None else SessionRecord(*row)


def use_session(session: Session, id_: str, now: Instant) -> bool:
    """Note the use of a session; False when there is none."""
    session.db.execute(SQL["use_session"], (id_, now))
    return session.db.changes() == 1


def end_session(session: Session, id_: str, now: Instant) -> None:  # noqa: ARG001 - there is no other server to tell
    session.db.execute(SQL["end_session"], (id_,))


def note_audit(session: Session, entry: AuditEntry) -> int:
    """Store an entry, and delete the oldest ones beyond `AUDIT_ENTRIES_MAX`; returns its position."""
    queues = msgspec.json.encode(entry.queues).decode()
    given = (entry.at, entry.expires_at, entry.tenant, entry.actor, entry.action, queues, entry.outcome)
    position = int(session.one(SQL["note"], given)[0])
    session.db.execute(SQL["forget"], (position - AUDIT_ENTRIES_MAX,))
    return position


def finish_audit(
    session: Session, position: int, tenant: str, queues: Sequence[str], outcome: str, detail: AuditDetail | None = None
) -> None:
    told = None if detail is None else msgspec.json.encode(detail).decode()
    given = (position, tenant, msgspec.json.encode(queues).decode(), outcome, told)
    session.db.execute(SQL["finish"], given)


def list_audit(
    session: Session, tenant: str | None = None, before: int | None = None, limit: int = 100
) -> list[AuditEntry]:
    """Entries of a tenant or of all, before a position, newest first."""
    place = (LAST if before is None else before, limit)
    statement, given = ("list", place) if tenant is None else ("list_of", (*place, tenant))
    return [_entry(row) for row in session.rows(SQL[statement], given)]


def _entry(row: Row) -> AuditEntry:
    position, at, actor, action, tenant, queues, outcome, expires_at, detail = row
    return AuditEntry(
        position=position, at=at, actor=actor, action=action, tenant=tenant, outcome=outcome, expires_at=expires_at,
        queues=msgspec.json.decode(queues, type=tuple[str, ...]),
        detail=None if detail is None else msgspec.json.decode(detail, type=AuditDetail),
    )  # fmt: skip


class SqliteAccess(Part):
    """Implements `skep.store.protocol.access.AccessStore`."""

    put_key = written(put_key)
    is_closed = read(is_closed)
    set_closed = written(set_closed)
    get_key = read(get_key)
    list_keys = read(list_keys)
    revoke_key = written(revoke_key)
    put_session = written(put_session)
    get_session = read(get_session)
    use_session = written(use_session)
    end_session = written(end_session)
    note_audit = written(note_audit)
    finish_audit = written(finish_audit)
    list_audit = read(list_audit)
