"""A popped message that can be settled: its data, and the client that popped it."""

from __future__ import annotations

from datetime import datetime, timedelta
from types import TracebackType
from typing import TYPE_CHECKING, Any, Protocol, Self

from skep.client import calls, message_data
from skep.client.async_sender import AsyncSender
from skep.client.async_transaction import AsyncTransaction
from skep.client.calls import Acked
from skep.client.error_texts import error_text
from skep.client.exchange import ApiCall
from skep.client.message_data import MessageData
from skep.client.tracing import working_on
from skep.errors import Code, SkepError
from skep.model import SettleStatus
from skep.wire.messages import Ack, AckResult


class AsyncSettler(AsyncSender, Protocol):
    """The part of the client that a popped message uses."""

    async def said(self, call: ApiCall[Acked]) -> list[AckResult]:
        """The results of acks."""

    def transaction(self) -> AsyncTransaction:
        """Acks and pushes that happen together or not at all."""


class AsyncMessage(MessageData):
    """A message that `AsyncClient` popped. ``async with message:`` acks it at the end, and nacks it on an exception."""

    if TYPE_CHECKING:  # while it runs the type could not be looked up, and help() looks it up
        client: AsyncSettler = None  # type: ignore[assignment] # it is given when the message was read

    async def ack(self) -> AckResult:
        """Ack the message: it is done. STALE_LEASE is raised when the lease has ended."""
        return await self._settle(message_data.completed(self))

    async def nack(
        self, *, error: str | None = None, retry_at: datetime | None = None, delay: float | timedelta | None = None
    ) -> AckResult:
        """Nack the message: it comes again after the queue's backoff, at a time, or after a number of seconds (0 is at once)."""
        ack = message_data.failed(self, self.client.clock, error=error, retry_at=retry_at, delay=delay)
        return await self._settle(ack)

    async def reject(self, *, error: str | None = None) -> AckResult:
        """Reject the message: it becomes a dead letter at once."""
        return await self._settle(message_data.rejected(self, error=error))

    async def renew(self, lease_seconds: float | None = None) -> datetime:
        """Renew the lease for so many seconds from now (default: the queue's setting). Returns the new deadline."""
        extended = await self.client.run(calls.extend(self.lease_id, lease_seconds))
        self.lease_deadline = extended.lease_deadline or self.lease_deadline
        return self.lease_deadline

    async def trace(self, name: str, data: dict[str, Any] | None = None) -> None:
        """Add an event to the message's trace, to be found by its name."""
        await self.client.run(calls.tell(message_data.happened(self, name, data)))

    def transaction(self) -> AsyncTransaction:
        """A transaction that acks this message together with its pushes."""
        transaction = self.client.transaction()
        transaction.ack(self)
        return transaction

    async def _settle(self, ack: Ack) -> AckResult:
        with message_data.traced([(self, ack)]):
            [result] = await self.client.said(calls.ack(ack))
        if result.status is SettleStatus.REFUSED:  # the ack was queued, and came after the lease had ended
            raise SkepError(result.code or Code.STALE_LEASE, "the lease has ended, or the message was settled already")
        message_data.mark(self, ack, result.status)
        return result

    async def __aenter__(self) -> Self:
        self.work = working_on(self.client.settings.urls[0], self)
        self.work.__enter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.work.__exit__(kind, error, trace)
        if self.settled is not None:
            return
        if error is None:
            await self.ack()
            return
        try:
            await self.nack(error=error_text(error))
        except SkepError as unsaid:
            # Raise the error of the block, not the one of the nack: without the nack the message comes again, too.
            error.add_note(f"the message could not be nacked, and comes again when its lease runs out: {unsaid}")


read_messages = message_data.message_reader(AsyncMessage)
