"""Deliveries as data: what is asked of a pop, and the messages that it leased."""

from __future__ import annotations

from msgspec import Struct

from skep.clock import Instant
from skep.ids import Id
from skep.model.dead_letter import DeadLetterOrigin
from skep.model.group import FROM_BEGINNING, QUEUE_MODE_GROUP, Start
from skep.model.lease import NO_TOKEN, Token
from skep.model.queue import QueueKey, Seq
from skep.model.settlement import Outcome, Retry, Settlement


class PopRequest(Struct, frozen=True):
    """A wish for messages of one queue. ``max_partitions`` 0 takes as many partitions as fill the batch.

    Whoever asks builds it; the engine adds the ``token`` of the lease and what there is room for. Of a pop over several queues the
    queue has no name, only the tenant. Payloads and headers together have at most ``max_bytes``, unless one message alone has more: what does not fit stays
    where it is and is not leased. ``consumer`` says who asks (`skep.consumers`); it is kept with the lease.
    """

    queue: QueueKey
    token: Token = NO_TOKEN
    group: str = QUEUE_MODE_GROUP
    batch: int = 1
    max_bytes: int = 32 * 1024 * 1024
    partition: str | None = None
    max_partitions: int = 0
    lease_seconds: float | None = None
    auto_ack: bool = False
    start: Start = FROM_BEGINNING
    consumer: str | None = None


class Delivery(Struct, frozen=True, gc=False, array_like=True):
    """A message handed out under a lease: settle it with its token before the deadline.

    ``dead_letter`` is there only when it died in another queue.
    """

    queue: QueueKey
    group: str
    partition: str
    seq: Seq
    id: Id
    transaction_id: str | None
    trace_id: Id
    headers: bytes | None
    content_type: str | None
    payload: bytes
    priority: int
    created_at: Instant
    attempt: int
    token: Token
    lease_deadline: Instant
    dead_letter: DeadLetterOrigin | None = None

    def settlement(
        self,
        outcome: Outcome = Outcome.ACK,
        *,
        error: str | None = None,
        retry: Retry = Retry.BACKOFF,
        retry_at: Instant | None = None,
    ) -> Settlement:
        """What to hand to `settle` to finish this message, or to give it back."""
        return Settlement(
            queue=self.queue, partition=self.partition, seq=self.seq, token=self.token, group=self.group,
            outcome=outcome, error=error, retry=retry, retry_at=retry_at,
        )  # fmt: skip


class PopResult(Struct, frozen=True):
    """What was handed out. ``next_ready_at`` is when something may next be had; ``more`` when that is at once."""

    deliveries: list[Delivery]
    next_ready_at: Instant | None = None
    more: bool = False
