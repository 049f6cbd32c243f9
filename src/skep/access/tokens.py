"""Verify tokens (JWT) of the issuer that the settings name.

A token's own header decides nothing: the settings name the algorithms, and each key is for one of them only. Issuer, audience, subject
and expiry must be present and right, and the expiry near. Time is the server's own clock. One claim has the token's grants.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import jwt
import msgspec
import structlog

from skep.access.keysets import KeySource, thumbprint
from skep.access.scopes import check_grants
from skep.clock import MICROS_PER_SECOND, Clock, Instant
from skep.config import AccessSettings
from skep.errors import Code, SkepError
from skep.model.key import Grant, Signer
from skep.wire.access import GrantItem

SUBJECT_CHARACTERS = 200
LATEST_SECONDS = 253_402_300_799  # the end of the year 9999

log = structlog.get_logger("skep.access")


class Verified(NamedTuple):
    """A verified token: its subject, its grants, its expiry, and its signer."""

    subject: str
    grants: tuple[Grant, ...]
    expires_at: Instant
    signer: Signer


class Tokens:
    """Verifies tokens."""

    def __init__(self, settings: AccessSettings, clock: Clock, source: KeySource) -> None:
        self._settings = settings
        self._clock = clock
        self._source = source
        self._jws = jwt.PyJWS()

    def on_change(self, callback: Callable[[], None]) -> None:
        """Call ``callback`` when the issuer's keys changed."""
        self._source.on_change(callback)

    async def verified(self, text: str) -> Verified:
        """The contents of a token that is valid now; UNAUTHENTICATED otherwise."""
        try:
            header = jwt.get_unverified_header(text)
        except jwt.InvalidTokenError:
            raise _refused("it is not a token") from None
        algorithm, key_id = header.get("alg"), header.get("kid")
        if algorithm not in self._source.algorithms:
            raise _refused("its algorithm is not one of those that count here")
        if "crit" in header or not isinstance(key_id, str | None):
            raise _refused("its header asks for what is not understood here")
        keys = await self._source.keys(key_id)
        key = keys.find(algorithm, key_id)
        if key is None:
            raise _refused("no key of its issuer fits it")
        claims = self._claims(text, key, algorithm)
        signer = Signer(claims["iss"], thumbprint(key))
        return Verified(self._subject(claims), self._grants(claims), self._expiry(claims), signer)

    def trusts(self, signer: Signer) -> bool:
        """Whether tokens of this signer are trusted, by the known keys. This may start to read the issuer's keys again, without waiting."""
        return signer.issuer == self._settings.jwt_issuer and self._source.has(signer.key)

    async def still_trusts(self, signer: Signer) -> bool:
        """Whether tokens of this signer are trusted. For an unknown key, read the issuer's keys again and wait for them."""
        return signer.issuer == self._settings.jwt_issuer and await self._source.still_has(signer.key)

    def _claims(self, text: str, key: jwt.PyJWK, algorithm: str) -> dict[str, Any]:
        try:
            # Only the signature: times go by our clock, and the rest is looked at below.
            payload = self._jws.decode(text, key, algorithms=[algorithm])
            claims = msgspec.json.decode(payload, type=dict[str, Any])
        except (jwt.InvalidTokenError, msgspec.DecodeError, RecursionError):
            raise _refused("its signature or its content is wrong") from None
        if claims.get("iss") != self._settings.jwt_issuer:
            raise _refused("it is of another issuer")
        audience = claims.get("aud")
        if self._settings.jwt_audience not in (audience if isinstance(audience, list) else [audience]):
            raise _refused("it is for another audience")
        return claims

    def _expiry(self, claims: Mapping[str, Any]) -> Instant:
        now, leeway = self._clock.now() / MICROS_PER_SECOND, self._settings.jwt_leeway_seconds
        expiry = _time(claims, "exp")
        if expiry is None:
            raise _refused("it does not say when it expires")
        if expiry + leeway <= now:
            raise _refused("it has expired")
        for name in ("nbf", "iat"):
            begin = _time(claims, name)
            if begin is not None and begin - leeway > now:
                raise _refused("it does not count yet")
        # A token cannot be revoked, so a stolen one must expire soon.
        issued = _time(claims, "iat")
        if expiry - (now + leeway if issued is None else issued) > self._settings.jwt_life_seconds:
            raise _refused(
                f"it counts for longer than {self._settings.jwt_life_seconds:g} seconds (access.jwt_life_seconds)"
            )
        return Instant(int((expiry + leeway) * MICROS_PER_SECOND))

    def _subject(self, claims: Mapping[str, Any]) -> str:
        subject = claims.get("sub")
        if not isinstance(subject, str) or not 1 <= len(subject) <= SUBJECT_CHARACTERS or not subject.isprintable():
            raise _refused("it does not say whom it is about")
        return subject

    def _grants(self, claims: Mapping[str, Any]) -> tuple[Grant, ...]:
        claim = claims.get(self._settings.jwt_claim)
        try:
            claimed = msgspec.convert(claim if isinstance(claim, list) else [claim], tuple[GrantItem, ...])
            grants = tuple(one.grant for one in claimed if one.grant is not None)
            if len(grants) < len(claimed):
                raise SkepError(Code.INVALID_REQUEST, "a grant says a role or verbs, and not both")
            check_grants(grants)
        except (msgspec.ValidationError, SkepError) as error:
            log.info("a token of the issuer grants nothing that is understood", error=str(error)[:200])
            raise _refused(f"its claim {self._settings.jwt_claim!r} grants nothing that is understood here") from None
        return grants


def _time(claims: Mapping[str, Any], name: str) -> float | None:
    value = claims.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise _refused(f"its {name} is not a time")
    if not math.isfinite(value) or not 0 <= value <= LATEST_SECONDS:
        raise _refused(f"its {name} is not a time")
    return float(value)


def _refused(reason: str) -> SkepError:
    return SkepError(Code.UNAUTHENTICATED, f"the token is refused: {reason}")
