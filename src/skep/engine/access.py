"""Keys, sessions and the audit log, as the engine keeps them. Reached as ``engine.access``.

What a key grants is not looked at here, only that servers hear of a change: the same server at once, others through the
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
"""A key that was revoked, or expired, is listed for so long."""
PAGE = 1_000

KeyChange = Callable[[str | None, bool], None]
"""Is told the id of a key or session, None when it may be any, and whether it counts no longer."""


class Access:
    """The engine's face for who may do what."""

    def __init__(self, store: AccessStore, clock: Clock, in_flight: InFlight) -> None:
        self._store = store
        self._clock = clock
        self._in_flight = in_flight
        self._on_change: KeyChange = lambda _id, _revoked: None

    def on_change(self, callback: KeyChange) -> None:
        """Call ``callback`` when a key was made or revoked, here or elsewhere."""
        self._on_change = callback

    def changed(self, id_: str | None, revoked: bool) -> None:
        """A key was changed by another server, or perhaps any was."""
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
        """Keep the store closed from now on, or open it. Servers look when they start."""
        with self._in_flight:
            await self._store.set_closed(closed, self._clock.now())

    async def get_key(self, id_: str) -> KeyRecord | None:
        """The key, or None."""
        with self._in_flight:
            check_texts((id_,))
            return await self._store.get_key(id_)

    async def list_keys(self, *, after: str = "", limit: int = 100) -> list[KeyRecord]:
        """A page of keys by id, those after ``after``."""
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
        """Let a key count no longer, at once here and soon elsewhere; None when there is none."""
        with self._in_flight:
            now = self._clock.now()
            try:
                return await self._store.revoke_key(id_, now, Instant(now + seconds(FORGET_SECONDS)))
            finally:
                # Also when the answer is lost: it may be revoked.
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
        """Let a session count no longer, at once here and soon elsewhere."""
        with self._in_flight:
            try:
                await self._store.end_session(id_, self._clock.now())
            finally:
                self._on_change(id_, True)

    async def note_audit(self, actor: str, action: str, keep_seconds: float) -> int:
        """Note that someone is about to do something; the position of the entry."""
        with self._in_flight:
            now = self._clock.now()
            entry = AuditEntry(at=now, actor=actor, action=action, expires_at=Instant(now + seconds(keep_seconds)))
            return await self._store.note_audit(entry)

    async def finish_audit(
        self, position: int, tenant: str, queues: Sequence[str], outcome: str, detail: AuditDetail | None = None
    ) -> None:
        """Note how it went. The tenant may be what no store can hold: then that is why it was refused, and has to be noted."""
        with self._in_flight:
            tenant = storable(tenant, NAME_CHARACTERS)
            await self._store.finish_audit(position, tenant, queues, outcome, detail)

    async def list_audit(
        self, tenant: str | None = None, *, before: int | None = None, limit: int = 100
    ) -> list[AuditEntry]:
        """A page of entries, newest first, of a tenant or of all."""
        with self._in_flight:
            return await self._store.list_audit(tenant, before, limit)
