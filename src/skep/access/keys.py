"""Keys: ``skep_<id>_<secret>``. The id names the key, and the secret proves it. Only a digest of the secret is stored.

The secret has 256 random bits, so a plain SHA-256 is enough: there is nothing to guess that a slower hash would protect.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
import string
from collections.abc import Callable, Sequence
from typing import NamedTuple

import msgspec

from skep.access.scopes import check_grants
from skep.clock import Instant, seconds
from skep.engine.access import FORGET_SECONDS
from skep.errors import Code, SkepError
from skep.model.key import Grant, KeyDetail, KeyRecord, SealedSecret

PREFIX = "skep_"
AWS_PREFIX = "SKEP"
ID_CHARACTERS = 16
SECRET_CHARACTERS = 43
"""The fewest letters and digits that hold 256 bits."""
NAME_CHARACTERS = 100
RATE_MAX = 1_000_000.0
EXPIRES_SECONDS_MAX = 100 * 365 * 86_400.0

_ID_ALPHABET = string.digits + string.ascii_lowercase
_SECRET_ALPHABET = string.digits + string.ascii_letters
_KEY = re.compile(rf"{PREFIX}([0-9a-z]{{{ID_CHARACTERS}}})_([0-9A-Za-z]{{{SECRET_CHARACTERS}}})", re.ASCII)
_AWS_ID = re.compile(rf"{AWS_PREFIX}([0-9A-Z]{{{ID_CHARACTERS}}})", re.ASCII)
_decode = msgspec.json.Decoder(KeyDetail).decode
_NOBODY = hashlib.sha256(b"nobody").digest()


class Minted(NamedTuple):
    """A new key: its record for the store, and its text, which is shown once."""

    record: KeyRecord
    text: str


class Presented(NamedTuple):
    """A key as a caller shows it."""

    id: str
    secret: str


def mint(
    name: str,
    grants: Sequence[Grant],
    *,
    created_by: str,
    now: Instant,
    expires_at: Instant | None = None,
    requests_per_second: float | None = None,
    seal: Callable[[str, str], SealedSecret] | None = None,
) -> Minted:
    """A new key. The secret comes from the system's own source of randomness, whatever the caller's is.

    With ``seal`` the key can sign requests as AWS's do: its record has the sealed secret.
    """
    _check(name, grants, now, expires_at, requests_per_second)
    id_ = "".join(secrets.choice(_ID_ALPHABET) for _ in range(ID_CHARACTERS))
    secret = "".join(secrets.choice(_SECRET_ALPHABET) for _ in range(SECRET_CHARACTERS))
    kept = None if seal is None else seal(label_of(id_), secret)
    detail = KeyDetail(name, tuple(grants), created_by, requests_per_second, kept)
    forget_at = None if expires_at is None else Instant(expires_at + seconds(FORGET_SECONDS))
    record = KeyRecord(
        id_, digest_of(secret), now, msgspec.json.encode(detail), expires_at=expires_at, forget_at=forget_at
    )
    return Minted(record, f"{PREFIX}{id_}_{secret}")


def label_of(id_: str) -> str:
    """What the sealed secret of a key is bound to."""
    return f"key {id_}"


def access_key_id(id_: str) -> str:
    """The id by which AWS's SDKs name a key."""
    return f"{AWS_PREFIX}{id_.upper()}"


def id_of_access_key(text: str) -> str | None:
    """The id of the key that an access key id names; None when it can name none."""
    found = _AWS_ID.fullmatch(text)
    return None if found is None else found[1].lower()


def _check(
    name: str, grants: Sequence[Grant], now: Instant, expires_at: Instant | None, requests_per_second: float | None
) -> None:
    check_grants(grants)
    if not 1 <= len(name) <= NAME_CHARACTERS or not name.isprintable():
        raise SkepError(Code.INVALID_NAME, f"a key's name has 1 to {NAME_CHARACTERS} printable characters")
    if expires_at is not None and not now < expires_at <= now + seconds(EXPIRES_SECONDS_MAX):
        raise SkepError(Code.INVALID_TIME, "a key expires in the future, within 100 years")
    if requests_per_second is not None and not 0 < requests_per_second <= RATE_MAX:
        raise SkepError(Code.INVALID_REQUEST, f"a rate is above 0 and at most {RATE_MAX:g} requests per second")


def counts(record: KeyRecord, now: Instant) -> bool:
    """Whether a key is valid: it is neither revoked nor expired."""
    return record.revoked_at is None and (record.expires_at is None or now < record.expires_at)


def parse(text: str) -> Presented | None:
    """The parts of a key; None when it is none."""
    found = _KEY.fullmatch(text)
    return None if found is None else Presented(found[1], found[2])


def digest_of(secret: str) -> bytes:
    """The digest of a secret, which the store keeps."""
    return hashlib.sha256(secret.encode()).digest()


def is_right(presented: Presented, record: KeyRecord | None) -> bool:
    """Whether the secret is the key's. An unknown key takes as long as a known one."""
    kept = _NOBODY if record is None else record.digest
    same = hmac.compare_digest(digest_of(presented.secret), kept)
    return same and record is not None


def detail_of(record: KeyRecord) -> KeyDetail:
    """The name and grants of a key."""
    return _decode(record.document)
