"""Reports of a store: the results of its chores, and the load of its connections."""

from __future__ import annotations

from msgspec import Struct

from skep.clock import Instant


class Chore(Struct, frozen=True):
    """The result of a bounded pass: how many rows it did, whether more are due now, and when the next ones are due."""

    done: int = 0
    more: bool = False
    next_at: Instant | None = None


class Connections(Struct, frozen=True):
    """A store's connections to its database: busy, idle, and the calls that wait for one. All are 0 without a pool."""

    active: int = 0
    idle: int = 0
    waiting: int = 0
    utilisation: float = 0.0
    """Busy connections plus waiting calls, divided by the size of the pool; a moving average."""
    wait_seconds: float = 0.0
    """The expected wait of a call that needs a connection now; a moving average, too."""
