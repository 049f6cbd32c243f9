"""The calls about keys of encrypted queues. Nothing here sends anything."""

from __future__ import annotations

from skep.client.admin_calls import get, post
from skep.client.exchange import ApiCall
from skep.wire.encryption import DataKeysResponse, DataKeyView, Rewrapped, RotateRequest, Shredded, ShredRequest

KEYS = "/api/v1/encryption"


def data_keys() -> ApiCall[DataKeysResponse]:
    """All keys."""
    return get(f"{KEYS}/keys", DataKeysResponse)


def rotate(queue: str) -> ApiCall[DataKeyView]:
    """A new key for a queue."""
    return post(f"{KEYS}/rotate", DataKeyView, RotateRequest(queue))


def rewrap() -> ApiCall[Rewrapped]:
    """All keys under the current master key."""
    return post(f"{KEYS}/rewrap", Rewrapped)


def shred(queue: str | None, dry_run: bool) -> ApiCall[Shredded]:
    """No more keys, of a queue or of all."""
    return post(f"{KEYS}/shred", Shredded, ShredRequest(queue, queue is None, dry_run))
