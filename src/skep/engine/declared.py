"""What specs declare about queues, as far as a push must know it. The engine knows no specs: whoever does gives it this."""

from __future__ import annotations

from typing import Protocol

from skep.model import NewMessage, QueueKey


class Declared(Protocol):
    """Looks at messages before they are stored."""

    async def fit(self, messages: list[NewMessage]) -> list[NewMessage]:
        """The messages as they are stored, their queues made as they were declared; MESSAGE_INVALID when one does not fit."""
        ...

    def looks_at(self, key: QueueKey) -> bool:
        """Whether messages of this queue are looked at one by one."""
        ...

    def names_messages(self, key: QueueKey) -> bool:
        """Whether messages of this queue get a transaction id, which columns have no room for."""
        ...
