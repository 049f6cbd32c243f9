"""Who may do what, as data: keys, what they grant, sessions of people, and the audit log of what admins did.

Plain structs, as in `skep.model`. Of a key's secret only a digest is here; the rest of a key that no store looks at stays the
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
"""The tenant of what belongs to none: apps and keys are the server's."""


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
    """These verbs, on the queues of these tenants that match; in a pattern ``*`` stands for any characters, also none."""

    verbs: tuple[Verb, ...]
    tenants: tuple[str, ...] = (DEFAULT_TENANT,)
    queues: tuple[str, ...] = (EVERY,)


class KeyDetail(Struct, frozen=True):
    """A key: its name, its grants, its rate limit, and its maker."""

    name: str
    grants: tuple[Grant, ...]
    created_by: str
    requests_per_second: float | None = None


class KeyRecord(Struct, frozen=True):
    """A key as it is stored. It counts until it is revoked or expires, and is forgotten some time after that."""

    id: str
    digest: bytes
    created_at: Instant
    document: bytes
    expires_at: Instant | None = None
    revoked_at: Instant | None = None
    forget_at: Instant | None = None


KEY_OWNER = "key:"
"""What the owner of a session begins with when it is a key: its id follows."""


class Signer(Struct, frozen=True):
    """Who signed a token: its issuer, and the thumbprint of the key that verified it."""

    issuer: str
    key: str


class SessionDetail(Struct, frozen=True):
    """The grants of a token's session, while the signer is trusted. A key's session has the grants of its key."""

    grants: tuple[Grant, ...] = ()
    signer: Signer | None = None


class SessionRecord(Struct, frozen=True):
    """A session as it is stored: somebody showed a key or token once. ``id`` is the digest of what their browser shows since."""

    id: str
    owner: str
    created_at: Instant
    used_at: Instant
    expires_at: Instant
    document: bytes


class Outcome(StrEnum):
    """How it went, whatever an admin was about to do."""

    DONE = "done"
    DRY_RUN = "dry run"
    """It was only counted what would happen."""
    DECLINED = "declined"
    """It was asked for, and not confirmed."""
    FAILED = "failed"


class AuditDetail(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What was done to what: ``count`` is of messages, letters, leases, keys or settings; ``error`` the code when it failed."""

    verb: str
    target: str = ""
    count: int | None = None
    before: str | None = None
    after: str | None = None
    error: str | None = None


class AuditEntry(Struct, frozen=True, kw_only=True):
    """What an admin did, or tried: ``outcome`` is an `Outcome`, or None when the server did not live to see it.

    Entries of before there were details have none, and a code as their outcome when they failed.
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
