"""Opening and closing a store, and losing its database."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from skep.model.chores import Connections


class ConnectionVerbs(Protocol):
    """The verbs to open, close, watch and fence a store."""

    async def open(self) -> None:
        """Connect and migrate. Raises STORE_UNAVAILABLE, STORE_BUSY or STORE_CORRUPT."""

    async def close(self) -> None:
        """Finish running calls and close all connections."""

    def connections(self) -> Connections:
        """How busy the store's connections are. This costs no call to the database."""

    @property
    def session(self) -> str:
        """The name of this store's sessions in the database; empty when the database has no sessions."""

    async def probe(self) -> None:
        """Return soon when the store answers and can be written to; STORE_UNAVAILABLE when not."""

    def waited_seconds(self) -> float:
        """How long the oldest call has been under way; 0 without calls."""

    def suspend(self) -> None:
        """Give up all sessions: calls under way fail with STORE_UNAVAILABLE, and so do all others until `resume`."""

    async def resume(self) -> None:
        """Open new sessions, and return once no call of earlier sessions can take effect any more.

        Without a `suspend` before it, calls under way have some time to finish.
        """

    async def fence(self, sessions: Sequence[str]) -> None:
        """End these sessions of other stores, and return once none of their calls can take effect any more (fencing)."""
