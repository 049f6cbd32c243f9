"""How Queen names things: partition ids and lease ids. Both are opaque to its clients.

A partition id has a queue and a partition, a lease id has a queue, a group and a token. They are no secrets and prove nothing: whoever
shows one is checked like anybody who names the queue, and the store compares the token. So no process has to remember them.
"""

from __future__ import annotations

import base64
import binascii

import msgspec
from msgspec import Struct

from skep.engine.validate import SEQ_MAX, TOKEN_BYTES, is_fit, is_name
from skep.errors import Code, SkepError
from skep.http.request.call import Call
from skep.model import QueueKey, Token
from skep.model.key import Verb

ID_CHARACTERS = 8_192


class PartitionName(Struct, frozen=True, array_like=True, gc=False):
    """The parts of a partition id.

    ``seq`` tells messages apart that one pop delivered with the same transaction id; it is in the ids of those only.
    """

    tenant: str
    queue: str
    partition: str
    seq: int | None = None

    @property
    def key(self) -> QueueKey:
        """The queue of the partition."""
        return QueueKey(self.queue, self.tenant)


class LeasedBy(Struct, frozen=True, array_like=True, gc=False):
    """The parts of a lease id: all messages of a queue that one pop leased, in whatever partitions."""

    token: Token
    tenant: str
    queue: str
    group: str

    @property
    def key(self) -> QueueKey:
        """The queue of the lease."""
        return QueueKey(self.queue, self.tenant)


_encode = msgspec.msgpack.Encoder().encode
_decode_partition = msgspec.msgpack.Decoder(PartitionName).decode
_decode_lease = msgspec.msgpack.Decoder(LeasedBy).decode


def write_id(name: PartitionName | LeasedBy) -> str:
    """The text of an id, fit for a URL."""
    return base64.urlsafe_b64encode(_encode(name)).rstrip(b"=").decode()


def read_partition(text: str, call: Call, verb: Verb) -> PartitionName:
    """The parts of a partition id, if the caller may do this with its queue."""
    try:
        name = _decode_partition(_bytes_of(text))
        if not is_fit(name.partition) or not (name.seq is None or 0 < name.seq <= SEQ_MAX):
            raise ValueError
    except (ValueError, binascii.Error, msgspec.DecodeError):
        raise SkepError(
            Code.INVALID_REQUEST, "that is no partition id; use the partitionId of a popped message"
        ) from None
    _check(name, call, verb)
    return name


def read_lease(text: str, call: Call) -> LeasedBy:
    """The parts of a lease id, if the caller may pop from its queue."""
    try:
        name = _decode_lease(_bytes_of(text))
        if len(name.token) != TOKEN_BYTES or not is_name(name.group):
            raise ValueError
    except (ValueError, binascii.Error, msgspec.DecodeError):
        raise SkepError(Code.INVALID_REQUEST, "that is no lease id; use the leaseId of a popped message") from None
    _check(name, call, Verb.POP)
    return name


def _bytes_of(text: str) -> bytes:
    if len(text) > ID_CHARACTERS:
        raise ValueError
    return base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)


def _check(name: PartitionName | LeasedBy, call: Call, verb: Verb) -> None:
    if name.tenant != call.tenant:
        raise SkepError(Code.FORBIDDEN, "the id is of another tenant")
    call.check(name.key, verb)
