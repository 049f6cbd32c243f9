"""Keys of encrypted queues on the wire: their ids, never the keys themselves."""

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
    """The keys of a tenant, oldest first. The last key of a queue encrypts its new messages."""

    keys: list[DataKeyView]


class RotateRequest(Struct, forbid_unknown_fields=True):
    """The queue that gets a new key."""

    queue: str


class Rewrapped(Struct):
    """The number of keys that were wrapped by an older master key, and now are by the current one."""

    rewrapped: int


class ShredRequest(Struct, rename="camel", forbid_unknown_fields=True):
    """The keys to destroy: those of a queue, or with ``allQueues`` those of all queues."""

    queue: str | None = None
    all_queues: bool = False
    dry_run: bool = False


class Shredded(Struct):
    """How many keys were destroyed, or would be."""

    keys: int
