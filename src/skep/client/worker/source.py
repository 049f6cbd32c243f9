"""The source of a consumer loop: one queue of one tenant. It renews the leases of messages in work, and batches acks."""

from __future__ import annotations

import asyncio
from contextlib import ExitStack
from typing import TypeVar

from skep.client.async_client import AsyncClient
from skep.client.async_popping import popped
from skep.client.client import Client
from skep.client.exchange import ApiCall
from skep.client.lease_acks import Left, leases_of
from skep.client.worker.failing import FailedMessage
from skep.client.worker.keeping import Keeping
from skep.client.worker.settling import Settled, Settling
from skep.wire.messages import Ack, AckResult, AckStatus

M = TypeVar("M", bound=Settled)


class Source:
    """One tenant of one queue."""

    def __init__(self, client: AsyncClient, queue: str, lease_seconds: float, blocking: Client | None = None) -> None:
        self.client = client
        self.tenant = client.settings.tenant
        self.queue = queue
        self.lease_seconds = lease_seconds
        self.busy = 0
        """Chains under way."""
        self.keeping = Keeping(client, lease_seconds)
        self.leases: dict[str, Left] = {}
        """The unsettled seqs of each lease in work."""
        self._settling = Settling(client)
        self._keeper: asyncio.Task[None] | None = None
        self._blocking = blocking
        self._made = ExitStack()

    async def pop(self, call: ApiCall[list[M]]) -> list[M]:
        """Lease messages."""
        found = await popped(self.client, self.queue, call)
        self.leases |= leases_of(found)
        if found and self._keeper is None:
            self._keeper = asyncio.create_task(self.keeping.run())
        return found

    def settle(
        self, message: Settled, ack: Ack, failure: FailedMessage | None = None
    ) -> asyncio.Future[AckResult | None]:
        """Settle a message, soon and together with others. A failure is logged."""
        return self._settling.settle(message, ack, failure, self.leases.get(message.lease_id))

    def give_back(self, message: Settled) -> asyncio.Future[AckResult | None]:
        """Return a message that was not worked on: it comes again at once."""
        return self.settle(message, Ack(message.lease_id, message.seq, AckStatus.RETRY))

    def hold(self, lease_id: str) -> None:
        """Keep a lease from now on."""
        self.keeping.hold(lease_id)

    def release(self, lease_id: str) -> None:
        """One holder releases the lease; it is forgotten when no other holder is left."""
        self.keeping.release(lease_id)
        if not self.keeping.holds(lease_id):
            self.leases.pop(lease_id, None)

    def blocking(self) -> Client:
        """A client for functions that run in threads."""
        if self._blocking is None:
            self._blocking = self._made.enter_context(Client.like(self.client.settings, self.client.clock))
        return self._blocking

    async def close(self) -> None:
        """Stop renewing leases."""
        if self._keeper is not None:
            self._keeper.cancel()
            await asyncio.gather(self._keeper, return_exceptions=True)
            self._keeper = None
        self._made.close()
