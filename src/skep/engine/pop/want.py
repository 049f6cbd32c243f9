"""The wishes of a pop's caller, and the claim for a pop that waits."""

from __future__ import annotations

from typing import NamedTuple

from msgspec import structs

from skep.config import Limits
from skep.engine.answers import Room, bytes_of, likely_bytes, most_of_pop
from skep.engine.logical_queue import LogicalQueue
from skep.ids import IdMint
from skep.model import PopRequest, PopResult, Token


class Want(NamedTuple):
    """A caller's request, and the room that counts the bytes of its answer; without a room they are not counted.

    ``matching``: the request is for all queues of a namespace or task, not for one queue.
    """

    request: PopRequest
    room: Room | None = None
    matching: bool = False

    def of(self, queue: LogicalQueue, token: Token, batch: int, max_bytes: int) -> PopRequest:
        """The request to one queue."""
        return structs.replace(self.request, queue=queue.key, token=token, batch=batch, max_bytes=max_bytes)

    def room_bytes(self, queue: LogicalQueue, batch: int, limits: Limits) -> int:
        """How many bytes to reserve for messages of a queue.

        Auto-acked messages cannot be given back for want of room, so for them the most that a pop may need is reserved.
        """
        assert self.room is not None
        most, answers = most_of_pop(batch, limits), self.room.of
        if self.request.auto_ack:
            return most if most <= answers.largest else answers.most_bytes
        return likely_bytes(batch, queue.message_bytes, answers.least, min(most, answers.largest))


class ClaimForPoll:
    """Makes the claims of a push for a poll that waits for one queue."""

    __slots__ = ("_ids", "_limits", "_queue", "_taken", "_want")

    def __init__(self, queue: LogicalQueue, want: Want, ids: IdMint, limits: Limits) -> None:
        self._queue = queue
        self._want = want
        self._ids = ids
        self._limits = limits
        self._taken = 0

    def request(self) -> PopRequest | None:
        """The request to claim messages; None when there is no room for them now."""
        want, batch, max_bytes = self._want, self._want.request.batch, self._limits.pop_bytes
        if want.room is not None:
            self._taken = want.room_bytes(self._queue, batch, self._limits)
            max_bytes = min(max_bytes, self._taken)
            if not want.room.try_take(self._taken):
                return None
        return want.of(self._queue, Token(self._ids.mint()), batch, max_bytes)

    def fits(self, found: PopResult | None) -> bool:
        """Whether there is room for the claimed messages."""
        room = self._want.room
        if room is None:
            return True
        total, largest = bytes_of(() if found is None else found.deliveries)
        if total:
            self._queue.gave(largest)
        return room.keep(self._taken, total, at_any_rate=self._want.request.auto_ack)
