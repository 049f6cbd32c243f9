"""Make, list and revoke keys, as far as the calling admin may.

An admin cannot grant more than their own key does. A key belongs to the admins of all of its tenants.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from skep.access import keys, scopes
from skep.access.keys import Minted
from skep.access.principal import Principal
from skep.clock import Instant
from skep.engine.access import Access
from skep.errors import Code, SkepError
from skep.model.key import EVERY, KEY_OWNER, Grant, KeyRecord, SealedSecret, Verb

PAGE = 1_000


def administers(principal: Principal | None, grants: Sequence[Grant]) -> bool:
    """Whether a principal may make, see and revoke keys with these grants."""
    if principal is None:
        return True
    return all(
        scopes.is_within(Grant((Verb.ADMIN,), (tenant,), (EVERY,)), principal.grants)
        for grant in grants
        for tenant in grant.tenants
    )


class KeyDesk:
    """Makes and revokes keys. ``principal`` is the caller, None on a server without keys."""

    def __init__(self, access: Access, now: Callable[[], Instant]) -> None:
        self._access = access
        self._now = now

    async def make(
        self,
        principal: Principal | None,
        name: str,
        grants: Sequence[Grant],
        *,
        created_by: str,
        expires_at: Instant | None = None,
        requests_per_second: float | None = None,
        seal: Callable[[str, str], SealedSecret] | None = None,
    ) -> Minted:
        """Make a key, if it grants no more than its maker has; with ``seal`` one that signs requests as AWS's do."""
        minted = keys.mint(
            name, grants, created_by=created_by, now=self._now(), expires_at=expires_at,
            requests_per_second=requests_per_second, seal=seal,
        )  # fmt: skip
        if not administers(principal, grants) or (
            principal is not None and not all(scopes.is_within(grant, principal.grants) for grant in grants)
        ):
            raise SkepError(
                Code.FORBIDDEN, "a key grants nothing that its maker does not have, on tenants they administer"
            )
        await self._access.put_key(minted.record)
        return minted

    async def page(self, principal: Principal | None, after: str, limit: int) -> list[KeyRecord]:
        """A page of the keys that the caller may see, by id."""
        found: list[KeyRecord] = []
        while len(found) < limit:
            page = await self._access.list_keys(after=after, limit=PAGE)
            found += [record for record in page if administers(principal, keys.detail_of(record).grants)]
            if len(page) < PAGE:
                break
            after = page[-1].id
        return found[:limit]

    async def revoke(self, principal: Principal | None, id_: str, *, force: bool = False) -> KeyRecord:
        """Revoke a key; KEY_NOT_FOUND when there is none that the caller may see.

        LAST_ADMIN_KEY when a key would revoke itself and leave its tenants without an admin key, unless ``force`` is given.
        """
        record = await self._access.get_key(id_)
        if record is None or not administers(principal, keys.detail_of(record).grants):
            raise _no_key(id_)
        if principal is not None and principal.name == KEY_OWNER + id_ and not force:
            await self._check_not_last(record)
        revoked = await self._access.revoke_key(id_)
        if revoked is None:
            raise _no_key(id_)
        return revoked

    async def _check_not_last(self, record: KeyRecord) -> None:
        """Refuse unless another valid key administers all tenants of this one."""
        tenants = {
            tenant for grant in keys.detail_of(record).grants if Verb.ADMIN in grant.verbs for tenant in grant.tenants
        }
        needed = [Grant((Verb.ADMIN,), (tenant,), (EVERY,)) for tenant in sorted(tenants)]
        now = self._now()
        for other in await self._access.all_keys():
            granted = keys.detail_of(other).grants
            if (
                other.id != record.id
                and keys.counts(other, now)
                and all(scopes.is_within(grant, granted) for grant in needed)
            ):
                return
        raise SkepError(
            Code.LAST_ADMIN_KEY,
            "this is the last key that administers its tenants, and it would revoke itself: make another admin key first, or say "
            "force (skep key revoke --force)",
            key=record.id,
        )


def _no_key(id_: str) -> SkepError:
    return SkepError(Code.KEY_NOT_FOUND, f"there is no key {id_[:100]!r}", key=id_[:100])
