"""A queue object for asyncio: it keeps the queue's name, a partition and a group, so that calls need not repeat them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from typing import Unpack

from skep.client.async_message import AsyncMessage
from skep.client.async_messaging import AsyncMessaging
from skep.client.calls import CONSUME_WAIT_SECONDS, POP_DEFAULTS, PopOptions, queue_pop_options
from skep.client.message_data import MessageData
from skep.client.outgoing import PUSH_DEFAULTS, PushOptions
from skep.client.pushed import Pushed
from skep.client.queue_calls import QUEUE_DEFAULTS
from skep.client.remainder import Remainder
from skep.client.spelling import spelled_out
from skep.errors import SkepError
from skep.model.queue_settings import QueueOptions
from skep.wire.messages import AckResult, Extended
from skep.wire.queues import QueueDeleted, QueueDetail, QueueView


class AsyncQueue:
    """One queue of a client. Arguments of a call replace the defaults of the queue object."""

    def __init__(
        self, client: AsyncMessaging, name: str, *, partition: str | None = None, group: str | None = None
    ) -> None:
        self._client = client
        self.name = name
        self.partition = partition
        self.group = group

    @spelled_out(PushOptions, PUSH_DEFAULTS)
    async def push(self, messages: object, **options: Unpack[PushOptions]) -> Pushed:
        """Push one message or a list of them, whole or not at all."""
        if self.partition is not None:
            options.setdefault("partition", self.partition)
        return await self._client.push(self.name, messages, **options)

    @spelled_out(PopOptions, POP_DEFAULTS)
    async def pop(self, *, ack: Sequence[MessageData] = (), **options: Unpack[PopOptions]) -> list[AsyncMessage]:
        """Lease messages; an empty list when there are none, after ``wait_seconds`` if given. Those of ``ack`` are acked first."""
        return await self._client.pop(self.name, ack=ack, **queue_pop_options(self.partition, self.group, options))

    @spelled_out(PopOptions, POP_DEFAULTS)
    async def consume(self, **options: Unpack[PopOptions]) -> AsyncIterator[AsyncMessage]:
        """Loop over messages as they come, for ever. Settle each one. When you leave the loop, messages you have not seen are returned.

        By default one message is leased at a time; a larger ``batch`` saves requests. In an ordered queue a nack ends its lease:
        the rest of that lease is not handed out.
        """
        options.setdefault("wait_seconds", CONSUME_WAIT_SECONDS)
        while True:
            remainder = Remainder(await self.pop(**options))
            try:
                while (message := remainder.next()) is not None:
                    if remainder.in_doubt(message):
                        remainder.learn(await self._client.renew(message))
                        continue
                    remainder.handed_out(message)
                    yield message
            finally:
                # If the return fails, their leases run out instead.
                with suppress(SkepError):
                    await self._client.nack(*remainder.to_give_back(), delay=0)

    async def ack(self, *messages: MessageData) -> list[AckResult]:
        """Ack these messages: they are done. A refused ack does not affect the others."""
        return await self._client.ack(*messages)

    async def nack(
        self,
        *messages: MessageData,
        error: str | None = None,
        retry_at: datetime | None = None,
        delay: float | timedelta | None = None,
    ) -> list[AckResult]:
        """Nack these messages: they come again after the queue's backoff, at a time, or after a number of seconds (0 is at once)."""
        return await self._client.nack(*messages, error=error, retry_at=retry_at, delay=delay)

    async def reject(self, *messages: MessageData, error: str | None = None) -> list[AckResult]:
        """Reject these messages: they become dead letters at once."""
        return await self._client.reject(*messages, error=error)

    async def renew(self, *messages: MessageData, lease_seconds: float | None = None) -> list[Extended]:
        """Renew the leases of these messages; one result per lease."""
        return await self._client.renew(*messages, lease_seconds=lease_seconds)

    @spelled_out(QueueOptions, QUEUE_DEFAULTS)
    async def configure(self, **settings: Unpack[QueueOptions]) -> QueueView:
        """Create the queue, or change the given settings (docs/settings.md)."""
        return await self._client.configure(self.name, **settings)

    async def stats(self) -> QueueDetail:
        """The queue with its settings, its figures, and the figures of every group."""
        return await self._client.stats(self.name)

    async def pause(self) -> QueueView:
        """Pause the queue: pops get no messages. Pushes and acks go on."""
        return await self._client.pause(self.name)

    async def resume(self) -> QueueView:
        """Resume the queue: pops get messages again."""
        return await self._client.resume(self.name)

    async def delete(self) -> QueueDeleted:
        """Delete the queue with all its messages and groups."""
        return await self._client.delete_queue(self.name)
