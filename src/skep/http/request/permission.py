"""The permission that a route needs of its caller. Every route declares one; the guard and the tests use it."""

from __future__ import annotations

from enum import StrEnum

from msgspec import Struct

from skep.model.key import Verb


class Reach(StrEnum):
    """The queues that a verb must be granted for."""

    OPEN = "open"
    """Anyone may call, with or without a key."""
    KNOWN = "known"
    """Any caller with a valid key."""
    SIGNED = "signed"
    """Any caller whose request a valid key has signed. The handler checks that, as it takes the body; and the queues."""
    QUEUES = "queues"
    """The queues that the request names: the handler gets them by `Call.queue`, or checks them."""
    LIST = "list"
    """The queues that the caller may see: the handler leaves out the others by `Call.visible`."""
    TENANT = "tenant"
    """All queues of the tenant, since the call is about no single queue."""
    ADMINS = "admins"
    """All queues of at least one tenant: the handler decides what such a caller may do."""
    SERVER = "server"
    """All queues of all tenants, since the call is about no single tenant."""


_ON = {
    Reach.QUEUES: "the queues that it names",
    Reach.LIST: "what it is to show",
    Reach.TENANT: "all queues of the tenant",
    Reach.ADMINS: "all queues of a tenant",
    Reach.SERVER: "all queues of all tenants",
}


class Permission(Struct, frozen=True):
    """The needed verbs, and the queues that they are needed for. `Call.queue` checks the first verb."""

    reach: Reach
    verbs: tuple[Verb, ...] = ()
    both: bool = False
    """Whether the caller needs all of several verbs, not just one."""

    def __str__(self) -> str:
        if not self.verbs:
            return self.reach.value
        either = " or " if self.reach in (Reach.QUEUES, Reach.LIST) and not self.both else " and "
        return f"{either.join(self.verbs)} on {_ON[self.reach]}"


OPEN = Permission(Reach.OPEN)
KNOWN = Permission(Reach.KNOWN)
SIGNED = Permission(Reach.SIGNED)
PUSH = Permission(Reach.QUEUES, (Verb.PUSH,))
POP = Permission(Reach.QUEUES, (Verb.POP,))
POP_OR_PUSH = Permission(Reach.QUEUES, (Verb.POP, Verb.PUSH))
READ = Permission(Reach.QUEUES, (Verb.READ,))
READ_TO_CHANGE = Permission(Reach.QUEUES, (Verb.READ, Verb.ADMIN))
"""A page that is there only to change a queue shows something of it, too: it asks for both verbs."""
ADMIN = Permission(Reach.QUEUES, (Verb.ADMIN,))
ADMIN_TO_PUSH = Permission(Reach.QUEUES, (Verb.ADMIN, Verb.PUSH), both=True)
POP_LIST = Permission(Reach.LIST, (Verb.POP,))
READ_LIST = Permission(Reach.LIST, (Verb.READ,))
PUSH_TENANT = Permission(Reach.TENANT, (Verb.PUSH,))
POP_TENANT = Permission(Reach.TENANT, (Verb.POP,))
READ_TENANT = Permission(Reach.TENANT, (Verb.READ,))
ADMIN_TENANT = Permission(Reach.TENANT, (Verb.ADMIN,))
READ_SERVER = Permission(Reach.SERVER, (Verb.READ,))
ADMINS = Permission(Reach.ADMINS, (Verb.ADMIN,))
ADMIN_SERVER = Permission(Reach.SERVER, (Verb.ADMIN,))
