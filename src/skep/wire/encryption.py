"""Keys of queues' payloads on the wire: which there are, never what they are."""

from __future__ import annotations

from datetime import datetime

from msgspec import Struct


class DataKeyView(Struct, rename="camel"):
    """A key, and the name of the master key that it is wrapped by."""

    id: str
    queue: str
    master: str
    created_at: datetime


class DataKeysResponse(Struct):
    """The keys of a tenant, oldest first; of each queue the last one seals what is new."""

    keys: list[DataKeyView]


class RotateRequest(Struct, forbid_unknown_fields=True):
    """The queue that is to get a new key."""

    queue: str


class Rewrapped(Struct):
    """How many keys were wrapped by another master key than the current one, and are not any more."""

    rewrapped: int


class ShredRequest(Struct, rename="camel", forbid_unknown_fields=True):
    """Whose keys to destroy: those of a queue, or with ``allQueues`` those of all."""

    queue: str | None = None
    all_queues: bool = False
    dry_run: bool = False


class Shredded(Struct):
    """How many keys were destroyed, or would be."""

    keys: int
