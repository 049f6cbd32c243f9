"""The keys of Standard Webhooks: secrets that both sides share (`whsec_`), and pairs of Ed25519 keys: `whsk_` signs, `whpk_` verifies.

The prefix of a key says what it is, and from reading on it is used for that alone: a public key, which everybody knows, is
never taken for a secret. A key without a prefix is a secret.
"""

from __future__ import annotations

import base64
import binascii
import hmac
import os
from typing import TYPE_CHECKING, TypeAlias

from msgspec import Struct

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

SECRET_PREFIX, PRIVATE_PREFIX, PUBLIC_PREFIX = "whsec_", "whsk_", "whpk_"
SECRET_BYTES_MIN = 16
"""128 bits: what senders give us. On GitHub users choose the secret; all other senders make longer ones."""
OWN_BYTES_MIN, OWN_BYTES_MAX = 24, 64
"""What the standard asks of those who sign."""
OWN_BYTES = 32
KEY_BYTES = 32
"""The bytes of a public key, and of a private key without its public one."""


class Secret(Struct, frozen=True):
    """A secret that both sides have."""

    key: bytes

    def digest(self, content: bytes) -> bytes:
        """The signature as bytes."""
        return hmac.digest(self.key, content, "sha256")

    def sign(self, content: bytes) -> str:
        """A signature with its version."""
        return f"v1,{_text(self.digest(content))}"


class PublicKey(Struct, frozen=True, eq=False):
    """The key of a sender that everybody may know."""

    key: Ed25519PublicKey

    def verifies(self, signature: bytes, content: bytes) -> bool:
        """Whether the sender has made a signature of this content."""
        from cryptography.exceptions import InvalidSignature

        try:
            self.key.verify(signature, content)
        except InvalidSignature:
            return False
        return True


class PrivateKey(Struct, frozen=True, eq=False):
    """The key with which a sender signs."""

    key: Ed25519PrivateKey

    def sign(self, content: bytes) -> str:
        """A signature with its version."""
        return f"v1a,{_text(self.key.sign(content))}"


VerifyingKey: TypeAlias = Secret | PublicKey
SigningKey: TypeAlias = Secret | PrivateKey


def signed_content(message_id: str, timestamp: int, body: bytes) -> bytes:
    """What is signed."""
    return f"{message_id}.{timestamp}.".encode() + body


def verifying_key(variable: str, text: str) -> VerifyingKey:
    """The key to verify a sender with. ValueError names the variable, and has no part of the key."""
    if text.startswith(PRIVATE_PREFIX):
        raise ValueError(
            f"{variable} holds a private key ({PRIVATE_PREFIX}), which only the sender should have: take its public key ({PUBLIC_PREFIX})"
        )
    if text.startswith(PUBLIC_PREFIX):
        return _public_key(_decoded(variable, text, PUBLIC_PREFIX, "a public key"), variable)
    key = _decoded(variable, text, SECRET_PREFIX, "a secret")
    check_length(variable, key)
    return Secret(key)


def signing_key(variable: str, text: str) -> SigningKey:
    """The key to sign our deliveries with. ValueError names the variable, and has no part of the key."""
    if text.startswith(PUBLIC_PREFIX):
        raise ValueError(
            f"{variable} holds a public key ({PUBLIC_PREFIX}), with which nobody can sign: take its private key ({PRIVATE_PREFIX})"
        )
    if text.startswith(PRIVATE_PREFIX):
        return _private_key(_decoded(variable, text, PRIVATE_PREFIX, "a private key"), variable)
    key = _decoded(variable, text, SECRET_PREFIX, "a secret")
    if not OWN_BYTES_MIN <= len(key) <= OWN_BYTES_MAX:
        raise ValueError(
            f"the secret in {variable} has {len(key)} bytes once it is decoded, and a secret to sign with has"
            f" {OWN_BYTES_MIN} to {OWN_BYTES_MAX}: `skep webhook secret` makes one"
        )
    return Secret(key)


def new_secret() -> str:
    """A new secret."""
    return SECRET_PREFIX + _text(os.urandom(OWN_BYTES))


def new_pair() -> tuple[str, str]:
    """A new private key and its public key."""
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    key = Ed25519PrivateKey.generate()
    public = key.public_key().public_bytes_raw()
    return PRIVATE_PREFIX + _text(key.private_bytes_raw() + public), PUBLIC_PREFIX + _text(public)


def check_length(variable: str, key: bytes) -> None:
    """Refuse a secret that could be guessed from one signature."""
    if len(key) < SECRET_BYTES_MIN:
        raise ValueError(
            f"the secret in {variable} is too short: it has {len(key)} bytes, and {SECRET_BYTES_MIN} are the least"
        )


def _public_key(key: bytes, variable: str) -> PublicKey:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    if len(key) != KEY_BYTES:
        raise ValueError(f"the public key in {variable} has {len(key)} bytes once it is decoded, and not {KEY_BYTES}")
    return PublicKey(Ed25519PublicKey.from_public_bytes(key))


def _private_key(key: bytes, variable: str) -> PrivateKey:
    """A private key, alone or with its public key after it, as key pairs are usually kept."""
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    if len(key) not in (KEY_BYTES, 2 * KEY_BYTES):
        raise ValueError(
            f"the private key in {variable} has {len(key)} bytes once it is decoded, and neither {KEY_BYTES} nor, with its public key, {2 * KEY_BYTES}"
        )
    private = Ed25519PrivateKey.from_private_bytes(key[:KEY_BYTES])
    if key[KEY_BYTES:] not in (b"", private.public_key().public_bytes_raw()):
        raise ValueError(f"the private key in {variable} has another public key beside it than its own")
    return PrivateKey(private)


def _decoded(variable: str, text: str, prefix: str, what: str) -> bytes:
    encoded = text.removeprefix(prefix)
    try:
        key = base64.b64decode(encoded + "=" * (-len(encoded) % 4), validate=True)
    except (binascii.Error, ValueError):
        key = b""
    if not key:
        raise ValueError(f"{variable} is not {what} of Standard Webhooks, which is {prefix} and base64")
    return key


def _text(value: bytes) -> str:
    return base64.b64encode(value).decode()
