"""The calls about keys of the server, keys of encrypted queues, and the audit log. Nothing here sends anything."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from skep.client.exchange import ApiCall, path_part
from skep.client.method import PagedList, call, delete, get, listed, pages, part, post
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
        aws: bool = False,
    ) -> ApiCall[KeyMade]:
        """Create a key. Only this answer has its text. A key cannot grant more than this client's own key.

        With ``aws`` it is also a key of the SDKs of AWS, for [Amazon SQS's interface](sqs.md).
        """
        return post(KEYS, KeyMade, KeyRequest(name, list(grants), expires_at, requests_per_second, aws))

    @pages
    def keys(self) -> PagedList[KeyView]:
        """All keys by id, page by page. Revoked keys stay in the list for 30 days."""
        return listed(KEYS, KeysResponse, lambda page: page.keys)

    @call
    def revoke_key(self, id_: str, *, force: bool = False) -> ApiCall[KeyView]:
        """Revoke a key; KEY_NOT_FOUND when there is none.

        LAST_ADMIN_KEY when the key is this client's own and the last admin key of its tenants, unless ``force`` is given.
        """
        return delete(f"{KEYS}/{path_part(id_)}", KeyView, {"force": force or None})

    @pages
    def audit(self, *, everywhere: bool = False) -> PagedList[AuditView]:
        """The audit log, newest first: of this tenant, or of all tenants and the server itself."""
        return listed("/api/v1/audit", AuditResponse, lambda page: page.entries, {"everywhere": everywhere or None})


class EncryptionCalls:
    """The client's calls about the keys of encrypted queues."""

    @call
    def data_keys(self) -> ApiCall[list[DataKeyView]]:
        """The keys of encrypted queues, oldest first: their ids and states, never the keys themselves."""
        return part(get(f"{ENCRYPTION}/keys", DataKeysResponse), lambda answer: answer.keys)

    @call
    def rotate_data_key(self, queue: str) -> ApiCall[DataKeyView]:
        """Give a queue a new key for new messages. The old keys go on decrypting older messages."""
        return post(f"{ENCRYPTION}/rotate", DataKeyView, RotateRequest(queue))

    @call
    def rewrap_data_keys(self) -> ApiCall[Rewrapped]:
        """Wrap all keys by the server's current master key."""
        return post(f"{ENCRYPTION}/rewrap", Rewrapped)

    @call
    def shred_data_keys(self, queue: str | None = None, *, dry_run: bool = False) -> ApiCall[Shredded]:
        """Destroy the keys of a queue, or of all queues. Nobody can ever read their encrypted payloads again."""
        return post(f"{ENCRYPTION}/shred", Shredded, ShredRequest(queue, queue is None, dry_run))
