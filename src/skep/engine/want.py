"""What the caller of a pop wants, and what is claimed for one that waits."""

from __future__ import annotations

from skep.config import Limits
from skep.engine.answers import Room, bytes_of, likely_bytes, most_of_pop
from skep.engine.logical import LogicalQueue
from skep.ids import IdMint
from skep.model import FROM_BEGINNING, QUEUE_MODE_GROUP, PopRequest, PopResult, QueueKey, Start, Token


class Want:
    """What a caller wants of whichever queue."""

    __slots__ = (
        "auto_ack", "batch", "consumer", "group", "lease_seconds", "matching", "max_partitions", "partition", "room", "start",
    )  # fmt: skip

    def __init__(
        self,
        group: str = QUEUE_MODE_GROUP,
        batch: int = 1,
        partition: str | None = None,
        max_partitions: int = 0,
        lease_seconds: float | None = None,
        auto_ack: bool = False,
        start: Start = FROM_BEGINNING,
        matching: bool = False,
        consumer: str | None = None,
        room: Room | None = None,
    ) -> None:
        """``matching`` when it is not one queue that is meant but all that match; ``consumer`` is who wants it.

        ``room`` is where the messages are held until they are handed on; without one nobody counts them.
        """
        self.room = room
        self.consumer = consumer
        self.matching = matching
        self.group = group
        self.batch = batch
        self.partition = partition
        self.max_partitions = max_partitions
        self.lease_seconds = lease_seconds
        self.auto_ack = auto_ack
        self.start = start

    def of(self, queue: QueueKey, token: Token, batch: int, max_bytes: int) -> PopRequest:
        """The request to one queue."""
        return PopRequest(
            queue=queue,
            token=token,
            group=self.group,
            batch=batch,
            max_bytes=max_bytes,
            partition=self.partition,
            max_partitions=self.max_partitions,
            lease_seconds=self.lease_seconds,
            auto_ack=self.auto_ack,
            start=self.start,
            consumer=self.consumer,
        )

    def room_bytes(self, queue: LogicalQueue, batch: int, limits: Limits) -> int:
        """How much room to take for messages of a queue.

        What is settled as it is handed out cannot be given back when there is no room for it, so that takes what it may need at most.
        """
        assert self.room is not None
        most, answers = most_of_pop(batch, limits), self.room.of
        if self.auto_ack:
            return most if most <= answers.largest else answers.most_bytes
        return likely_bytes(batch, queue.message_bytes, answers.least, min(most, answers.largest))


class Order:
    """What a push claims for a poll that waits for one queue."""

    __slots__ = ("_ids", "_limits", "_queue", "_taken", "_want")

    def __init__(self, queue: LogicalQueue, want: Want, ids: IdMint, limits: Limits) -> None:
        self._queue = queue
        self._want = want
        self._ids = ids
        self._limits = limits
        self._taken = 0

    def request(self) -> PopRequest | None:
        """What to claim; None when there is no room for it now."""
        want, max_bytes = self._want, self._limits.pop_bytes
        if want.room is not None:
            self._taken = want.room_bytes(self._queue, want.batch, self._limits)
            max_bytes = min(max_bytes, self._taken)
            if not want.room.try_take(self._taken):
                return None
        return want.of(self._queue.key, Token(self._ids.mint()), want.batch, max_bytes)

    def fits(self, found: PopResult | None) -> bool:
        """Whether there is room for what was claimed."""
        room = self._want.room
        if room is None:
            return True
        total, largest = bytes_of(() if found is None else found.deliveries)
        if total:
            self._queue.gave(largest)
        return room.keep(self._taken, total, at_any_rate=self._want.auto_ack)
