"""The calls that a client of the load makes, on a server over HTTP (`torture.caller`) or on a store in its own process (`torture.store_caller`)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from skep.clock import Clock
from skep.model import ClearScope, Delivery, NewMessage, Outcome, QueueKey, Start
from skep.wire.messages import AckStatus

OUTCOMES = {
    AckStatus.COMPLETED: Outcome.ACK,
    AckStatus.FAILED: Outcome.NACK,
    AckStatus.RETRY: Outcome.NACK,
    AckStatus.DLQ: Outcome.REJECT,
}
Popped = tuple[Any, Delivery]
"""A message as its caller knows it, and as the history does."""


class LoadCaller(Protocol):
    """Calls that are noted with their answers. None raises because there was none."""

    @property
    def clock(self) -> Clock:
        """The clock of the calls."""

    async def push(
        self, queue: QueueKey, messages: Sequence[NewMessage], *, repeats: bool = False, buffered: bool = False
    ) -> object:
        """One push; with ``repeats`` it is repeated until it is answered, which needs transaction ids."""

    async def transact(
        self, acked: Sequence[Any], delivered: Sequence[Delivery], to: QueueKey, messages: Sequence[NewMessage]
    ) -> None:
        """Ack messages and push others, together or not at all."""

    async def pop(
        self, queue: QueueKey, group: str, *, keys: Callable[[str], QueueKey], **options: Any
    ) -> Sequence[Popped]:
        """Lease messages; ``keys`` tells the key of a queue from its name."""

    async def settle(self, said: Sequence[tuple[Any, Delivery, AckStatus]], *, repeats: bool = True) -> None:
        """Settle messages, each with its own outcome."""

    async def ack(self, held: Sequence[Popped]) -> None:
        """Ack messages; whole leases may be acked as such."""

    async def renew(self, message: Any, delivery: Delivery, lease_seconds: float) -> None:
        """Renew the lease of a message."""

    async def release(self, message: Any, delivery: Delivery) -> None:
        """Give the lease of a message back."""

    async def seek(self, queue: QueueKey, group: str, start: Start) -> None:
        """Move a group."""

    async def clear(self, queue: QueueKey, scope: ClearScope) -> None:
        """Clear a queue."""

    async def delete_group(self, queue: QueueKey, group: str) -> None:
        """Delete a group, with its leases."""

    async def delete_message(self, queue: QueueKey, seq: int) -> None:
        """Delete one message from the log."""

    async def forget(self, queue: QueueKey, seq: int) -> None:
        """Erase one message, settled or not, with all that stems from it."""
