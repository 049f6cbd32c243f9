"""The gate (authentication): a key, a token or a session becomes a principal, or is refused.

Every server knows all keys (there are not many), so a made-up key costs no look at the store. The principal of a credential is
cached by the credential's digest, so the hot path costs one digest and one look-up in a dictionary. A key that is made or revoked
leaves the cache at once, and is read again when a caller shows it. Other servers learn of the change through the store.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable
from typing import TYPE_CHECKING

import structlog

from skep.access import keys
from skep.access.principal import Principal
from skep.access.rates import UNKNOWN_PER_SECOND, bucket_of
from skep.access.sessions import Sessions, detail_of, ended_session, is_session_id
from skep.clock import Clock
from skep.config import AccessSettings
from skep.engine.access import Access
from skep.errors import Code, SkepError
from skep.model.key import EVERY, KEY_OWNER, VERBS_OF, Grant, KeyRecord, Role, SealedSecret, SessionRecord
from skep.runtime.token_bucket import TokenBucket

if TYPE_CHECKING:  # the extra `access` need not be installed
    from skep.access.tokens import Tokens

REMEMBERED = 20_000
"""Credentials whose principal is remembered, and buckets of tokens' subjects."""
CREDENTIAL_CHARACTERS = 8_192
REFUSALS_PER_SECOND = 1.0
"""The most refused keys and tokens that are logged one by one; the others are counted."""

OpenSecret = Callable[[str, SealedSecret], str]

log = structlog.get_logger("skep.access")


