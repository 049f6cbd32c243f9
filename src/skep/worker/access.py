"""How a runner reaches the messages of one tenant: a client of its own, leases kept while they are worked under, acks sent together."""

from __future__ import annotations

import asyncio

from skep.client import calls, error_texts
from skep.client.async_client import AsyncClient
from skep.client.async_popping import popped
from skep.client.calls import PopOptions
from skep.client.client import Client
from skep.client.lease_acks import Left, leases_of
from skep.client.worker.failing import Failure
from skep.client.worker.keeping import Keeping
from skep.client.worker.settling import Settling
from skep.entities import PERMANENT
from skep.errors import Code, SkepError
from skep.wire.messages import Ack, AckResult, AckStatus, PoppedMessage

ERROR_CHARACTERS = 8_192
LOST = frozenset({Code.STALE_LEASE, Code.NOT_IN_LEASE})
"""What is refused with these is somebody else's by now, or settled."""
OWN_FAULTS = PERMANENT | {
    Code.PAYLOAD_TOO_LARGE, Code.INVALID_PAYLOAD, Code.INVALID_PARTITION, Code.INVALID_TRANSACTION_ID, Code.INVALID_NAME,
    Code.INVALID_REQUEST, Code.MALFORMED,
}  # fmt: skip
"""What is refused with these is refused for what is in the message, and stays so."""


class Access:
    """One tenant of one queue."""

    def __init__(self, client: AsyncClient, queue: str, lease_seconds: float) -> None:
        self.client = client
        self.tenant = client.settings.tenant
        self.queue = queue
        self.busy = 0
        """Chains under way."""
        self.keeping = Keeping(client, lease_seconds)
        self.leases: dict[str, Left] = {}
        """What is left of the leases that are worked under."""
        self._settling = Settling(client)
        self._lease_seconds = lease_seconds
        self._keeper: asyncio.Task[None] | None = None
        self._blocking: Client | None = None

    async def pop(self, batch: int, partitions: int, wait_seconds: float) -> list[PoppedMessage]:
        """Lease messages. ``partitions`` of 0 are as many as fill the batch."""
        options: PopOptions = {
            "batch": batch,
            "partitions": partitions,
            "lease_seconds": self._lease_seconds,
            "wait_seconds": wait_seconds,
        }
        found = await popped(self.client, self.queue, calls.pop(self.queue, options))
        self.leases |= leases_of(found)
        if found and self._keeper is None:
            self._keeper = asyncio.create_task(self.keeping.run())
        return found

    def settle(
        self, message: PoppedMessage, ack: Ack, failure: Failure | None = None
    ) -> asyncio.Future[AckResult | None]:
        """Say this of a message, soon and together with others; why it failed is logged."""
        return self._settling.settle(message, ack, failure, self.leases.get(message.lease_id))

    def hold(self, lease_id: str) -> None:
        """Keep a lease from now on."""
        self.keeping.hold(lease_id)

    def release(self, lease_id: str) -> None:
        """A lease need not be kept for whoever held it, and is forgotten when nobody else does."""
        self.keeping.release(lease_id)
        if not self.keeping.holds(lease_id):
            self.leases.pop(lease_id, None)

    def blocking(self) -> Client:
        """A client for functions that run in threads."""
        if self._blocking is None:
            self._blocking = Client.like(self.client.settings, self.client.clock)
        return self._blocking

    async def close(self) -> None:
        """Keep nothing any more."""
        if self._keeper is not None:
            self._keeper.cancel()
            await asyncio.gather(self._keeper, return_exceptions=True)
            self._keeper = None
        if self._blocking is not None:
            self._blocking.close()
            self._blocking = None


def completed(message: PoppedMessage) -> Ack:
    """It is done."""
    return Ack(message.lease_id, message.seq)


def given_up(message: PoppedMessage, error: SkepError) -> Ack:
    """It becomes a dead letter at once."""
    return Ack(message.lease_id, message.seq, AckStatus.DLQ, writable(str(error)))


def failed(message: PoppedMessage, error: str) -> Ack:
    """It failed, and comes again after the queue's backoff."""
    return Ack(message.lease_id, message.seq, AckStatus.FAILED, writable(error))


def is_hopeless(error: SkepError) -> bool:
    """Whether it is not about the messages: the server is away, or does not let this worker do anything."""
    away = error.retryable and error.code is not Code.QUEUE_FULL
    return away or error.code in (Code.UNAUTHENTICATED, Code.FORBIDDEN)


def refused(message: PoppedMessage, error: SkepError) -> Ack:
    """What is to be said of a message whose transaction was refused; what is not about the message is raised."""
    if is_hopeless(error):
        raise error
    return given_up(message, error) if error.code in OWN_FAULTS else failed(message, str(error))


def given_back(message: PoppedMessage) -> Ack:
    """It was not worked on, and comes again at once."""
    return Ack(message.lease_id, message.seq, AckStatus.RETRY)


def writable(error: str) -> str:
    """An error as JSON can carry it, cut as the server would."""
    return error_texts.writable(error[:ERROR_CHARACTERS])
