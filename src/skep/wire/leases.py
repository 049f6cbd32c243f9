"""Lease ids: opaque to clients, self-contained for the server.

An id has everything about a lease (tenant, queue, group, partition and the fencing token), so that an ack or an extension
needs nothing else. It is no secret and proves nothing: the token in it is what the store compares.
"""

from __future__ import annotations

import base64
import binascii

import msgspec
from msgspec import Struct

from skep.errors import Code, SkepError
from skep.model import QueueKey, Token

MAX_CHARACTERS = 8_192


class LeaseName(Struct, frozen=True, array_like=True):
    """The parts of a lease id."""

    token: Token
    tenant: str
    queue: str
    group: str
    partition: str

    @property
    def key(self) -> QueueKey:
        """The queue of the lease."""
        return QueueKey(self.queue, self.tenant)


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(LeaseName)


def lease_id(name: LeaseName) -> str:
    """The text of a lease id, fit for a URL."""
    return base64.urlsafe_b64encode(_encoder.encode(name)).rstrip(b"=").decode()


PATTERN = f"^{lease_id(LeaseName(Token(bytes(16)), '', '', '', ''))[:4]}[A-Za-z0-9_-]*$"
"""The form of every lease id. All begin alike, in Base64: five parts follow, and the first is a token."""


def parse_lease_id(text: str) -> LeaseName:
    """The parts of a lease id; INVALID_REQUEST when the text is none."""
    try:
        if len(text) > MAX_CHARACTERS:
            raise ValueError("too long")
        return _decoder.decode(base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True))
    except (ValueError, binascii.Error, msgspec.DecodeError):
        raise SkepError(Code.INVALID_REQUEST, "that is no lease id; use the leaseId of a popped message") from None
