"""The calls about keys of the server, keys of encrypted queues, and the audit log. Nothing here sends anything."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from skep.client.exchange import ApiCall, path_part
from skep.client.method import Pages, call, delete, get, listed, pages, part, post
from skep.wire.access import AuditResponse, AuditView, GrantItem, KeyMade, KeyRequest, KeysResponse, KeyView
from skep.wire.encryption import DataKeysResponse, DataKeyView, Rewrapped, RotateRequest, Shredded, ShredRequest

KEYS = "/api/v1/keys"
ENCRYPTION = "/api/v1/encryption"


class AccessCalls:
    """The client's calls about keys and the audit log."""

    @call
    def create_key(
        self,
        name: str,
        grants: Sequence[GrantItem],
        *,
        expires_at: datetime | None = None,
        requests_per_second: float | None = None,
    ) -> ApiCall[KeyMade]:
        """Make a key; its text is told once, and only here. It grants nothing that this client's own key does not."""
        return post(KEYS, KeyMade, KeyRequest(name, list(grants), expires_at, requests_per_second))

    @pages
    def keys(self) -> Pages[KeyView]:
        """All keys by id, page by page; revoked ones for 30 days."""
        return listed(KEYS, KeysResponse, lambda page: page.keys)

    @call
    def revoke_key(self, id_: str, *, force: bool = False) -> ApiCall[KeyView]:
        """Let a key count no longer; KEY_NOT_FOUND when there is none.

        LAST_ADMIN_KEY when it is this client's own and the last one that administers its tenants, unless you say ``force``.
        """
        return delete(f"{KEYS}/{path_part(id_)}", KeyView, {"force": force or None})

    @pages
    def audit(self, *, everywhere: bool = False) -> Pages[AuditView]:
        """What admins did to this tenant, or to all and to the server itself, newest first."""
        return listed("/api/v1/audit", AuditResponse, lambda page: page.entries, {"everywhere": everywhere or None})


class EncryptionCalls:
    """What a client can see and change of the keys of encrypted queues."""

    @call
    def data_keys(self) -> ApiCall[list[DataKeyView]]:
        """The keys of encrypted queues, oldest first: which they are, never what they are."""
        return part(get(f"{ENCRYPTION}/keys", DataKeysResponse), lambda answer: answer.keys)

    @call
    def rotate_data_key(self, queue: str) -> ApiCall[DataKeyView]:
        """Give a queue a new key for what comes; the keys it had go on opening what they sealed."""
        return post(f"{ENCRYPTION}/rotate", DataKeyView, RotateRequest(queue))

    @call
    def rewrap_data_keys(self) -> ApiCall[Rewrapped]:
        """Wrap all keys by the server's current master key."""
        return post(f"{ENCRYPTION}/rewrap", Rewrapped)

    @call
    def shred_data_keys(self, queue: str | None = None, *, dry_run: bool = False) -> ApiCall[Shredded]:
        """Destroy the keys of a queue, or of all: what they sealed can never be read again."""
        return post(f"{ENCRYPTION}/shred", Shredded, ShredRequest(queue, queue is None, dry_run))
