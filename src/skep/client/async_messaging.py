"""Pushing, popping and settling for asyncio: the part of the client that moves messages."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import datetime, timedelta
from functools import partial
from typing import Unpack

import msgspec

from skep.client import calls, message_data, operations, tracing
from skep.client.admin_calls import AdminCalls
from skep.client.async_message import AsyncMessage, read_messages
from skep.client.async_popping import popped
from skep.client.async_sender import AsyncSender
from skep.client.async_transaction import AsyncTransaction
from skep.client.calls import POP_DEFAULTS, Acked, PopOptions
from skep.client.exchange import ApiCall
from skep.client.message_data import MessageData
from skep.client.outgoing import PUSH_DEFAULTS, PushOptions, buffering, listed, push_items
from skep.client.pushed import Pushed, Queued, told, told_of_failure
from skep.client.spelling import spelled_out
from skep.clock import seconds
from skep.errors import Code, SkepError
from skep.ids import IdMint
from skep.model import SettleStatus
from skep.wire.messages import Ack, AckResult, Extended


class AsyncMessaging(AdminCalls, AsyncSender):
    """The calls of a client that move messages."""

    _mint: IdMint

    @spelled_out(PushOptions, PUSH_DEFAULTS)
    async def push(self, queue: str, messages: object, **options: Unpack[PushOptions]) -> Pushed:
        """Push one message or a list of them, whole or not at all. The error of a refused push is raised, or given to ``on_error``."""
        several = listed(messages)
        with tracing.publishing(self.settings.urls[0], queue, len(several)) as span:
            items = push_items(queue, several, options, self._mint)
            tracing.sending(span, items)
            try:
                pushed = await self._awaited(await self.run(calls.push(items, buffering(options))))
                tracing.stored(span, pushed.messages)
                return told(pushed, options)
            except SkepError as error:
                tracing.failed(span, error)
                return told_of_failure(error, items, options)

    @spelled_out(PopOptions, POP_DEFAULTS)
    async def pop(
        self, queue: str, *, ack: Sequence[MessageData] = (), **options: Unpack[PopOptions]
    ) -> list[AsyncMessage]:
        """Lease messages; an empty list when there are none, after ``wait_seconds`` if given.

        ``ack`` are earlier messages that are done: the same request acks them first. A message whose ack was refused stays without
        ``settled``, and keeps nothing else away.
        """
        if not ack:
            call = ApiCall(calls.pop(queue, options).request, read_messages)
            return message_data.held(await popped(self, queue, call), self)
        said = [(message, message_data.completed(message)) for message in ack]
        short = message_data.short(said)
        request = calls.pop(queue, options, short.sent).request
        with message_data.traced(said, is_current=False) as span:
            call = ApiCall(request, partial(read_messages, said=said, short=short, span=span))
            return message_data.held(await popped(self, queue, call), self)

    @spelled_out(PopOptions, POP_DEFAULTS)
    async def pop_arrow(self, queue: str, **options: Unpack[PopOptions]) -> bytes:
        """Lease very many messages at a time, as an Arrow IPC stream; empty bytes when there are none.

        The columns are those of `skep.arrow.log.POPPED_SCHEMA`. An ack of a ``lease_id`` completes all messages of that lease.
        """
        return await self.run(calls.pop_arrow(queue, options))

    @spelled_out(PopOptions, POP_DEFAULTS)
    async def pop_matching(
        self, *, namespace: str | None = None, task: str | None = None, **options: Unpack[PopOptions]
    ) -> list[AsyncMessage]:
        """Lease messages of all queues of a namespace, a task or both, higher priority first."""
        call = ApiCall(calls.pop_matching(namespace, task, options).request, read_messages)
        return message_data.held(await popped(self, namespace or task or "*", call), self)

    async def ack(self, *messages: MessageData) -> list[AckResult]:
        """Ack these messages: they are done. A refused ack is in the results, and does not affect the others.

        When they are all that is left of a lease, the request acks the lease and not each message.
        """
        return await self._say([(message, message_data.completed(message)) for message in messages])

    async def ack_lease(self, lease_id: str, *, through_seq: int | None = None) -> AckResult:
        """Ack all messages of a lease, or those up to a seq. The result's ``messages`` is their number.

        STALE_LEASE is raised when the lease has ended, NOT_IN_LEASE when nothing up to that seq is left of it.
        """
        one = Ack(lease_id, through_seq=msgspec.UNSET if through_seq is None else through_seq)
        [result] = await self.said(calls.ack(one))
        if result.status is SettleStatus.REFUSED:  # the ack was queued, and came after the lease had ended
            raise SkepError(result.code or Code.STALE_LEASE, "the lease has ended, or nothing of it was left")
        return result

    async def nack(
        self,
        *messages: MessageData,
        error: str | None = None,
        retry_at: datetime | None = None,
        delay: float | timedelta | None = None,
    ) -> list[AckResult]:
        """Nack these messages: they come again after the queue's backoff, at a time, or after a number of seconds (0 is at once)."""
        return await self._say(
            [
                (one, message_data.failed(one, self.clock, error=error, retry_at=retry_at, delay=delay))
                for one in messages
            ]
        )

    async def reject(self, *messages: MessageData, error: str | None = None) -> list[AckResult]:
        """Reject these messages: they become dead letters at once."""
        return await self._say([(message, message_data.rejected(message, error=error)) for message in messages])

    async def settle(self, acks: Sequence[Ack]) -> list[AckResult]:
        """Settle messages in one request, each with its own outcome."""
        return await self.said(calls.ack_batch(acks)) if acks else []

    async def said(self, call: ApiCall[Acked]) -> list[AckResult]:
        """The results of acks. When the server queued them (202), wait for their outcome if the settings say so."""
        acked = await self.run(call)
        if acked.queued is not None and (ended := await self._ended(acked.queued)) is not None:
            return operations.acked(acked.queued, ended).results
        return acked.results

    async def renew(self, *messages: MessageData, lease_seconds: float | None = None) -> list[Extended]:
        """Renew the leases of these messages; one result per lease."""
        leases = list(dict.fromkeys(message_data.lease_of(message) for message in messages))
        return await self.run(calls.extend_batch(leases, lease_seconds)) if leases else []

    async def release(self, lease_id: str) -> None:
        """Release a lease: its messages are delivered again at once. The delivery counts as an attempt."""
        await self.run(calls.release(lease_id))

    def transaction(self) -> AsyncTransaction:
        """Acks and pushes that happen together or not at all."""
        return AsyncTransaction(self, self._mint)

    async def _say(self, said: list[tuple[MessageData, Ack]]) -> list[AckResult]:
        with message_data.traced(said) as span:
            short = message_data.short(said)
            told = await self.settle(short.sent)
            results = await self.settle(short.meant) if short.is_open(told) else short.results(told)
            return message_data.noted(said, results, span)

    async def _awaited(self, pushed: Pushed) -> Pushed:
        """The outcome of a queued push (202), once it took effect; the queued push itself when that takes too long, since it is safe."""
        if pushed.queued is not None and (ended := await self._ended(pushed.queued)) is not None:
            return operations.pushed(pushed.queued, ended)
        return pushed

    async def _ended(self, queued: Queued) -> list[operations.Operation] | None:
        """All operations of a call, once they have ended; None when the settings do not wait, or the wait takes too long."""
        if self.settings.queued_operation == "return":
            return None
        deadline = self.clock.steady() + seconds(self.settings.poll_timeout_seconds)
        ended = []
        for part in queued.parts:
            call = operations.operation(part.operation_id)
            while not (found := await self.run(call)).ended:
                if self.clock.steady() >= deadline:
                    return None
                await asyncio.sleep(self.settings.poll_seconds)
            ended.append(found)
        return ended
