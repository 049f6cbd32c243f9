"""Dead letters."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

from skep.clock import Instant
from skep.ids import Id
from skep.model import (
    DeadLetter,
    DeadLetterFilter,
    Edited,
    NewMessage,
    PurgeStep,
    PushOutcome,
    QueueKey,
    ReplayStep,
    Seq,
)
from skep.model.history import Death, ReplayRecord
from skep.model.record import MAX_BYTES, Buried, Receipt, ReceiptKey, Unfit

if TYPE_CHECKING:  # the extra `arrow` need not be installed
    pass


class DeadLetterReadVerbs(Protocol):
    """Dead letters, as they are read."""

    async def dead_letters(
        self, wanted: DeadLetterFilter, after: Seq | None, limit: int, max_bytes: int = MAX_BYTES
    ) -> list[DeadLetter]:
        """Dead letters in the order of their queue, those after ``after``; they end with the one whose payload reaches ``max_bytes``."""

    async def deaths(self, key: QueueKey, limit: int) -> list[Death]:
        """Why the newest dead letters of a dead-letter queue died, newest first, without their payloads."""

    async def replays(
        self, key: QueueKey, source_queue: str | None, before: Seq | None, limit: int
    ) -> list[ReplayRecord]:
        """What was replayed from a dead-letter queue, the newest letters first, those before the seq of a letter."""


class DeadLetterVerbs(Protocol):
    """Dead letters, as they come and go."""

    async def count_dead_letters(self, wanted: DeadLetterFilter) -> int:
        """How many match: the dry run of replay and purge."""

    async def replay(
        self,
        wanted: DeadLetterFilter,
        ids: Sequence[Id],
        until: Seq,
        now: Instant,
        edited: Edited | None = None,
        after: Seq | None = None,
    ) -> ReplayStep:
        """Move the oldest matches behind ``after`` and up to seq ``until``, one per given id, back to their source queues, in order.

        It looks at a bounded number of letters, and says behind which one the next step goes on.
        A replayed message is delivered to the group that gave it up and to no other. Deduplication is bypassed and
        the replay recorded. A source queue that is gone is QUEUE_NOT_FOUND, and nothing moves. With ``edited`` they go with
        that payload instead of their own; NOT_ENCRYPTED when a source queue is encrypted and that is not.
        """

    async def purge(self, wanted: DeadLetterFilter, limit: int, now: Instant, after: Seq | None = None) -> PurgeStep:
        """Delete up to ``limit`` matches behind ``after``; like `replay` it looks at a bounded number of letters."""

    async def quarantine(
        self, message: NewMessage, id_: Id, error: str, receipt: Receipt | None, now: Instant
    ) -> PushOutcome:
        """Put an invalid message straight into its queue's dead-letter queue (reason INVALID, no group, no attempts).

        The result is its place there. A queue that keeps no dead letters refuses it (MESSAGE_INVALID), and one whose dead
        letters are at their max_depth does (QUEUE_FULL); then nothing is kept. NOT_ENCRYPTED when the queue is encrypted
        and the message is not.
        """

    async def bury_unfit(
        self, key: QueueKey, unfit: Sequence[Unfit], receipt: ReceiptKey, expires_at: Instant, now: Instant
    ) -> Buried:
        """Copy messages of a log into its dead-letter queue (reason INVALID, no group, no attempts), in order, and once per receipt.

        The log keeps them, and so do its groups; max_depth does not turn them away. Those that are in the log no longer, and all
        of a queue that keeps no dead letters, are left out.
        """
