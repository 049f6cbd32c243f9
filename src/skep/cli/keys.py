"""`skep key`: make, list and revoke keys.

With a token, the commands ask the named server. Without a token they work on the store of the server's settings: so the first key is
made. When a server holds the SQLite file, they ask that server, once it has proved that it holds the file (`skep.cli.holder`).
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import App, Parameter

from skep.cli.at_store import StoreChoice, me, note, say_where
from skep.cli.connection import Flag, Limit, ServerOptions
from skep.cli.holder import KeyServer, on_keys, say_when_it_counts
from skep.cli.output import Columns, print_fields, print_lines, print_one, print_rows
from skep.cli.when import deadline
from skep.errors import Code, SkepError

if TYPE_CHECKING:
    from datetime import datetime

    from skep.access.keys import Minted
    from skep.engine import Engine
    from skep.wire.access import AuditView, GrantItem, KeyMade, KeyView


NO_EMPTY = Parameter(negative="")
"""No `--empty-…` flags for lists: `--empty-queues` would mean all queues."""
key_app = App(name="key", help="Make, list and revoke API keys, and read the audit log.", help_format="plaintext")


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class GrantFlags:
    """The grants of a key."""

    role: Literal["read-only", "read-write", "write-only", "admin"] | None = None
    """The role of the key: read-only (read), read-write (push, pop, read), write-only (push), admin (all)."""
    verbs: Annotated[list[Literal["push", "pop", "read", "admin"]] | None, NO_EMPTY] = None
    """Single verbs instead of a role."""
    tenants: Annotated[list[str] | None, NO_EMPTY] = None
    """The tenants of the key; * stands for any characters. By default all tenants for an admin, else "default"."""
    queues: Annotated[list[str] | None, NO_EMPTY] = None
    """The queues of the key, all by default; * stands for any characters."""

    def item(self) -> GrantItem:
        """The grant that these options describe."""
        from skep.model.key import Role, Verb
        from skep.wire.access import GrantItem

        if (self.role is None) == (self.verbs is None):
            raise SkepError(Code.INVALID_REQUEST, "say --role or --verbs")
        everywhere = ["*"] if self.role == "admin" else ["default"]
        return GrantItem(
            None if self.role is None else Role(self.role), None if self.verbs is None else tuple(map(Verb, self.verbs)),
            tuple(self.tenants or everywhere), tuple(self.queues or ["*"]),
        )  # fmt: skip


@key_app.command
def create(
    name: str = "key",
    /,
    *,
    grant: GrantFlags = GrantFlags(),
    expires: str | None = None,
    rate: float | None = None,
    aws: Flag = False,
    quiet: Annotated[Flag, Parameter(name=["--quiet", "-q"])] = False,
    place: StoreChoice = StoreChoice(),
    to: ServerOptions = ServerOptions(),
) -> None:
    """Make a key and show it once. The store keeps only a digest of the key.

    For example:
        skep key create --role admin
        skep key create "orders service" --role read-write --queues "orders.*" --expires 90d
        skep key create "a Celery app" --role admin --aws

    Parameters
    ----------
    name
        A name that says what the key is for.
    expires
        When the key expires: 90d, 12h, or a time such as 2027-01-31T12:00:00Z; never by default.
    rate
        The largest number of requests per second with this key, on each server.
    aws
        Also print the key as an access key id and a secret, for the SDKs of AWS. The server needs a master key
        (encryption.master_keys), which seals the secret that it keeps.
    quiet
        Print nothing but the key.
    """
    item = grant.item()
    until = None if expires is None else deadline(expires)

    async def here(engine: Engine) -> KeyMade:
        from skep.http.routes.access import grants_text, key_made

        minted = await _made(engine, name, item, until, rate, aws=aws)
        id_ = minted.record.id
        await note(
            engine, place, "skep key create", f"key:{id_}", target=f"key {id_}", after=grants_text(minted.record)
        )
        say_where(place)
        return key_made(minted)

    def there(server: KeyServer) -> KeyMade:
        made = server.create_key(name, [item], expires_at=until, requests_per_second=rate, aws=aws)
        say_when_it_counts(server)
        return made

    made = on_keys(to, place, here, there)
    if quiet:
        print_lines([made.token])
    else:
        print_one(to, made, _show)


async def _made(
    engine: Engine, name: str, item: GrantItem, until: datetime | None, rate: float | None, *, aws: bool
) -> Minted:
    """A new key of the store."""
    from skep.access.administering import KeyDesk
    from skep.wire.times import to_instant

    assert item.grant is not None
    return await KeyDesk(engine.access, engine.now).make(
        None, name, [item.grant], created_by=me(), requests_per_second=rate,
        expires_at=None if until is None else to_instant(until), seal=engine.encryption.seal_secret if aws else None,
    )  # fmt: skip


@key_app.command(name="list")
def list_keys(*, place: StoreChoice = StoreChoice(), to: ServerOptions = ServerOptions()) -> None:
    """List keys. Revoked keys stay in the list for 30 days.

    For example:
        skep key list
    """

    async def here(engine: Engine) -> list[KeyView]:
        from skep.http.routes.access import key_view

        return [key_view(record) for record in await engine.access.all_keys()]

    print_rows(to, on_keys(to, place, here, lambda server: list(server.keys())), LISTED, empty="there are no keys")


@key_app.command
def revoke(
    id_: str, /, *, force: Flag = False, place: StoreChoice = StoreChoice(), to: ServerOptions = ServerOptions()
) -> None:
    """Revoke a key: at once on the server that is asked, within a second on other servers of the store.

    For example:
        skep key revoke 0k4q9p2m7x1z5c8v

    Parameters
    ----------
    id_
        The key's id: the part between `skep_` and the secret.
    force
        Revoke the key even if it makes this call and is the last admin key of its tenants.
    """

    async def here(engine: Engine) -> KeyView:
        from skep.access.administering import KeyDesk
        from skep.http.routes.access import grants_text, key_view

        revoked = await KeyDesk(engine.access, engine.now).revoke(None, id_)
        before = grants_text(revoked)
        await note(engine, place, "skep key revoke", f"key:{id_}", target=f"key {id_}", before=before, after="revoked")
        return key_view(revoked)

    print_one(to, on_keys(to, place, here, lambda server: server.revoke_key(id_, force=force)), _show_key)


@key_app.command
def audit(
    *,
    everywhere: Flag = False,
    limit: Limit = 100,
    place: StoreChoice = StoreChoice(),
    to: ServerOptions = ServerOptions(),
) -> None:
    """Show the audit log: what admins did, newest first.

    For example:
        skep key audit --everywhere

    Parameters
    ----------
    everywhere
        Show the entries of all tenants and of the server itself.
    limit
        The largest number of entries to show.
    """

    async def here(engine: Engine) -> list[AuditView]:
        from skep.http.routes.access import audit_view

        tenant = None if everywhere else to.tenant
        return [audit_view(one) for one in await engine.access.list_audit(tenant, limit=limit)]

    def there(server: KeyServer) -> list[AuditView]:
        return list(islice(server.audit(everywhere=everywhere), limit))

    print_rows(to, on_keys(to, place, here, there), NOTED, empty="no admin did anything")


def _show(made: KeyMade) -> None:
    print_lines([made.token, "", "This is the only time that it is shown."])
    if made.aws is not None:
        print_fields({
            "access key id": made.aws.access_key_id, "secret access key": made.aws.secret_access_key,
        })  # fmt: skip
    _show_key(made.key)


def _show_key(key: KeyView) -> None:
    print_fields({
        "key": key.id, "name": key.name, "grants": _grants(key), "made": key.created_at, "made by": key.created_by,
        "expires": key.expires_at or "never", "revoked": key.revoked_at or "no",
        "rate": "any" if key.requests_per_second is None else f"{key.requests_per_second:g}/s",
    })  # fmt: skip


def _grants(key: KeyView) -> str:
    return "; ".join(
        f"{'+'.join(grant.verbs)} on {','.join(grant.queues)} of {','.join(grant.tenants)}" for grant in key.grants
    )


LISTED: Columns[KeyView] = {
    "key": lambda one: one.id,
    "name": lambda one: one.name,
    "grants": _grants,
    "made": lambda one: one.created_at,
    "expires": lambda one: one.expires_at or "never",
    "revoked": lambda one: one.revoked_at or "",
}
NOTED: Columns[AuditView] = {
    "at": lambda one: one.at,
    "who": lambda one: one.actor,
    "verb": lambda one: one.verb,
    "tenant": lambda one: one.tenant or "",
    "target": lambda one: one.target,
    "count": lambda one: "" if one.count is None else one.count,
    "before": lambda one: one.before or "",
    "after": lambda one: one.after or "",
    "outcome": lambda one: one.error or one.outcome or "unknown",
}
