"""Access control in a store: keys, sessions, and the audit log. Reached as ``store.access``, as they belong to no queue."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from skep.clock import Instant
from skep.model.key import AuditDetail, AuditEntry, KeyRecord, SessionRecord

KEYS_MAX = 10_000
"""How many keys a store takes, including revoked ones until they are deleted: every server holds all of them."""
SESSIONS_MAX = 100
"""How many sessions one key or subject may have; with one more, the longest unused one ends."""
AUDIT_ENTRIES_MAX = 1_000_000
"""How many audit entries are kept at most, whatever their age."""


class AccessStore(Protocol):
    """Keys, sessions and audit entries; each verb is one transaction."""

    async def put_key(self, record: KeyRecord) -> bool:
        """Store a new key, and tell the other servers; False when there are `KEYS_MAX` already. From then on keys are required."""

    async def is_closed(self) -> bool | None:
        """Whether every server of this store asks for keys; None when this was never set."""

    async def set_closed(self, closed: bool, now: Instant) -> None:
        """Set whether keys are required. This holds until it is set again, or a key is made."""

    async def get_key(self, id_: str) -> KeyRecord | None:
        """The key, or None."""

    async def list_keys(self, after: str = "", limit: int = 100) -> list[KeyRecord]:
        """Keys by id, those after ``after``."""

    async def revoke_key(self, id_: str, now: Instant, forget_at: Instant) -> KeyRecord | None:
        """Revoke a key, and tell the other servers. A key that was revoked before stays as it is. None when there is no such key.

        Its sessions end with it.
        """

    async def put_session(self, record: SessionRecord) -> None:
        """Keep a new session. If its owner then has more than `SESSIONS_MAX`, the longest unused ones end."""

    async def get_session(self, id_: str) -> SessionRecord | None:
        """The session, or None."""

    async def use_session(self, id_: str, now: Instant) -> bool:
        """Note the use of a session; False when there is none. An earlier time never replaces a later one."""

    async def end_session(self, id_: str, now: Instant) -> None:
        """End a session, and tell the other servers."""

    async def note_audit(self, entry: AuditEntry) -> int:
        """Store an entry; returns its position."""

    async def finish_audit(
        self, position: int, tenant: str, queues: Sequence[str], outcome: str, detail: AuditDetail | None = None
    ) -> None:
        """Store the outcome of an entry: its tenant, its queues, and its details."""

    async def list_audit(
        self, tenant: str | None = None, before: int | None = None, limit: int = 100
    ) -> list[AuditEntry]:
        """Entries of a tenant or of all, before a position, newest first."""
