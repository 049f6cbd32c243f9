"""Dead letters: reading, making, replaying and purging them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

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
from skep.model.forgetting import ForgetFilter, FoundLetters, LetterPlace
from skep.model.history import Death, ReplayRecord
from skep.model.record import MAX_BYTES, Buried, Receipt, ReceiptKey, Unfit


class DeadLetterReadVerbs(Protocol):
    """Reading dead letters."""

    async def dead_letters(
        self, wanted: DeadLetterFilter, after: Seq | None, limit: int, max_bytes: int = MAX_BYTES
    ) -> list[DeadLetter]:
        """Dead letters by seq, after the seq ``after``. The letter whose payload reaches ``max_bytes`` is the last."""

    async def deaths(self, key: QueueKey, limit: int) -> list[Death]:
        """The reasons of the newest dead letters of a dead-letter queue, newest first, without payloads."""

    async def replays(
        self, key: QueueKey, source_queue: str | None, before: Seq | None, limit: int
    ) -> list[ReplayRecord]:
        """The replays from a dead-letter queue, newest letters first, before the seq of a letter."""


class DeadLetterSourceVerbs(Protocol):
    """Finding dead letters by their source, in whichever queues they lie."""

    async def letters_of_source(self, wanted: ForgetFilter, after: LetterPlace) -> FoundLetters:
        """The dead letters of a queue that match by partition, transaction id and trace. A look is bounded; ranges are not looked at."""


class DeadLetterVerbs(Protocol):
    """Making, replaying and purging dead letters."""

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

        A step looks at a bounded number of letters, and returns the seq to go on from.
        A replayed message is delivered only to the group that gave it up. Deduplication is bypassed, and the replay is recorded.
        QUEUE_NOT_FOUND when a source queue is gone; then nothing moves. With ``edited`` the messages get that payload;
        NOT_ENCRYPTED when a source queue is encrypted and ``edited`` is not.
        """

    async def purge(self, wanted: DeadLetterFilter, limit: int, now: Instant, after: Seq | None = None) -> PurgeStep:
        """Delete up to ``limit`` matches behind ``after``; like `replay` it looks at a bounded number of letters."""

    async def quarantine(
        self, message: NewMessage, id_: Id, error: str, receipt: Receipt | None, now: Instant
    ) -> PushOutcome:
        """Put an invalid message directly into its queue's dead-letter queue (reason INVALID, no group, no attempts).

        The result has its seq there. It is refused when the queue keeps no dead letters (MESSAGE_INVALID), or when the dead-letter
        queue is at its max_depth (QUEUE_FULL); then nothing is kept. NOT_ENCRYPTED when the queue is encrypted and the message
        is not.
        """

    async def bury_unfit(
        self, key: QueueKey, unfit: Sequence[Unfit], receipt: ReceiptKey, expires_at: Instant, now: Instant
    ) -> Buried:
        """Copy messages of a log into its dead-letter queue (reason INVALID, no group, no attempts), in order, and once per receipt.

        The log keeps the messages, and groups still get them. max_depth does not refuse them. Messages that are no longer in the log
        are left out; so are all of a queue without dead letters.
        """
