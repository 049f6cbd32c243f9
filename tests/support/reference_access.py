"""Keys, sessions and the audit log of the reference store: dicts."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from skep.clock import Instant
from skep.model.key import AuditDetail, AuditEntry, KeyRecord, SessionRecord
from skep.store.protocol.access import KEYS_MAX, SESSIONS_MAX


class ReferenceAccess:
    """What the real ones are compared with."""

    def __init__(self) -> None:
        self.keys: dict[str, KeyRecord] = {}
        self.sessions: dict[str, SessionRecord] = {}
        self.audit: dict[int, AuditEntry] = {}
        self.position = 0
        self.closed: bool | None = None

    async def put_key(self, record: KeyRecord) -> bool:
        if len(self.keys) >= KEYS_MAX:
            return False
        self.keys[record.id] = record
        self.closed = True
        return True

    async def is_closed(self) -> bool | None:
        return self.closed

    async def set_closed(self, closed: bool, now: Instant) -> None:
        self.closed = closed

    async def get_key(self, id_: str) -> KeyRecord | None:
        return self.keys.get(id_)

    async def list_keys(self, after: str = "", limit: int = 100) -> list[KeyRecord]:
        return [self.keys[id_] for id_ in sorted(self.keys) if id_ > after][:limit]

    async def revoke_key(self, id_: str, now: Instant, forget_at: Instant) -> KeyRecord | None:
        known = self.keys.get(id_)
        if known is not None and known.revoked_at is None:
            self.keys[id_] = msgspec.structs.replace(known, revoked_at=now, forget_at=forget_at)
        self.sessions = {key: one for key, one in self.sessions.items() if one.owner != f"key:{id_}"}
        return self.keys.get(id_)

    async def put_session(self, record: SessionRecord) -> None:
        own = sorted(
            (one for one in self.sessions.values() if one.owner == record.owner), key=lambda one: (-one.used_at, one.id)
        )
        for one in own[SESSIONS_MAX - 1 :]:
            del self.sessions[one.id]
        self.sessions[record.id] = record

    async def get_session(self, id_: str) -> SessionRecord | None:
        return self.sessions.get(id_)

    async def use_session(self, id_: str, now: Instant) -> bool:
        known = self.sessions.get(id_)
        if known is None:
            return False
        if now > known.used_at:
            self.sessions[id_] = msgspec.structs.replace(known, used_at=now)
        return True

    async def end_session(self, id_: str, now: Instant) -> None:
        self.sessions.pop(id_, None)

    async def note_audit(self, entry: AuditEntry) -> int:
        self.position += 1
        self.audit[self.position] = msgspec.structs.replace(entry, position=self.position)
        return self.position

    async def finish_audit(
        self, position: int, tenant: str, queues: Sequence[str], outcome: str, detail: AuditDetail | None = None
    ) -> None:
        if position in self.audit:
            self.audit[position] = msgspec.structs.replace(
                self.audit[position], tenant=tenant, queues=tuple(queues), outcome=outcome, detail=detail
            )

    async def list_audit(
        self, tenant: str | None = None, before: int | None = None, limit: int = 100
    ) -> list[AuditEntry]:
        found = [one for one in self.audit.values() if tenant in (None, one.tenant)]
        return [one for one in reversed(found) if before is None or one.position < before][:limit]

    def sweep(self, now: Instant) -> None:
        self.keys = {id_: one for id_, one in self.keys.items() if one.forget_at is None or one.forget_at > now}
        self.sessions = {id_: one for id_, one in self.sessions.items() if one.expires_at > now}
        self.audit = {at: one for at, one in self.audit.items() if one.expires_at > now}
