"""A principal: an authenticated caller, its grants, and whether its key or token is still valid.

It lives as long as its key or token is valid. A long poll or a stream checks its principal, or waits for the principal's end too, so
that nothing outlives a revocation.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from skep.access.scopes import matches_any
from skep.clock import Clock, Instant
from skep.errors import Code, SkepError
from skep.model.key import EVERY, Grant, Signer, Verb
from skep.model.record import DEFAULT_TENANT
from skep.runtime.token_bucket import TokenBucket

DECISIONS = 4_096
"""The most permission answers that are cached per principal. Callers choose the names, so there may be any number."""
_TO = {Verb.PUSH: "push to", Verb.POP: "pop from", Verb.READ: "read", Verb.ADMIN: "administer"}


class Principal:
    """An authenticated caller with its grants."""

    __slots__ = (
        "_clock",
        "_decisions",
        "_ending",
        "bucket",
        "expires_at",
        "grants",
        "is_revoked",
        "name",
        "only_tenant",
        "signer",
    )

    def __init__(
        self,
        name: str,
        grants: Sequence[Grant],
        clock: Clock,
        *,
        expires_at: Instant | None = None,
        bucket: TokenBucket | None = None,
        signer: Signer | None = None,
    ) -> None:
        """``name`` is ``key:<id>`` or ``jwt:<subject>``. The audit log and the headers of messages show it.

        ``signer`` signed the token.
        """
        self.name = name
        self.grants = tuple(grants)
        self.expires_at = expires_at
        self.bucket = bucket
        self.signer = signer
        self.is_revoked = False
        tenants = {tenant for grant in grants for tenant in grant.tenants}
        self.only_tenant = tenants.pop() if len(tenants) == 1 and not any(EVERY in one for one in tenants) else None
        self._clock = clock
        self._decisions: dict[tuple[Verb | None, str, str], bool] = {}
        self._ending: asyncio.Future[None] | None = None

    # permissions

    def may(self, verb: Verb, tenant: str, queue: str) -> bool:
        """Whether the principal may do this with a queue."""
        asked = (verb, tenant, queue)
        known = self._decisions.get(asked)
        if known is None:
            known = self._remember(
                asked, any(matches_any(grant.queues, queue) for grant in self._grants_for(verb, tenant))
            )
        return known

    def may_anywhere(self, verb: Verb, tenant: str) -> bool:
        """Whether the principal may do this with some queue of a tenant."""
        return bool(self._grants_for(verb, tenant))

    def may_all(self, verb: Verb, tenant: str) -> bool:
        """Whether the principal may do this with all queues of a tenant, and so with the tenant's data outside queues."""
        return any(EVERY in grant.queues for grant in self._grants_for(verb, tenant))

    def may_somewhere(self, verb: Verb) -> bool:
        """Whether the principal may do this with all queues of some tenant."""
        return any(verb in grant.verbs and EVERY in grant.queues for grant in self.grants)

    def may_everywhere(self, verb: Verb) -> bool:
        """Whether the principal may do this with all queues of all tenants, and so with the server itself."""
        return any(verb in grant.verbs and EVERY in grant.queues and EVERY in grant.tenants for grant in self.grants)

    def _grants_for(self, verb: Verb, tenant: str) -> list[Grant]:
        return [grant for grant in self.grants if verb in grant.verbs and matches_any(grant.tenants, tenant)]

    def knows(self, tenant: str) -> bool:
        """Whether the principal has any grant for a tenant."""
        asked = (None, tenant, "")
        known = self._decisions.get(asked)
        if known is None:
            known = self._remember(asked, any(matches_any(grant.tenants, tenant) for grant in self.grants))
        return known

    def _remember(self, asked: tuple[Verb | None, str, str], answer: bool) -> bool:
        if len(self._decisions) >= DECISIONS:
            self._decisions.clear()
        self._decisions[asked] = answer
        return answer

    def tenant(self, named: str | None) -> str:
        """The tenant of a request: the one that it names, else the principal's only one, else the default tenant."""
        tenant = named if named is not None else self.only_tenant or DEFAULT_TENANT
        if not self.knows(tenant):
            if named is None:
                raise SkepError(Code.FORBIDDEN, "say which tenant is meant: Skep-Tenant")
            raise SkepError(Code.FORBIDDEN, f"not allowed for tenant {tenant[:255]!r}")
        return tenant

    def check(self, verb: Verb, tenant: str, queue: str) -> None:
        """Refuse what the principal may not do with a queue. The answer does not reveal whether the queue exists."""
        if self.is_revoked:
            raise ended()
        if not self.may(verb, tenant, queue):
            raise SkepError(Code.FORBIDDEN, f"not allowed to {_TO[verb]} queue {queue[:255]!r}")

    # validity

    @property
    def is_over(self) -> bool:
        """Whether the principal has ended: its key or token was revoked, or has expired."""
        return self.is_revoked or (self.expires_at is not None and self.expires_at <= self._clock.now())

    def revoke(self) -> None:
        """End the principal, and wake the calls that wait on its behalf."""
        self.is_revoked = True
        if self._ending is not None and not self._ending.done():
            self._ending.set_result(None)

    async def over(self) -> None:
        """Return when the principal has ended."""
        if self.is_over:
            return
        if self._ending is None:
            self._ending = asyncio.get_running_loop().create_future()
        if self.expires_at is None:
            await asyncio.shield(self._ending)  # others wait for it too
            return
        expiry = asyncio.ensure_future(self._clock.sleep_until(self.expires_at))
        try:
            await asyncio.wait((self._ending, expiry), return_when=asyncio.FIRST_COMPLETED)
        finally:
            expiry.cancel()


def ended() -> SkepError:
    """The error of a request whose key or token ended under way."""
    return SkepError(Code.UNAUTHENTICATED, "the key or token counts no longer")
