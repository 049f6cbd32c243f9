"""Declarations of specs about queues, as far as a push needs them. The engine knows no specs: the caller implements this."""

from __future__ import annotations

from typing import Protocol

from skep.model import NewMessage, QueueKey


class Declared(Protocol):
    """Checks and completes messages before they are stored."""

    async def fit(self, messages: list[NewMessage]) -> list[NewMessage]:
        """The messages to store, after making their declared queues; MESSAGE_INVALID when a message does not fit."""
        ...

    def looks_at(self, key: QueueKey) -> bool:
        """Whether each message of this queue is checked."""
        ...

    def names_messages(self, key: QueueKey) -> bool:
        """Whether each message of this queue gets a transaction id (idempotency key). A push of columns cannot carry one."""
        ...
