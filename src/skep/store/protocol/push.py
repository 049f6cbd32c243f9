"""Pushes: single messages, rows in bulk, transactions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

from skep.clock import Instant
from skep.model import Appended, PushBatch, PushOutcome, QueueKey
from skep.model.transaction import Transaction, TransactionOutcome

if TYPE_CHECKING:  # the extra `arrow` need not be installed
    from skep.arrow.log import NewRows


class PushVerbs(Protocol):
    """Verbs that append messages, each batch whole or not at all."""

    async def push(self, batches: Sequence[PushBatch], now: Instant, create_queues: bool = True) -> list[PushOutcome]:
        """Append every batch that is not refused, in one transaction and in order; each is whole or not at all.

        A batch is held, and not stored, while a push to one of its partitions waits as an operation. The store checks this under
        the lock that operations are performed under.
        When one message of a batch is refused, the others of that batch are refused with BATCH_REFUSED.
        A batch whose receipt exists is not stored, and gets the recorded outcome. A refused batch leaves no receipt. In the answer
        of a receipt, the id of a duplicate is replaced by the id of the first message.
        A batch that was tried before, by a session that is fenced now, is not stored if one of its messages is in the log or in the
        schedule. Its outcome is that of a batch whose receipt exists, and its receipt is written.
        """

    async def push_rows(self, key: QueueKey, rows: NewRows, now: Instant, create_queue: bool = True) -> Appended:
        """Append messages that have only a partition and a payload, all of them or none (QUEUE_FULL, …)."""

    async def transact(
        self, transactions: Sequence[Transaction], now: Instant, create_queues: bool = True
    ) -> list[TransactionOutcome]:
        """Commit each transaction whole or not at all: any refusal in it undoes all of it.

        Receipts and effects are checked first (RECEIPT_EXISTS, ENTITY_CHANGED), then settlements and pushes. The push of a
        transaction has no receipt of its own, and each effect has at least one event.
        """
