"""Verify signatures of requests, over the raw bytes, before anything parses them.

A verifier is compiled once for a webhook and changes nothing. It compares the sent signature with the signature of every secret,
always all of them and in constant time. So neither an answer nor its time shows which secret matched, or how much was right.
A signature that is missing or wrong is SIGNATURE_INVALID; one that cannot be a signature of its scheme is SIGNATURE_MALFORMED.
"""

from __future__ import annotations

import base64
import binascii
import hmac
from collections.abc import Callable, Mapping, Sequence
from typing import assert_never

from skep.clock import MICROS_PER_SECOND, Instant, seconds
from skep.errors import Code, SkepError
from skep.spec import effective_verify
from skep.spec.ir import Algorithm, Encoding, Scheme, Verify
from skep.spec.secrets import SecretUse, read_secret, secret_kind
from skep.spec.standard_keys import PublicKey, Secret, VerifyingKey, signed_content, verifying_key

Headers = Sequence[tuple[bytes, bytes]]
"""Names in small letters, as they came."""
Verifier = Callable[[Headers, bytes, Instant], None]
"""Given a request's headers, its body and the time: returns, or raises."""

SIGNATURES_MAX = 16
"""The most signatures in one header that are checked. A sender that rotates its secrets sends two."""
KEY_SIGNATURES_MAX = 4
"""The same for signatures by a key: to verify one takes as long as to compare a thousand others, and longer for a large body."""
TIMESTAMP_DIGITS = 12
_DIGEST_BYTES = {Algorithm.SHA1: 20, Algorithm.SHA256: 32, Algorithm.SHA512: 64}

GITHUB_HEADER = "X-Hub-Signature-256"
PAGERDUTY_HEADER = "X-PagerDuty-Signature"
STRIPE_HEADER = "Stripe-Signature"
STRIPE_FORM = "t=, a time in whole seconds since 1970, then v1= and 64 hexadecimal digits"
SLACK_HEADER = "X-Slack-Signature"
SLACK_TIMESTAMP = "X-Slack-Request-Timestamp"
STANDARD_FAMILIES = ("webhook-", "svix-")
"""How the names of the three headers of Standard Webhooks begin. Svix is older than the standard and has names of its own, which
Clerk, Resend and all others who send through it have, too."""


def compile_verifier(verify: Verify | None, environment: Mapping[str, str]) -> Verifier | None:
    """The verifier that a spec asks for, with the secrets of the environment; None when anyone may post."""
    if verify is None:
        return None
    verify = effective_verify(verify)
    kind = secret_kind(verify.scheme)
    secrets = [_secret(SecretUse(variable, kind, ()), environment) for variable in verify.secret_env]
    keys = [secret.encode() for secret in secrets]
    match verify.scheme:
        case Scheme.NONE:
            return None
        case Scheme.HMAC:
            return _plain(keys, verify.header or "", verify.prefix, verify.encoding, verify.algorithm)
        case Scheme.GITHUB:
            return _plain(keys, GITHUB_HEADER, "sha256=")
        case Scheme.PAGERDUTY:
            return _plain(keys, PAGERDUTY_HEADER, "v1=")
        case Scheme.STRIPE:
            return _stripe(keys, verify.tolerance_seconds)
        case Scheme.SLACK:
            return _slack(keys, verify.tolerance_seconds)
        case Scheme.STANDARD_WEBHOOKS:
            named = zip(verify.secret_env, secrets, strict=True)
            return _standard([verifying_key(name, text) for name, text in named], verify.tolerance_seconds)
    assert_never(verify.scheme)


def header_value(headers: Headers, name: bytes) -> bytes | None:
    """The value of a header; a name that comes twice is refused, since two readers could take different ones."""
    found: bytes | None = None
    for key, value in headers:
        if key == name:
            if found is not None:
                raise SkepError(Code.SIGNATURE_MALFORMED, f"the header {name.decode()} is given twice")
            found = value
    return found


