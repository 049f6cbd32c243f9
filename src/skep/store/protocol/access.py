"""What a store keeps for access: keys, sessions, and the audit log. Reached as ``store.access``, since it is no queue's business."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from skep.clock import Instant
from skep.model.key import AuditDetail, AuditEntry, KeyRecord, SessionRecord

KEYS_MAX = 10_000
"""Keys that a store takes, revoked ones that are not forgotten yet among them: every server knows all of them."""
SESSIONS_MAX = 100
"""Sessions that one key or subject may have; with one more, the one not used for longest ends."""
AUDIT_ENTRIES_MAX = 1_000_000
"""Entries that are kept, whatever their age."""


class AccessStore(Protocol):
    """Keys, sessions and audit entries; each verb is one transaction."""

    async def put_key(self, record: KeyRecord) -> bool:
        """Keep a new key, and tell the other servers; False when there are `KEYS_MAX` already. From then on the store is closed."""

    async def is_closed(self) -> bool | None:
        """Whether every server of this store asks for keys; None when this was never set."""

    async def set_closed(self, closed: bool, now: Instant) -> None:
        """Say whether keys are asked for. It holds until it is said otherwise, or a key is made."""

    async def get_key(self, id_: str) -> KeyRecord | None:
        """The key, or None."""

    async def list_keys(self, after: str = "", limit: int = 100) -> list[KeyRecord]:
        """Keys by id, those after ``after``."""

    async def revoke_key(self, id_: str, now: Instant, forget_at: Instant) -> KeyRecord | None:
        """Let a key count no longer, and tell the other servers; one that was revoked before stays as it is. None when there is none.

        Its sessions end with it.
        """

    async def put_session(self, record: SessionRecord) -> None:
        """Keep a new session. If its owner then has more than `SESSIONS_MAX`, the longest unused ones end."""

    async def get_session(self, id_: str) -> SessionRecord | None:
        """The session, or None."""

    async def use_session(self, id_: str, now: Instant) -> bool:
        """Note that a session was used; False when there is none. A use is never taken back by an earlier one."""

    async def end_session(self, id_: str, now: Instant) -> None:
        """Let a session count no longer, and tell the other servers."""

    async def note_audit(self, entry: AuditEntry) -> int:
        """Keep an entry; the position it got."""

    async def finish_audit(
        self, position: int, tenant: str, queues: Sequence[str], outcome: str, detail: AuditDetail | None = None
    ) -> None:
        """Say how it went, with which queues of which tenant, and what there is to tell of it."""

    async def list_audit(
        self, tenant: str | None = None, before: int | None = None, limit: int = 100
    ) -> list[AuditEntry]:
        """Entries of a tenant, or of all, newest first, those before a position."""
