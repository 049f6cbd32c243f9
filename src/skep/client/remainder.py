"""The rest of a popped batch, while its messages are handed out one by one.

A nack ends the whole lease in an ordered queue and only its own message in an unordered one. The client cannot know which, so
after a nack it asks (by renewing) before it hands out more of the same lease.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from typing import Generic, TypeVar

from skep.client.message_data import MessageData
from skep.wire.messages import AckStatus, Extended

M = TypeVar("M", bound=MessageData)

_NACKED = frozenset({AckStatus.FAILED, AckStatus.RETRY})


class Remainder(Generic[M]):
    """Messages of one pop that are yet to be handed out, and those that were."""

    def __init__(self, messages: Iterable[M]) -> None:
        self._left = deque(messages)
        self._handed_out: list[M] = []
        self._sure: set[str] = set()

    def next(self) -> M | None:
        """The next message, which stays here until it is handed out."""
        return self._left[0] if self._left else None

    def handed_out(self, message: M) -> None:
        """The caller has it now."""
        self._left.popleft()
        self._handed_out.append(message)

    def in_doubt(self, message: M) -> bool:
        """Whether its lease may have been ended by a nack of another message."""
        lease = message.lease_id
        return lease not in self._sure and any(m.lease_id == lease and m.settled in _NACKED for m in self._handed_out)

    def learn(self, renewed: Sequence[Extended]) -> None:
        """Drop messages that are no longer leased. A lease that outlived one nack outlives all nacks."""
        for result in renewed:
            if result.code is None:
                self._sure.add(result.lease_id)
            else:
                self._left = deque(m for m in self._left if m.lease_id != result.lease_id)

    def to_give_back(self) -> list[M]:
        """The messages to give back. Not those of a lease on which the worker still works: its lease would end."""
        busy = {message.lease_id for message in self._handed_out if message.settled is None}
        return [message for message in self._left if message.lease_id not in busy]
