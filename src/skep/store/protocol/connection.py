"""Opening and closing a store, and being cut off from its database."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

from skep.model.upkeep import Connections

if TYPE_CHECKING:  # the extra `arrow` need not be installed
    pass


class ConnectionVerbs(Protocol):
    """A store as something that is opened, closed, and may be away."""

    async def open(self) -> None:
        """Connect and migrate. Raises STORE_UNAVAILABLE, STORE_BUSY or STORE_CORRUPT."""

    async def close(self) -> None:
        """Finish what runs and let go of everything."""

    def connections(self) -> Connections:
        """How busy its connections are, at no cost."""

    @property
    def session(self) -> str:
        """What the database knows this store's sessions by; empty when there is no such thing."""

    async def probe(self) -> None:
        """Return soon when the store answers and can be written to; STORE_UNAVAILABLE when not."""

    def waited_seconds(self) -> float:
        """How long the oldest call that is under way has been; 0 without one."""

    def suspend(self) -> None:
        """Give up all sessions: calls under way fail with STORE_UNAVAILABLE, and so do all others until `resume`."""

    async def resume(self) -> None:
        """Open new sessions, and return once nothing that came through earlier ones can take effect any more.

        Without a `suspend` before it, calls that are under way have a while to finish.
        """

    async def fence(self, sessions: Sequence[str]) -> None:
        """Return once nothing can take effect any more that came through the sessions of other stores, which have ended."""
