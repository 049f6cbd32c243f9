"""The calls about keys and the audit log. Nothing here sends anything."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from skep.client.admin_calls import PAGE_ROWS, delete, get, post
from skep.client.exchange import ApiCall, path_part
from skep.wire.access import AuditResponse, GrantItem, KeyMade, KeyRequest, KeysResponse, KeyView

KEYS = "/api/v1/keys"


def create_key(
    name: str, grants: Sequence[GrantItem], expires_at: datetime | None, requests_per_second: float | None
) -> ApiCall[KeyMade]:
    """A new key."""
    return post(KEYS, KeyMade, KeyRequest(name, list(grants), expires_at, requests_per_second))


def keys(after: str | None) -> ApiCall[KeysResponse]:
    """A page of keys."""
    return get(KEYS, KeysResponse, {"after": after, "limit": PAGE_ROWS})


def revoke_key(id_: str, force: bool) -> ApiCall[KeyView]:
    """A key that counts no longer."""
    return delete(f"{KEYS}/{path_part(id_)}", KeyView, {"force": force or None})


def audit(after: int | None, everywhere: bool) -> ApiCall[AuditResponse]:
    """A page of what admins did."""
    return get("/api/v1/audit", AuditResponse, {"after": after, "limit": PAGE_ROWS, "everywhere": everywhere or None})
