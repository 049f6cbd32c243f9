"""Keys, sessions and the audit log, as the engine keeps them. Reached as ``engine.access``.

This module does not look at grants. It only announces changes of keys: to this server at once, to other servers through the
store.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from skep.clock import Clock, Instant, seconds
from skep.engine.inflight import InFlight
from skep.engine.validate import NAME_CHARACTERS, check_texts, storable
from skep.errors import Code, SkepError
from skep.model.key import AuditDetail, AuditEntry, KeyRecord, SessionRecord
from skep.store.protocol.access import KEYS_MAX, AccessStore

FORGET_SECONDS = 30 * 86_400.0
"""How long a revoked or expired key stays listed."""
PAGE = 1_000

KeyChange = Callable[[str | None, bool], None]
"""A callback with the id of a key or session (None: any of them), and whether it is no longer valid."""


class Access:
    """The engine's interface for keys, sessions and the audit log."""

    def __init__(self, store: AccessStore, clock: Clock, in_flight: InFlight) -> None:
        self._store = store
        self._clock = clock
        self._in_flight = in_flight
        self._on_change: KeyChange = lambda _id, _revoked: None

    def on_change(self, callback: KeyChange) -> None:
        """Call ``callback`` when a key was made or revoked, here or elsewhere."""
        self._on_change = callback

    def changed(self, id_: str | None, revoked: bool) -> None:
        """Tell the listeners that a key changed; None: any key may have changed."""
        self._on_change(id_, revoked)

    async def put_key(self, record: KeyRecord) -> None:
        """Keep a new key."""
        with self._in_flight:
            if not await self._store.put_key(record):
                raise SkepError(
                    Code.INVALID_REQUEST, f"there are {KEYS_MAX} keys already; revoked ones are forgotten after a while"
                )
            self._on_change(record.id, False)

    async def is_closed(self) -> bool:
        """Whether access control was ever on for this store, and nobody has switched it off since."""
        with self._in_flight:
            return await self._store.is_closed() is True

    async def set_closed(self, closed: bool) -> None:
        """Require keys for this store from now on, or no longer. Servers read this when they start."""
        with self._in_flight:
            await self._store.set_closed(closed, self._clock.now())

    async def get_key(self, id_: str) -> KeyRecord | None:
        """The key, or None."""
        with self._in_flight:
            check_texts((id_,))
            return await self._store.get_key(id_)

    async def list_keys(self, *, after: str = "", limit: int = 100) -> list[KeyRecord]:
        """A page of keys by id, after the id ``after``."""
        with self._in_flight:
            check_texts((after,))
            return await self._store.list_keys(after, limit)

    async def all_keys(self) -> list[KeyRecord]:
        """Every key: there are at most `KEYS_MAX`."""
        found = page = await self.list_keys(limit=PAGE)
        while len(page) == PAGE:
            page = await self.list_keys(after=page[-1].id, limit=PAGE)
            found = found + page
        return found

    async def revoke_key(self, id_: str) -> KeyRecord | None:
        """Revoke a key: at once on this server, soon on the others; None when there is no such key."""
        with self._in_flight:
            now = self._clock.now()
            try:
                return await self._store.revoke_key(id_, now, Instant(now + seconds(FORGET_SECONDS)))
            finally:
                # Also after a failed call: the store may have revoked the key all the same.
                self._on_change(id_, True)

    async def put_session(self, record: SessionRecord) -> None:
        """Keep a new session."""
        with self._in_flight:
            await self._store.put_session(record)

    async def get_session(self, id_: str) -> SessionRecord | None:
        """The session, or None."""
        with self._in_flight:
            return await self._store.get_session(id_)

    async def use_session(self, id_: str) -> bool:
        """Note that a session was used now; False when it has ended."""
        with self._in_flight:
            return await self._store.use_session(id_, self._clock.now())

    async def end_session(self, id_: str) -> None:
        """End a session: at once on this server, soon on the others."""
        with self._in_flight:
            try:
                await self._store.end_session(id_, self._clock.now())
            finally:
                self._on_change(id_, True)

    async def note_audit(self, actor: str, action: str, keep_seconds: float) -> int:
        """Write an audit entry before the action; returns the position of the entry."""
        with self._in_flight:
            now = self._clock.now()
            entry = AuditEntry(at=now, actor=actor, action=action, expires_at=Instant(now + seconds(keep_seconds)))
            return await self._store.note_audit(entry)

    async def finish_audit(
        self, position: int, tenant: str, queues: Sequence[str], outcome: str, detail: AuditDetail | None = None
    ) -> None:
        """Write the outcome of an audited action. A tenant that no store can hold is made storable: such a refusal is noted, too."""
        with self._in_flight:
            tenant = storable(tenant, NAME_CHARACTERS)
            await self._store.finish_audit(position, tenant, queues, outcome, detail)

    async def list_audit(
        self, tenant: str | None = None, *, before: int | None = None, limit: int = 100
    ) -> list[AuditEntry]:
        """A page of entries, newest first, of a tenant or of all."""
        with self._in_flight:
            return await self._store.list_audit(tenant, before, limit)
