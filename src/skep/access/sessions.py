"""Sessions: after a login with a key or token, a browser shows a random text (its cookie).

The store has the digest of that text, so all servers know a session, and revoking its key or logging out ends it on all of them.
Sessions are cached: a request costs one digest and one look-up in a dictionary, as a key does. The use of a session is noted in the
store now and then, in the background; a session that is gone by then has ended.
"""

from __future__ import annotations

import asyncio
import hashlib
import re
import secrets
from collections.abc import Awaitable, Callable

import msgspec
import structlog

from skep.access.principal import Principal
from skep.access.rates import UNKNOWN_PER_SECOND, bucket_of
from skep.clock import Clock, Instant, seconds
from skep.config import AccessSettings
from skep.engine.access import Access
from skep.errors import Code, SkepError
from skep.model.key import KEY_OWNER, SessionDetail, SessionRecord

TOKEN_BYTES = 32
REMEMBERED = 20_000
"""The most sessions that are cached; others are looked up again."""
NOTE_SECONDS = 60.0
"""How often the use of a session is noted in the store; a tenth of the idle time when that is less."""
SKEW_SECONDS = 5.0
"""A use that lies further in the future was noted before the clock was put back."""
_OWNERS = (KEY_OWNER, "jwt:")
_TOKEN = re.compile(rb"[A-Za-z0-9_-]{43}")
_ID = re.compile(r"[0-9a-f]{64}")
_decode = msgspec.json.Decoder(SessionDetail).decode

log = structlog.get_logger("skep.access")

PrincipalOf = Callable[[SessionRecord], Awaitable[Principal]]


def is_session_text(text: bytes) -> bool:
    """Whether a text has the form of a session's cookie."""
    return _TOKEN.fullmatch(text) is not None


def is_session_id(id_: str) -> bool:
    """Whether an id is of a session and not of a key."""
    return _ID.fullmatch(id_) is not None


def detail_of(record: SessionRecord) -> SessionDetail:
    """The grants of a token's session, and the signer of the token."""
    return _decode(record.document)


class _Session:
    __slots__ = ("expires_at", "id", "is_noting", "noted_at", "principal", "used_at")

    def __init__(self, record: SessionRecord, principal: Principal) -> None:
        self.id = record.id
        self.expires_at = record.expires_at
        self.used_at = self.noted_at = record.used_at
        self.principal = principal
        self.is_noting = False


class Sessions:
    """Makes, knows and ends sessions."""

    def __init__(
        self,
        access: Access,
        clock: Clock,
        settings: AccessSettings,
        principal_of: PrincipalOf,
        is_trusted: Callable[[Principal], bool],
    ) -> None:
        """``is_trusted`` says whether the signer of a principal's token is still trusted."""
        self._access = access
        self._clock = clock
        self._idle = seconds(settings.session_idle_seconds)
        self._lasts = seconds(settings.session_seconds)
        self._note_every = min(seconds(NOTE_SECONDS), self._idle // 10)
        self._principal_of = principal_of
        self._is_trusted = is_trusted
        self._known: dict[str, _Session] = {}
        self._forgotten = 0
        self._unknown = bucket_of(UNKNOWN_PER_SECOND)
        self._noting: set[asyncio.Task[None]] = set()

    async def open(self, principal: Principal) -> str:
        """Make a session for the holder of a key or token; returns the text of its cookie."""
        if not principal.name.startswith(_OWNERS):
            raise SkepError(Code.FORBIDDEN, "log in with a key or a token of your own")
        token = secrets.token_urlsafe(TOKEN_BYTES)
        now = self._clock.now()
        ends = Instant(now + self._lasts)
        if principal.expires_at is not None:
            ends = min(ends, principal.expires_at)
        grants = () if principal.name.startswith(KEY_OWNER) else principal.grants
        detail = msgspec.json.encode(SessionDetail(grants, principal.signer))
        record = SessionRecord(_digest(token.encode()), principal.name, now, now, ends, detail)
        await self._access.put_session(record)
        return token

    def remembered(self, token: bytes) -> Principal | None:
        """The principal of a cached session, if the session is still valid."""
        found = self._known.get(_digest(token))
        if found is None:
            return None
        now = self._clock.now()
        if found.principal.is_over or found.expires_at <= now or found.used_at + self._idle <= now:
            return None
        if not self._is_trusted(found.principal):
            return None
        if found.used_at > now + seconds(SKEW_SECONDS):
            # The clock was put back: the store has the right times.
            del self._known[found.id]
            return None
        found.used_at = max(found.used_at, now)
        if now - found.noted_at >= self._note_every and not found.is_noting:
            self._note(found)
        return found.principal

    async def admit(self, token: bytes) -> Principal:
        """The principal of a session; UNAUTHENTICATED when there is no such session, or it has ended."""
        principal = self.remembered(token)
        if principal is not None:
            return principal
        if not is_session_text(token):
            raise ended_session()
        id_ = _digest(token)
        self._check_rate(id_)
        self._known.pop(id_, None)
        while True:
            before = self._forgotten
            record = await self._access.get_session(id_)
            now = self._clock.now()
            if record is None or record.expires_at <= now or record.used_at + self._idle <= now:
                raise ended_session()
            principal = await self._principal_of(record)
            if before == self._forgotten:  # else the session may have ended during either await
                break
        if len(self._known) >= REMEMBERED:
            del self._known[next(iter(self._known))]
        self._known[id_] = _Session(record, principal)
        return self.remembered(token) or principal

    def _check_rate(self, id_: str) -> None:
        """Raise TOO_MANY_REQUESTS when too many unknown sessions are looked up in the store."""
        if id_ not in self._known and (wait := self._unknown.missing_seconds(self._clock.steady())):
            raise SkepError(
                Code.TOO_MANY_REQUESTS, "too many sessions that are not known here are asked for; try again soon",
                retry_after_seconds=int(wait) + 1,
            )  # fmt: skip

    async def end(self, token: bytes) -> None:
        """Log out."""
        if is_session_text(token):
            await self._access.end_session(_digest(token))

    def forget(self, id_: str | None = None) -> None:
        """Drop a session from the cache, as it ended; without an id drop all, as any may have."""
        self._forgotten += 1
        if id_ is None:
            self._known.clear()
        else:
            self._known.pop(id_, None)

    def drop_untrusted(self) -> None:
        """The issuer's keys changed: end waiting calls of sessions whose signer is no longer trusted."""
        for id_, session in list(self._known.items()):
            if not self._is_trusted(session.principal):
                session.principal.revoke()
                del self._known[id_]

    def _note(self, session: _Session) -> None:
        session.is_noting = True
        task = asyncio.ensure_future(self._noted(session))
        self._noting.add(task)
        task.add_done_callback(self._noting.discard)

    async def _noted(self, session: _Session) -> None:
        at = session.used_at
        try:
            if not await self._access.use_session(session.id):
                self.forget(session.id)
            session.noted_at = at
        except SkepError as error:  # it is noted with a later request
            log.info("the use of a session could not be noted", error=str(error))
        finally:
            session.is_noting = False


def _digest(token: bytes) -> str:
    return hashlib.sha256(token).hexdigest()


def ended_session() -> SkepError:
    """The error of a session that has ended."""
    return SkepError(Code.UNAUTHENTICATED, "the session has ended: log in again")
