"""Deliveries as data: the request of a pop, and the messages that the pop leased."""

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
    """A request for messages of one queue. ``max_partitions`` 0 takes as many partitions as fill the batch.

    The caller builds it; the engine adds the ``token`` of the lease, and lowers ``max_bytes`` to the free room. In a pop over several
    queues the queue has a tenant and no name. Payloads and headers together have at most ``max_bytes``, unless the first message
    alone has more. A message that does not fit stays in the queue and is not leased. ``consumer`` is the caller's header
    (`skep.model.consumer`); the store keeps it with the lease.
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

    ``dead_letter`` is set only for a message that died in another queue.
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
        """The settlement of this message, for `settle`: an ack, unless ``outcome`` says otherwise."""
        return Settlement(
            queue=self.queue, partition=self.partition, seq=self.seq, token=self.token, group=self.group,
            outcome=outcome, error=error, retry=retry, retry_at=retry_at,
        )  # fmt: skip


class PopResult(Struct, frozen=True):
    """The messages of a pop. ``next_ready_at``: when the next message may be ready. ``more``: another one may be ready now."""

    deliveries: list[Delivery]
    next_ready_at: Instant | None = None
    more: bool = False
