"""Sealed (encrypted) payloads: AES-256-GCM, with the identity of the message inside.

An envelope is a version, the id of the data key, a nonce, and the ciphertext. The key's queue is associated data, so the envelope of
another queue does not open. The message's id, its trace, its partition and its content type are inside, before the payload. So an
envelope that was moved to another queue, or to a message of another trace, is detected. Within a trace it is not, since a replayed
message has a new id. The nonce is random: under one key that is safe for four billion messages, and a key is replaced long before
(`MESSAGES_PER_KEY`).
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from struct import Struct as Layout

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from msgspec import Struct

from skep.errors import Code, SkepError
from skep.ids import Id
from skep.model import SEALED_KEY, SEALED_TYPE, NewMessage, QueueKey

KEY_BYTES = 32
MESSAGES_PER_KEY = 1 << 30

_VERSION = b"\x01"
_NONCE_BYTES = 12
_HEAD_BYTES = 1 + 16 + _NONCE_BYTES
_INSIDE = Layout(">16s16sHH")
_NO_CONTENT_TYPE = 0xFFFF


class Sealed(Struct, frozen=True, gc=False):
    """The contents of an envelope: a payload, its content type, and the identity of its message."""

    payload: bytes
    content_type: str | None
    id: Id
    trace_id: Id
    partition: str


class DataKey:
    """The key of a queue's payloads."""

    __slots__ = ("_associated", "_cipher", "_head", "id", "queue")

    def __init__(self, id_: Id, queue: QueueKey, secret: bytes) -> None:
        self.id = id_
        self.queue = queue
        self._head = _VERSION + id_
        self._associated = associated(id_, queue)
        self._cipher = AESGCM(secret)

    def seal(self, messages: Sequence[NewMessage], ids: Sequence[Id]) -> list[NewMessage]:
        """The messages, each with an envelope as its payload."""
        nonces = os.urandom(_NONCE_BYTES * len(messages))
        head, associated, encrypt, pack = self._head, self._associated, self._cipher.encrypt, _INSIDE.pack
        sealed = []
        for start, id_, m in zip(range(0, len(nonces), _NONCE_BYTES), ids, messages, strict=True):
            nonce = nonces[start : start + _NONCE_BYTES]
            partition, trace_id = m.partition.encode(), m.trace_id or id_
            if m.content_type is None:
                inside = pack(id_, trace_id, _NO_CONTENT_TYPE, len(partition)) + partition + m.payload
            else:
                kind = m.content_type.encode()
                inside = pack(id_, trace_id, len(kind), len(partition)) + kind + partition + m.payload
            envelope = head + nonce + encrypt(nonce, inside, associated)
            sealed.append(
                NewMessage(
                    m.queue, envelope, m.partition, m.transaction_id, m.trace_id, m.headers, SEALED_TYPE, m.deliver_at,
                    m.priority,
                )
            )  # fmt: skip
        return sealed

    def open(self, envelope: bytes) -> Sealed:
        """The contents of an envelope; CANNOT_DECRYPT when this key did not seal it, or it was changed."""
        try:
            inside = self._cipher.decrypt(envelope[17:_HEAD_BYTES], envelope[_HEAD_BYTES:], self._associated)
        except (InvalidTag, ValueError):
            raise damaged(self.queue) from None
        id_, trace_id, kind_bytes, partition_bytes = _INSIDE.unpack_from(inside)
        middle = _INSIDE.size + (0 if kind_bytes == _NO_CONTENT_TYPE else kind_bytes)
        end = middle + partition_bytes
        kind = None if kind_bytes == _NO_CONTENT_TYPE else inside[_INSIDE.size : middle].decode()
        return Sealed(inside[end:], kind, Id(id_), Id(trace_id), inside[middle:end].decode())


def key_of(envelope: bytes) -> Id:
    """The id of the key that sealed an envelope."""
    if len(envelope) < _HEAD_BYTES or envelope[:1] != _VERSION:
        raise SkepError(Code.CANNOT_DECRYPT, "a payload that should be sealed is no envelope of a known version")
    return Id(envelope[SEALED_KEY])


def associated(id_: Id, queue: QueueKey) -> bytes:
    """The bytes that bind a key, and all it seals, to its queue. They have lengths, so that no two queues have the same bytes."""
    tenant, name = queue.tenant.encode(), queue.name.encode()
    return b"%b%b%d:%b%d:%b" % (_VERSION, id_, len(tenant), tenant, len(name), name)


def damaged(queue: QueueKey) -> SkepError:
    """The error for a payload that was changed, or moved from another message."""
    return SkepError(
        Code.CANNOT_DECRYPT, f"a payload of {queue.name!r} is damaged, or not the one that was sealed here"
    )
