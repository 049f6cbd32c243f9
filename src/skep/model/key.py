"""Access control as data: keys and their grants, sessions of people, and the audit log of admin actions.

Plain structs, as in `skep.model`. Only the digest of a key's secret is here. The fields of a key that no store looks at stay the
JSON bytes of its `KeyDetail`.
"""

from __future__ import annotations

from enum import StrEnum

from msgspec import Struct

from skep.clock import Instant
from skep.model.record import DEFAULT_TENANT

EVERY = "*"
"""The pattern of every tenant, or every queue."""
SERVER = ""
"""The tenant of apps and keys: they belong to the server, and to no tenant."""


class Verb(StrEnum):
    """The verbs that can be granted. No verb includes another."""

    PUSH = "push"
    POP = "pop"
    READ = "read"
    ADMIN = "admin"


class Role(StrEnum):
    """Verbs that go together, by the name people know."""

    READ_ONLY = "read-only"
    READ_WRITE = "read-write"
    WRITE_ONLY = "write-only"
    ADMIN = "admin"


VERBS_OF: dict[Role, tuple[Verb, ...]] = {
    Role.READ_ONLY: (Verb.READ,),
    Role.READ_WRITE: (Verb.PUSH, Verb.POP, Verb.READ),
    Role.WRITE_ONLY: (Verb.PUSH,),
    Role.ADMIN: (Verb.PUSH, Verb.POP, Verb.READ, Verb.ADMIN),
}


class Grant(Struct, frozen=True, forbid_unknown_fields=True):
    """Verbs that are allowed on the matching queues of the matching tenants; in a pattern ``*`` is any characters, or none."""

    verbs: tuple[Verb, ...]
    tenants: tuple[str, ...] = (DEFAULT_TENANT,)
    queues: tuple[str, ...] = (EVERY,)


class SealedSecret(Struct, frozen=True):
    """A secret that a master key sealed: the key's name, and the bytes in Base64."""

    master: str
    sealed: str


class KeyDetail(Struct, frozen=True, omit_defaults=True):
    """A key: its name, its grants, its rate limit, and its maker.

    ``secret`` is there for a key that signs requests as AWS's do: to check a signature takes the secret, and not its digest alone.
    """

    name: str
    grants: tuple[Grant, ...]
    created_by: str
    requests_per_second: float | None = None
    secret: SealedSecret | None = None


class KeyRecord(Struct, frozen=True):
    """A key as it is stored. It is valid until it is revoked or expires, and is deleted some time later."""

    id: str
    digest: bytes
    created_at: Instant
    document: bytes
    expires_at: Instant | None = None
    revoked_at: Instant | None = None
    forget_at: Instant | None = None


KEY_OWNER = "key:"
"""The prefix of a session's ``owner`` when the owner is a key; the key's id follows."""


class Signer(Struct, frozen=True):
    """The signer of a token: its issuer, and the thumbprint of the key that verified the token."""

    issuer: str
    key: str


class SessionDetail(Struct, frozen=True):
    """The grants of a token's session, while the signer is trusted. A key's session has the grants of its key."""

    grants: tuple[Grant, ...] = ()
    signer: Signer | None = None


class SessionRecord(Struct, frozen=True):
    """A session as it is stored: somebody logged in with a key or token. ``id`` is the digest of the browser's cookie."""

    id: str
    owner: str
    created_at: Instant
    used_at: Instant
    expires_at: Instant
    document: bytes


class AuditOutcome(StrEnum):
    """The outcome of an admin action."""

    DONE = "done"
    DRY_RUN = "dry run"
    """The action only counted what it would change."""
    DECLINED = "declined"
    """The admin was asked to confirm the action, and did not."""
    FAILED = "failed"


class AuditDetail(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The action and its target. ``count`` is of messages, letters, leases, keys or settings; ``error`` is the code of a failure."""

    verb: str
    target: str = ""
    count: int | None = None
    before: str | None = None
    after: str | None = None
    error: str | None = None


class AuditEntry(Struct, frozen=True, kw_only=True):
    """An admin action: ``outcome`` is an `AuditOutcome`, or None when the server died before it could note one.

    Entries of old releases have no ``detail``; their outcome is the error code when the action failed.
    """

    position: int = 0
    at: Instant
    actor: str
    action: str
    tenant: str = SERVER
    queues: tuple[str, ...] = ()
    outcome: str | None = None
    expires_at: Instant
    detail: AuditDetail | None = None
