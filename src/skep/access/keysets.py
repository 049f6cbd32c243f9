"""The keys of tokens' issuer: a secret, a public key or a set of them (JWKS), from a file or a URL that the settings name.

Each key is bound to one algorithm when it is read, so that a public key is never taken for a secret. A set from a URL is
fetched at a bounded rate, whatever key ids (kid) tokens name. When the issuer cannot be reached, the last set is used for a while.
Accepted tokens and sessions are checked by the thumbprint of their key; such a check may renew the set in the background.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import jwt
import msgspec
import structlog
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat, load_pem_public_key
from msgspec import Struct

from skep.access.fetching import check_url, fetch, is_url
from skep.clock import Clock, Instant, seconds
from skep.config import AccessSettings
from skep.errors import Code, SkepError

KEYS_MAX = 100
SECRET_BYTES_MIN = 32
RSA_BITS_MIN = 2_048
RSA_BITS_MAX = 16_384
"""Longer ones take long to verify."""
STALE_SECONDS = 3_600.0
"""How long an outdated set is used while it cannot be read again."""
ASK_SECONDS = 10.0
"""The least time between two reads of the set, also when tokens name unknown key ids."""
ALGORITHMS = ("HS256", "RS256", "EdDSA")
_ALGORITHM_OF: dict[tuple[object, object], str] = {("RSA", None): "RS256", ("OKP", "Ed25519"): "EdDSA"}
_PUBLIC = frozenset({"kty", "kid", "use", "key_ops", "alg", "n", "e", "crv", "x"})

log = structlog.get_logger("skep.access")


class KeySet(Struct, frozen=True):
    """Keys, each with its algorithm, by kid where it has one."""

    by_kid: Mapping[str, jwt.PyJWK]
    nameless: tuple[jwt.PyJWK, ...] = ()

    def find(self, algorithm: str, kid: str | None) -> jwt.PyJWK | None:
        """The one key that may verify a token. Without a kid, only one key may have the algorithm."""
        if kid is not None and kid in self.by_kid:
            key = self.by_kid[kid]
            return key if key.algorithm_name == algorithm else None
        given = self.nameless if kid is not None else (*self.by_kid.values(), *self.nameless)
        fitting = [key for key in given if key.algorithm_name == algorithm]
        return fitting[0] if len(fitting) == 1 else None

    def thumbprints(self) -> frozenset[str]:
        """The thumbprints of all keys."""
        return frozenset(thumbprint(key) for key in (*self.by_kid.values(), *self.nameless))


def thumbprint(key: jwt.PyJWK) -> str:
    """The thumbprint of a key. Of a secret it reveals no more than a token that was signed with it."""
    if isinstance(key.key, bytes):
        return hmac.new(key.key, b"skep thumbprint", hashlib.sha256).hexdigest()
    return hashlib.sha256(key.key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)).hexdigest()


class KeySource:
    """The source of the keys, and the keys that it gave last."""

    def __init__(self, settings: AccessSettings, clock: Clock) -> None:
        """INVALID_SETTING when the settings of tokens contradict each other."""
        self.algorithms = _algorithms(settings)
        self._place = settings.jwt_keys or ""
        self._clock = clock
        self._keep = seconds(settings.jwt_keys_seconds)
        self._keys: KeySet | None = None
        self._thumbprints: frozenset[str] = frozenset()
        self._text = b""
        self._read_at = Instant(0)
        self._tried_at: Instant | None = None
        self._reading = asyncio.Lock()
        self._renewing: asyncio.Task[None] | None = None
        self._on_change: Callable[[], None] = lambda: None

    def on_change(self, callback: Callable[[], None]) -> None:
        """Call ``callback`` when the keys change."""
        self._on_change = callback

    async def start(self) -> None:
        """Read the keys. A file must exist. An issuer may be unreachable for now: no token is valid then."""
        try:
            await self._read()
        except SkepError as error:
            if not is_url(self._place):
                raise
            log.warning("the keys of tokens cannot be read; tokens are refused for now", error=str(error))

    async def keys(self, kid: str | None) -> KeySet:
        """The current keys; UNAUTHENTICATED when there are none."""
        now = self._clock.steady()
        if self._keys is None or now - self._read_at >= self._keep or self._lacks(kid):
            await self._renew()
        if self._keys is None or self._is_stale:
            raise SkepError(Code.UNAUTHENTICATED, "the token is refused: the keys of its issuer cannot be read")
        return self._keys

    def has(self, thumbprint: str) -> bool:
        """Whether a known key is trusted: none is when the set is long outdated. If the set is due, it is read in the background."""
        if self._tried_at is None or self._is_stale:
            return False
        now = self._clock.steady()
        untried = now - self._tried_at
        if untried >= max(2 * self._keep, seconds(ASK_SECONDS)):  # no token came for long, so the known keys may be old
            return False
        if now - self._read_at >= self._keep and untried >= seconds(ASK_SECONDS):
            self._renew_soon()
        return thumbprint in self._thumbprints

    async def still_has(self, thumbprint: str) -> bool:
        """Whether a key is trusted. For an unknown key the source is read again first."""
        if self.has(thumbprint):
            return True
        await self._renew()
        return thumbprint in self._thumbprints and not self._is_stale

    @property
    def _is_stale(self) -> bool:
        return self._clock.steady() - self._read_at >= self._keep + seconds(STALE_SECONDS)

    def _renew_soon(self) -> None:
        if self._renewing is None or self._renewing.done():
            self._renewing = asyncio.ensure_future(self._renew())

    def _lacks(self, kid: str | None) -> bool:
        return kid is not None and self._keys is not None and kid not in self._keys.by_kid and not self._keys.nameless

    async def _renew(self) -> None:
        async with self._reading:
            now = self._clock.steady()
            if self._tried_at is not None and now - self._tried_at < seconds(ASK_SECONDS):
                return
            try:
                await self._read()
            except SkepError as error:
                log.warning("the keys of tokens cannot be read", error=str(error))

    async def _read(self) -> None:
        self._tried_at = self._clock.steady()
        if is_url(self._place):
            text = await fetch(self._place)
        else:
            text = await asyncio.to_thread(_file, self._place)
        found = read_keys(text, self.algorithms)
        changed = self._keys is not None and text != self._text
        self._keys, self._text, self._read_at = found, text, self._clock.steady()
        self._thumbprints = found.thumbprints()
        if changed:
            log.info("the keys of tokens changed")
            self._on_change()


def _algorithms(settings: AccessSettings) -> tuple[str, ...]:
    named = tuple(dict.fromkeys(part.strip() for part in (settings.jwt_algorithms or "").split(",") if part.strip()))
    if not named or not set(named) <= set(ALGORITHMS):
        raise _unfit(f"access.jwt_algorithms names some of {', '.join(ALGORITHMS)}")
    if "HS256" in named and len(named) > 1:
        raise _unfit("access.jwt_algorithms: HS256 has a secret and the others have public keys, so it stands alone")
    for name in ("jwt_keys", "jwt_issuer", "jwt_audience"):
        if not getattr(settings, name):
            raise _unfit(f"tokens need access.{name}")
    if is_url(settings.jwt_keys or ""):
        if "HS256" in named:
            raise _unfit("access.jwt_keys: the secret of HS256 is in a file, not at a URL")
        check_url(settings.jwt_keys or "")
    return named


def _file(place: str) -> bytes:
    try:
        return Path(place).read_bytes()
    except OSError as error:
        raise _unfit(f"access.jwt_keys: cannot read {place}: {error.strerror}") from None


def read_keys(text: bytes, algorithms: tuple[str, ...]) -> KeySet:
    """The keys that a file or an answer holds."""
    stripped = text.strip()
    if algorithms == ("HS256",):
        return _secret(stripped)
    if stripped.startswith(b"-----BEGIN"):
        return KeySet({}, (_of_pem(stripped, algorithms),))
    try:
        listed = msgspec.json.decode(stripped, type=dict[str, Any]).get("keys")
    except (msgspec.DecodeError, RecursionError):
        raise _unfit("access.jwt_keys holds neither a public key (PEM) nor a set of keys (JWKS)") from None
    if not isinstance(listed, list) or len(listed) > KEYS_MAX:
        raise _unfit(f"access.jwt_keys: a set has a list of at most {KEYS_MAX} keys")
    by_kid, nameless = {}, []
    for one in listed:
        try:
            key = _of_jwk(one, algorithms)
        except (SkepError, TypeError) as error:  # the others can still be used
            log.warning("a key of tokens is left out", error=str(error)[:200])
            continue
        if key is None:
            continue
        if isinstance(one.get("kid"), str):
            if one["kid"] in by_kid:
                raise _unfit("access.jwt_keys: two keys have the same kid")
            by_kid[one["kid"]] = key
        else:
            nameless.append(key)
    if not by_kid and not nameless:
        raise _unfit(f"access.jwt_keys: no key of the set is for {', '.join(algorithms)}")
    return KeySet(by_kid, tuple(nameless))


def _secret(text: bytes) -> KeySet:
    if text.startswith((b"-----", b"{", b"ssh-")):
        raise _unfit("access.jwt_keys: HS256 has a secret, and this is a key of another kind")
    if len(text) < SECRET_BYTES_MIN:
        raise _unfit(f"access.jwt_keys: a secret has at least {SECRET_BYTES_MIN} bytes")
    return KeySet({}, (_key({"kty": "oct", "k": jwt.utils.base64url_encode(text).decode()}, "HS256"),))


def _of_pem(text: bytes, algorithms: tuple[str, ...]) -> jwt.PyJWK:
    try:
        key = load_pem_public_key(text)
    except (ValueError, UnsupportedAlgorithm):
        raise _unfit("access.jwt_keys: the PEM holds no public key") from None
    told: dict[str, Any] | None = None
    if isinstance(key, RSAPublicKey):
        told = jwt.algorithms.RSAAlgorithm.to_jwk(key, as_dict=True)
    elif isinstance(key, Ed25519PublicKey):
        told = jwt.algorithms.OKPAlgorithm.to_jwk(key, as_dict=True)
    found = _of_jwk(told, algorithms)
    if found is not None:
        return found
    raise _unfit(f"access.jwt_keys: the key is not for {', '.join(algorithms)}, or it is too short")


def _of_jwk(told: object, algorithms: tuple[str, ...]) -> jwt.PyJWK | None:
    """A key of a set; None when it is for another purpose. Private parts are left out."""
    if not isinstance(told, dict):
        return None
    algorithm = _ALGORITHM_OF.get((told.get("kty"), told.get("crv")))
    if algorithm is None or algorithm not in algorithms:
        return None
    if told.get("alg", algorithm) != algorithm or told.get("use", "sig") != "sig":
        return None
    if "verify" not in told.get("key_ops", ["verify"]):
        return None
    key = _key({name: value for name, value in told.items() if name in _PUBLIC}, algorithm)
    if isinstance(key.key, RSAPublicKey) and not RSA_BITS_MIN <= key.key.key_size <= RSA_BITS_MAX:
        log.warning(
            "a key of tokens is left out, since its length is unfit", kid=told.get("kid"), bits=key.key.key_size
        )
        return None
    return key


def _key(told: dict[str, Any], algorithm: str) -> jwt.PyJWK:
    try:
        return jwt.PyJWK(told, algorithm)
    except (jwt.PyJWTError, ValueError, TypeError, KeyError):
        raise _unfit(f"access.jwt_keys: a key cannot be one of {algorithm}") from None


def _unfit(message: str) -> SkepError:
    return SkepError(Code.INVALID_SETTING, message)
