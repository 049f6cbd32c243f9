"""Data keys as a store keeps them: wrapped (encrypted) by a master key that the store does not know."""

from __future__ import annotations

from msgspec import Struct

from skep.clock import Instant
from skep.ids import Id
from skep.model.queue import QueueKey


class WrappedKey(Struct, frozen=True, kw_only=True):
    """The key of a queue's payloads, and the name of the master key that it is wrapped by.

    A queue may have several keys: the newest one encrypts new messages, and each older one decrypts the messages it encrypted.
    """

    id: Id
    queue: QueueKey
    master: str
    wrapped: bytes
    created_at: Instant