def _plain(
    keys: Sequence[bytes],
    header: str,
    prefix: str,
    encoding: Encoding = Encoding.HEX,
    algorithm: Algorithm = Algorithm.SHA256,
) -> Verifier:
    """An HMAC of the body; several signatures are divided by commas."""
    name, start, hash_name, size = header.lower().encode(), prefix.encode(), str(algorithm), _DIGEST_BYTES[algorithm]
    decode = _from_hex if encoding is Encoding.HEX else _from_base64
    digits = f"{2 * size} hexadecimal digits" if encoding is Encoding.HEX else f"{size} bytes in base64"
    form = f"{prefix} and {digits}" if prefix else digits

    def verify(headers: Headers, body: bytes, now: Instant) -> None:  # noqa: ARG001 - a verifier
        given = _given(_needed(headers, name, header).split(b","), start, decode, size, header, form)
        _compare(given, [hmac.digest(key, body, hash_name) for key in keys])

    return verify


def _stripe(keys: Sequence[bytes], tolerance_seconds: float) -> Verifier:
    """``t=1492774577,v1=…,v1=…``: an HMAC of the time, a dot and the body. Other versions than v1 are passed over."""
    name = STRIPE_HEADER.lower().encode()

    def verify(headers: Headers, body: bytes, now: Instant) -> None:
        parts = [part.strip() for part in _needed(headers, name, STRIPE_HEADER).split(b",")]
        times = [part[2:] for part in parts if part.startswith(b"t=")]
        if len(times) != 1:
            raise _malformed(STRIPE_HEADER, STRIPE_FORM)
        given = _given(parts, b"v1=", _from_hex, 32, STRIPE_HEADER, STRIPE_FORM)
        _check_age(_timestamp(times[0], STRIPE_HEADER), now, tolerance_seconds)
        content = times[0] + b"." + body
        _compare(given, [hmac.digest(key, content, "sha256") for key in keys])

    return verify


def _slack(keys: Sequence[bytes], tolerance_seconds: float) -> Verifier:
    """``v0=…`` of the version, the time and the body with colons between, the time in a header of its own."""
    name, time_name = SLACK_HEADER.lower().encode(), SLACK_TIMESTAMP.lower().encode()

    def verify(headers: Headers, body: bytes, now: Instant) -> None:
        parts = _needed(headers, name, SLACK_HEADER).split(b",")
        time = _needed(headers, time_name, SLACK_TIMESTAMP)
        given = _given(parts, b"v0=", _from_hex, 32, SLACK_HEADER, "v0= and 64 hexadecimal digits")
        _check_age(_timestamp(time, SLACK_TIMESTAMP), now, tolerance_seconds)
        content = b"v0:" + time + b":" + body
        _compare(given, [hmac.digest(key, content, "sha256") for key in keys])

    return verify


def _standard(keys: Sequence[VerifyingKey], tolerance_seconds: float) -> Verifier:
    """``v1,… v1a,…`` of id, time and body. A v1 is compared with our secrets alone, and a v1a verified with public keys alone."""
    secrets = [key for key in keys if isinstance(key, Secret)]
    public = [key for key in keys if isinstance(key, PublicKey)]
    forms = ["v1, and 32 bytes in base64"] * bool(secrets) + ["v1a, and 64 bytes in base64"] * bool(public)

    def verify(headers: Headers, body: bytes, now: Instant) -> None:
        family = _family(headers)
        names = id_name, time_name, name = [family + part for part in ("id", "timestamp", "signature")]
        raw_id, raw_time, signatures = [_needed(headers, name.encode(), name) for name in names]
        id_, time, parts = _text(raw_id, id_name), _timestamp(raw_time, time_name), signatures.split()
        shared = _signatures(parts, b"v1,", _from_base64, 32, name) if secrets else []
        by_key = _signatures(parts, b"v1a,", _from_base64, 64, name, KEY_SIGNATURES_MAX) if public else []
        if not shared and not by_key:
            raise _malformed(name, ", or ".join(forms))
        _check_age(time, now, tolerance_seconds)
        _text(body, "body")
        content = signed_content(id_, time, body)
        if not _matches(shared, [key.digest(content) for key in secrets]):
            _check(any(key.verifies(signature, content) for signature in by_key for key in public))
        _check_other_ids(headers, raw_id)

    return verify