class Gate:
    """Turns credentials into principals."""

    def __init__(
        self,
        access: Access,
        clock: Clock,
        settings: AccessSettings,
        tokens: Tokens | None = None,
        open_secret: OpenSecret | None = None,
    ) -> None:
        """``open_secret`` opens the sealed secrets of keys that sign requests."""
        self._open_secret = open_secret
        self._access = access
        self._clock = clock
        self._settings = settings
        self._tokens = tokens
        self._records: dict[str, KeyRecord] = {}
        self._told: set[str] = set()
        self._loaded = False
        self._loading = asyncio.Lock()
        self._reloading: asyncio.Future[None] | None = None
        self._known: dict[bytes, Principal] = {}
        self._own: dict[bytes, Principal] = {}
        self._by_key: dict[str, Principal] = {}
        self._buckets: dict[str, TokenBucket] = {}
        self._unknown = bucket_of(UNKNOWN_PER_SECOND)
        self._refusals = bucket_of(REFUSALS_PER_SECOND)
        self._untold = 0
        self.sessions = Sessions(access, clock, settings, self._of_session, self._is_trusted)
        access.on_change(self._changed)
        if tokens is not None:
            tokens.on_change(self._keys_rotated)

    def missing_seconds(self, principal: Principal) -> float:
        """0 when a principal may make a request now; else the seconds until it may (rate limit)."""
        return 0.0 if principal.bucket is None else principal.bucket.missing_seconds(self._clock.steady())

    @property
    def keys(self) -> int:
        """The number of valid keys."""
        now = self._clock.now()
        return sum(keys.counts(record, now) for record in self._records.values())

    async def load(self) -> None:
        """Load all keys. Principals of keys that were revoked meanwhile end."""
        async with self._loading:
            if self._loaded:
                return
            self._loaded = True  # a change from now on is noticed
            try:
                self._records = {record.id: record for record in await self._access.all_keys()}
            except BaseException:
                self._loaded = False
                raise
            for id_ in self._told:  # changed since, or perhaps while they were read
                self._records.pop(id_, None)
            for id_, principal in list(self._by_key.items()):
                record = self._records.get(id_)
                if id_ not in self._told and (record is None or record.revoked_at is not None):
                    self._drop(id_, principal)

    def trust(self, credential: str, name: str) -> None:
        """Trust this token with everything, as long as this process lives: for its own workers, and for `skep key` on the same machine."""
        grant = Grant(VERBS_OF[Role.ADMIN], (EVERY,), (EVERY,))
        self._own[hashlib.sha256(credential.encode()).digest()] = Principal(name, [grant], self._clock)

    # authentication

    def remembered(self, credential: bytes) -> Principal | None:
        """The cached principal of a credential, if it is still valid."""
        digest = hashlib.sha256(credential).digest()
        principal = self._known.get(digest) or self._own.get(digest)
        if principal is None or not self._loaded or principal.is_over or not self._is_trusted(principal):
            return None
        return principal

    def _is_trusted(self, principal: Principal) -> bool:
        """Whether the signer of a principal's token is still trusted. A principal without a token always is."""
        signer = principal.signer
        return signer is None or (self._tokens is not None and self._tokens.trusts(signer))

    async def admit(self, credential: bytes) -> Principal:
        """The principal of this key or token; UNAUTHENTICATED when there is none."""
        if not self._loaded:
            await self.load()
        principal = self.remembered(credential)
        if principal is None:
            principal = await self._examined(credential)
            if len(self._known) >= REMEMBERED:
                del self._known[next(iter(self._known))]
            self._known[hashlib.sha256(credential).digest()] = principal
        return principal

    async def _examined(self, credential: bytes) -> Principal:
        try:
            text = credential.decode("ascii")
        except UnicodeDecodeError:
            raise _nobody() from None
        if len(text) > CREDENTIAL_CHARACTERS:
            raise _nobody()
        if text.startswith(keys.PREFIX):
            return await self._of_key(text)
        if self._tokens is None:
            raise _nobody()
        found = await self._tokens.verified(text)
        name = f"jwt:{found.subject}"
        return Principal(
            name, found.grants, self._clock, expires_at=found.expires_at,
            bucket=self._bucket(name, self._settings.requests_per_second), signer=found.signer,
        )  # fmt: skip

    async def _of_key(self, text: str) -> Principal:
        presented = keys.parse(text)
        if presented is None:
            raise _nobody()
        record = await self._record(presented.id)
        if not keys.is_right(presented, record) or record is None:
            raise _nobody()
        return self._counting(record)

    def _counting(self, record: KeyRecord) -> Principal:
        """The principal of a key, if the key is valid."""
        if record.revoked_at is not None:
            raise SkepError(Code.UNAUTHENTICATED, "the key was revoked")
        if record.expires_at is not None and record.expires_at <= self._clock.now():
            raise SkepError(Code.UNAUTHENTICATED, "the key has expired")
        principal = self._by_key.get(record.id)
        if principal is None:
            detail = keys.detail_of(record)
            rate = detail.requests_per_second or self._settings.requests_per_second
            name = KEY_OWNER + record.id
            principal = Principal(
                name, detail.grants, self._clock, expires_at=record.expires_at, bucket=self._bucket(name, rate)
            )
            self._by_key[record.id] = principal
        return principal

    async def _of_session(self, session: SessionRecord) -> Principal:
        """The principal of a session. Its key is checked again, so that the session ends with the key and grants no more than it.

        A session of a token ends when the key that signed the token is trusted no longer.
        """
        if not self._loaded:
            await self.load()
        if not session.owner.startswith(KEY_OWNER):
            detail = detail_of(session)
            if self._tokens is None or detail.signer is None or not await self._tokens.still_trusts(detail.signer):
                raise ended_session()
            return Principal(
                session.owner, detail.grants, self._clock, expires_at=session.expires_at,
                bucket=self._bucket(session.owner, self._settings.requests_per_second), signer=detail.signer,
            )  # fmt: skip
        record = await self._record(session.owner.removeprefix(KEY_OWNER))
        if record is None:
            raise _nobody()
        return self._counting(record)

    def refused(self, peer: str, error: SkepError) -> None:
        """Log a refused key or token: the client's address and the reason, never the credential."""
        if self._refusals.missing_seconds(self._clock.steady()):
            self._untold += 1
            return
        log.warning("a key or token was refused", peer=peer, reason=error.message, untold=self._untold)
        self._untold = 0

    async def secret_of(self, access_key_id: str) -> str | None:
        """The secret by which a key of AWS's kind signs; None when there is no such key, or it signs nothing."""
        if not self._loaded:
            await self.load()
        id_ = keys.id_of_access_key(access_key_id)
        record = None if id_ is None else await self._record(id_)
        kept = None if record is None else keys.detail_of(record).secret
        if record is None or kept is None or self._open_secret is None:
            return None
        return self._open_secret(keys.label_of(record.id), kept)

    async def signer(self, access_key_id: str) -> Principal:
        """The principal of a key whose signature was right; UNAUTHENTICATED when the key counts no longer."""
        id_ = keys.id_of_access_key(access_key_id)
        record = None if id_ is None else await self._record(id_)
        if record is None:
            raise _nobody()
        return self._counting(record)

    async def _record(self, id_: str) -> KeyRecord | None:
        record = self._records.get(id_)
        if record is not None or (id_ not in self._told and self._unknown.missing_seconds(self._clock.steady())):
            return record
        while True:
            self._told.discard(id_)
            try:
                record = await self._access.get_key(id_)
            except BaseException:
                self._told.add(id_)
                raise
            if id_ not in self._told:  # else it was changed while it was read
                break
        if record is not None:
            self._records[id_] = record
        return record

    def _bucket(self, name: str, rate: float | None) -> TokenBucket | None:
        if rate is None:
            return None
        bucket = self._buckets.get(name)
        if bucket is None:
            if len(self._buckets) >= REMEMBERED:
                del self._buckets[next(iter(self._buckets))]
            bucket = self._buckets[name] = bucket_of(rate)
        return bucket

    # changes

    def _changed(self, id_: str | None, revoked: bool) -> None:
        if id_ is None:
            self.sessions.forget()
        elif is_session_id(id_):
            self.sessions.forget(id_)
            return
        if id_ is None or len(self._told) >= REMEMBERED:
            self._told.clear()
            self._loaded = False
            self._reloading = asyncio.ensure_future(self._reload())
        if id_ is None or (not revoked and id_ in self._records):
            return
        self._told.add(id_)
        self._records.pop(id_, None)
        principal = self._by_key.get(id_)
        if principal is not None:
            self._drop(id_, principal)

    async def _reload(self) -> None:
        """Reload keys also without a new request: a waiting call may belong to a key that was revoked."""
        try:
            await self.load()
        except SkepError as error:
            log.warning("keys cannot be read; the next request tries again", error=str(error))

    def _drop(self, id_: str, principal: Principal) -> None:
        log.info("a key counts no longer", key=id_)
        principal.revoke()
        del self._by_key[id_]

    def _keys_rotated(self) -> None:
        """The issuer's keys changed: check tokens again, and end waiting calls of tokens whose signer is no longer trusted."""
        for digest, principal in list(self._known.items()):
            if principal.signer is not None:
                del self._known[digest]
                if not self._is_trusted(principal):
                    principal.revoke()
        self.sessions.drop_untrusted()


def _nobody() -> SkepError:
    return SkepError(Code.UNAUTHENTICATED, "this key or token is not known here")
