"""News between servers that share a store."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from skep.clock import Instant
from skep.model import QueueKey
from skep.model.system_event import EventPosition, SystemEvents


class ServerVerbs(Protocol):
    """Changes, pushes and operations of other servers."""

    async def system_events(self, after: EventPosition | None) -> SystemEvents:
        """The changes of all servers after a position; with None no changes, only the present position.

        It uses a connection outside the pool, so it does not wait however busy the store is.
        """

    async def watch(self, keys: Sequence[QueueKey], until: Instant) -> None:
        """Register that this server waits for messages of these queues, so that other servers announce pushes to them."""

    def on_news(self, callback: Callable[[QueueKey], None], missed: Callable[[], None]) -> None:
        """Call ``callback`` when another server pushed to a watched queue, and ``missed`` when such news may have been lost."""

    def announce_operations(self) -> None:
        """Tell other servers, soon, that operations wait."""

    def on_operations(self, callback: Callable[[], None]) -> None:
        """Call ``callback`` when another server announced operations."""
