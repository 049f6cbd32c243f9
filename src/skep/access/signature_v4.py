"""Signature V4 of AWS: reading it from a request's headers or its query, and computing what it should be.

A signature covers the method, the path, the query, some headers, and the body. The key that signs is derived from the secret for one day,
region and service. So a captured request tells nobody the secret, and is good for some minutes only.
"""

from __future__ import annotations

import hashlib
import hmac
import re
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import NamedTuple
from urllib.parse import quote, unquote_plus

from skep.clock import MICROS_PER_SECOND, Instant

ALGORITHM = "AWS4-HMAC-SHA256"
SKEW_SECONDS = 15 * 60
"""How far the signer's clock may be from ours; for so long a captured request is good."""
EXPIRES_SECONDS_MAX = 7 * 86_400
TERMINATOR = "aws4_request"

_FIELD = re.compile(r"\s*(\w+)=([^,\s]+)\s*", re.ASCII)
_DATE = re.compile(r"[0-9]{8}T[0-9]{6}Z", re.ASCII)
_SECONDS = re.compile(r"[0-9]{1,6}", re.ASCII)
_HEX = re.compile(r"[0-9a-f]{64}", re.ASCII)
_UNRESERVED = "-_.~"

Headers = Sequence[tuple[bytes, bytes]]


class RequestSignature(NamedTuple):
    """The signature of a request, as it says it: who signed, when, for which scope, which headers, and for how long it is good."""

    access_key_id: str
    date: str
    region: str
    service: str
    at: str
    headers: tuple[str, ...]
    signature: str
    expires_seconds: int | None = None

    @property
    def scope(self) -> str:
        """The scope of the key that signed."""
        return f"{self.date}/{self.region}/{self.service}/{TERMINATOR}"

    @property
    def is_presigned(self) -> bool:
        """Whether the query carries the signature."""
        return self.expires_seconds is not None


class SignatureError(Exception):
    """What is there of a signature is none."""


def in_header(value: str, at: str | None) -> RequestSignature:
    """The signature of the header Authorization; ``at`` is the header X-Amz-Date."""
    algorithm, _, rest = value.partition(" ")
    found = [_FIELD.fullmatch(part) for part in rest.split(",")]
    fields = {one[1]: one[2] for one in found if one is not None}
    if algorithm != ALGORITHM or set(fields) != {"Credential", "SignedHeaders", "Signature"}:
        raise SignatureError("Authorization has Credential, SignedHeaders and Signature")
    return _signature(fields["Credential"], at, fields["SignedHeaders"], fields["Signature"], None)


def in_query(query: dict[str, str]) -> RequestSignature:
    """The signature of a presigned URL."""
    try:
        expires = int(query["X-Amz-Expires"]) if _SECONDS.fullmatch(query["X-Amz-Expires"]) else -1
        if query["X-Amz-Algorithm"] != ALGORITHM or not 1 <= expires <= EXPIRES_SECONDS_MAX:
            raise SignatureError(f"a presigned URL is good for 1 to {EXPIRES_SECONDS_MAX} seconds, by {ALGORITHM}")
        return _signature(
            query["X-Amz-Credential"],
            query["X-Amz-Date"],
            query["X-Amz-SignedHeaders"],
            query["X-Amz-Signature"],
            expires,
        )
    except KeyError as error:
        raise SignatureError(f"a presigned URL has {error.args[0]}") from None


def _signature(credential: str, at: str | None, headers: str, signature: str, expires: int | None) -> RequestSignature:
    parts = credential.split("/")
    if len(parts) != 5 or parts[4] != TERMINATOR:
        raise SignatureError("a credential is KEY/DATE/REGION/SERVICE/aws4_request")
    if at is None or not _DATE.fullmatch(at) or parts[1] != at[:8]:
        raise SignatureError("X-Amz-Date is a time like 20260131T120000Z, of the day in the credential")
    if not _HEX.fullmatch(signature):
        raise SignatureError("a signature has 64 hexadecimal digits")
    return RequestSignature(parts[0], parts[1], parts[2], parts[3], at, tuple(headers.split(";")), signature, expires)


def is_in_time(signature: RequestSignature, now: Instant) -> bool:
    """Whether a signature was made just now, or is that of a presigned URL that is still good."""
    try:
        made = datetime.strptime(signature.at, "%Y%m%dT%H%M%SZ").replace(tzinfo=UTC).timestamp()
    except ValueError:  # a day or an hour that is none
        return False
    present = now / MICROS_PER_SECOND
    until = made + (SKEW_SECONDS if signature.expires_seconds is None else signature.expires_seconds)
    return made - SKEW_SECONDS <= present <= until


def is_right(
    signature: RequestSignature, secret: str, method: str, path: str, query: str, headers: Headers, body: bytes
) -> bool:
    """Whether this secret signed this request. ``path`` and ``query`` are as they stood in the request line."""
    canonical = canonical_request(signature, method, path, query, headers, body)
    if canonical is None:
        return False
    digest = hashlib.sha256(canonical.encode("latin-1", "replace")).hexdigest()
    text = f"{ALGORITHM}\n{signature.at}\n{signature.scope}\n{digest}"
    key = b"AWS4" + secret.encode()
    for part in (signature.date, signature.region, signature.service, TERMINATOR):
        key = hmac.digest(key, part.encode(), "sha256")
    expected = hmac.digest(key, text.encode(), "sha256").hex()
    return hmac.compare_digest(expected, signature.signature)


def canonical_request(
    signature: RequestSignature, method: str, path: str, query: str, headers: Headers, body: bytes
) -> str | None:
    """The text that is signed; None when a signed header is not there."""
    values: dict[str, list[str]] = {}
    for name, value in headers:
        values.setdefault(name.decode("latin-1"), []).append(" ".join(value.decode("latin-1").split()))
    if any(name not in values for name in signature.headers):
        return None
    lines = "".join(f"{name}:{','.join(values[name])}\n" for name in signature.headers)
    payload = hashlib.sha256(body).hexdigest()
    pairs = _canonical_query(query, without_signature=signature.is_presigned)
    # Of the path as it was sent each % is encoded once more: only S3 signs it as it stands.
    return f"{method}\n{quote(path, safe='/~')}\n{pairs}\n{lines}\n{';'.join(signature.headers)}\n{payload}"


def _canonical_query(query: str, *, without_signature: bool) -> str:
    pairs = []
    for part in query.split("&") if query else []:
        name, _, value = part.partition("=")
        name, value = _encoded(name), _encoded(value)
        if not (without_signature and name == "X-Amz-Signature"):
            pairs.append((name, value))
    return "&".join(f"{name}={value}" for name, value in sorted(pairs))


def _encoded(text: str) -> str:
    # A plus is a space, as it is to who reads the query; or what says "a+b" could be made to say "a b".
    return quote(unquote_plus(text), safe=_UNRESERVED)