def _family(headers: Headers) -> str:
    """The names by which a request is signed: the standard's, unless only Svix's are there."""
    standard, svix = STANDARD_FAMILIES
    there = {name for name, _ in headers}
    return svix if f"{svix}signature".encode() in there and f"{standard}signature".encode() not in there else standard


def _check_other_ids(headers: Headers, signed: bytes) -> None:
    """The id tells a repeat, whichever of its names is asked for: one beside it that nobody signed must say the same."""
    for family in STANDARD_FAMILIES:
        other = header_value(headers, f"{family}id".encode())
        if other is not None and other.strip() != signed:
            raise SkepError(
                Code.SIGNATURE_MALFORMED, f"the request has two ids, and {family}id is not the one it signs"
            )


def _compare(given: Sequence[bytes], expected: Sequence[bytes]) -> None:
    _check(_matches(given, expected))


def _matches(given: Sequence[bytes], expected: Sequence[bytes]) -> bool:
    matches = False
    for signature in given:
        for digest in expected:
            matches |= hmac.compare_digest(signature, digest)
    return matches


def _check(is_right: bool) -> None:
    if not is_right:
        raise SkepError(
            Code.SIGNATURE_INVALID,
            "the signature does not match: the sender has another secret, or the body was changed",
        )


def _needed(headers: Headers, name: bytes, shown: str) -> bytes:
    value = header_value(headers, name)
    if not value or not (value := value.strip()):
        raise SkepError(Code.SIGNATURE_INVALID, f"the request is not signed: it has no {shown}")
    return value


def _given(
    parts: Sequence[bytes], start: bytes, decode: Callable[[bytes], bytes], size: int, header: str, form: str
) -> list[bytes]:
    """The signatures among the parts of a header, at least one."""
    found = _signatures(parts, start, decode, size, header)
    if not found:
        raise _malformed(header, form)
    return found


def _signatures(
    parts: Sequence[bytes],
    start: bytes,
    decode: Callable[[bytes], bytes],
    size: int,
    header: str,
    most: int = SIGNATURES_MAX,
) -> list[bytes]:
    """The signatures among the parts of a header: those with the start of our version.

    One that cannot be any is passed over, as one of another version is.
    """
    found, seen = [], 0
    for part in parts:
        text = part.strip()
        if not text.startswith(start):
            continue
        seen += 1
        if seen > most:
            raise SkepError(Code.SIGNATURE_MALFORMED, f"{header} has more than {most} signatures of one version")
        try:
            signature = decode(text[len(start) :])
        except (binascii.Error, ValueError):
            continue
        if len(signature) == size:
            found.append(signature)
    return found


def _from_hex(text: bytes) -> bytes:
    return binascii.unhexlify(text)


def _from_base64(text: bytes) -> bytes:
    return base64.b64decode(text + b"=" * (-len(text) % 4), validate=True)


def _timestamp(text: bytes, header: str) -> int:
    # What was signed is this very text, so no other way to write the number is taken.
    if not text.isdigit() or len(text) > TIMESTAMP_DIGITS or (text[:1] == b"0" and len(text) > 1):
        raise _malformed(header, "a time in whole seconds since 1970")
    return int(text)


def _check_age(time: int, now: Instant, tolerance_seconds: float) -> None:
    if abs(now - time * MICROS_PER_SECOND) > seconds(tolerance_seconds):
        raise SkepError(
            Code.SIGNATURE_INVALID, f"the signature's time is more than {tolerance_seconds:g} seconds away from now"
        )


def _text(value: bytes, what: str) -> str:
    try:
        return value.decode()
    except UnicodeDecodeError:
        raise SkepError(Code.SIGNATURE_MALFORMED, f"the {what} is not UTF-8") from None


def _malformed(header: str, form: str) -> SkepError:
    return SkepError(Code.SIGNATURE_MALFORMED, f"{header} does not have the form of its scheme, which is {form}")


def _secret(use: SecretUse, environment: Mapping[str, str]) -> str:
    try:
        return read_secret(use, environment)
    except ValueError as error:
        raise SkepError(Code.INVALID_SPEC, str(error)) from None
