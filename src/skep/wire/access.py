"""Keys and the audit log over the wire."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

from msgspec import Meta, Struct

from skep.model.key import EVERY, VERBS_OF, AuditOutcome, Grant, Role, Verb
from skep.model.record import DEFAULT_TENANT


class GrantItem(Struct, frozen=True, forbid_unknown_fields=True):
    """A role or verbs, for the queues of tenants; in names of both ``*`` stands for any characters."""

    role: Role | None = None
    verbs: tuple[Verb, ...] | None = None
    tenants: tuple[str, ...] = (DEFAULT_TENANT,)
    queues: tuple[str, ...] = (EVERY,)

    @property
    def grant(self) -> Grant | None:
        """The grant of this item; None when it has both a role and verbs, or neither."""
        if (self.role is None) == (self.verbs is None):
            return None
        return Grant(VERBS_OF[self.role] if self.role is not None else self.verbs or (), self.tenants, self.queues)


class KeyRequest(Struct, rename="camel", forbid_unknown_fields=True):
    """A key to create; ``aws`` says that it is to sign requests as the keys of AWS do."""

    name: str
    grants: list[GrantItem]
    expires_at: datetime | None = None
    requests_per_second: float | None = None
    aws: bool = False


class KeyView(Struct, rename="camel"):
    """A key, without its secret, which the server does not keep."""

    id: str
    name: str
    grants: list[Grant]
    created_at: datetime
    created_by: str
    expires_at: datetime | None
    revoked_at: datetime | None
    requests_per_second: float | None


class AwsKey(Struct, rename="camel"):
    """A key as the SDKs of AWS take it."""

    access_key_id: str
    secret_access_key: str


class KeyMade(Struct, omit_defaults=True):
    """A new key with its text. Only this answer has the text. ``aws`` is there when it was asked for."""

    token: str
    key: KeyView
    aws: AwsKey | None = None


class KeysResponse(Struct):
    """Keys by id."""

    keys: list[KeyView]
    after: str | None


class HolderRequest(Struct, forbid_unknown_fields=True):
    """A question that only the holder of the store can answer: random text, new for each question."""

    challenge: Annotated[str, Meta(min_length=32, max_length=128)]


class HolderProof(Struct, rename="camel"):
    """The answer to the challenge, and whether this server asks for keys."""

    proof: str
    asks_for_keys: bool


class AuditView(Struct, rename="camel"):
    """An entry of the audit log: an admin did ``verb`` to ``target``; ``count`` messages, dead letters, leases, keys or settings.

    ``before`` and ``after`` are the values then; ``outcome`` is null when the server ended before it was known, and ``error`` is the code
    of a failure. ``action`` is the route or command, ``names`` are the queues that it was about, or ``key:…`` and ``app:…``.
    """

    position: int
    at: datetime
    actor: str
    action: str
    tenant: str | None
    names: list[str]
    outcome: AuditOutcome | None
    verb: str
    target: str
    count: int | None
    before: str | None
    after: str | None
    error: str | None


class AuditResponse(Struct):
    """Entries of the audit log, newest first."""

    entries: list[AuditView]
    after: int | None
