"""Reports of a store: the results of its chores, and the load of its connections."""

from __future__ import annotations

from msgspec import Struct

from skep.clock import Instant


class Chore(Struct, frozen=True):
    """What a bounded pass did: how many, whether there is more right now, and when there will be more."""

    done: int = 0
    more: bool = False
    next_at: Instant | None = None


class Connections(Struct, frozen=True):
    """A store's connections to its database, at work and idle, and who waits for one. All are 0 when it has no pool of them."""

    active: int = 0
    idle: int = 0
    waiting: int = 0
    utilisation: float = 0.0
    """Those at work and those waited for, over the most there may be; averaged over a moment."""
    wait_seconds: float = 0.0
    """How long who wants one now would wait for it, going by that moment."""
