"""Send acks in batches: while one request runs, the next acks gather, so that a busy worker needs few requests."""

from __future__ import annotations

import asyncio
import contextvars
import logging
from collections.abc import Sequence
from typing import NamedTuple

from skep.client.async_client import AsyncClient
from skep.client.lease_acks import Left, settled, shortened
from skep.client.message_data import MessageData, refused, word_of
from skep.client.tracing import settling_popped
from skep.client.worker.failing import FailedMessage
from skep.errors import SkepError
from skep.model import SettleStatus
from skep.wire.messages import Ack, AckResult, PoppedMessage

Settled = MessageData | PoppedMessage

MAX_ACKS = 1_000
"""Acks of one request."""

log = logging.getLogger("skep.worker")


class WaitingAck(NamedTuple):
    """An ack that waits to be sent."""

    ack: Ack
    message: Settled
    failure: FailedMessage | None
    told: asyncio.Future[AckResult | None]
    left: Left | None


class Settling:
    """Sends acks in the order they came in, one request at a time."""

    def __init__(self, client: AsyncClient) -> None:
        self._client = client
        self._waiting: list[WaitingAck] = []
        self._sending: asyncio.Task[None] | None = None

    def settle(
        self, message: Settled, ack: Ack, failure: FailedMessage | None = None, left: Left | None = None
    ) -> asyncio.Future[AckResult | None]:
        """Settle a message. The result is None when the server could not be reached: then the lease runs out instead.

        A ``failure`` is logged when the server has answered. With what is ``left`` of the lease, messages that are all of that are acked
        with the lease.
        """
        told: asyncio.Future[AckResult | None] = asyncio.get_running_loop().create_future()
        self._waiting.append(WaitingAck(ack, message, failure, told, left))
        if self._sending is None:
            # In a context of its own: acks of many messages are in the trace of none.
            self._sending = asyncio.create_task(self._send(), context=contextvars.Context())
        return told

    async def _send(self) -> None:
        try:
            while self._waiting:
                batch, self._waiting = self._waiting[:MAX_ACKS], self._waiting[MAX_ACKS:]
                try:
                    results = await self._results(batch)
                    _tell(batch, results)
                    for one, result in zip(batch, results, strict=True):
                        _log(one.ack, one.failure, result)
                except Exception as error:  # a log filter that fails, or half an answer: nobody waits for ever for that
                    context = {"message": "acks could not be told of", "exception": error}
                    asyncio.get_running_loop().call_exception_handler(context)
                    _tell(batch, [None] * len(batch))
        finally:
            self._sending = None

    async def _results(self, batch: list[WaitingAck]) -> list[AckResult] | list[None]:
        acks = [one.ack for one in batch]
        short = shortened(acks, {one.ack.lease_id: one.left for one in batch if one.left is not None})
        try:
            with settling_popped(self._client.settings.urls[0], word_of(acks), [one.message for one in batch]) as span:
                told = await self._client.settle(short.sent)
                results = await self._client.settle(short.meant) if short.is_open(told) else short.results(told)
                refused(span, results)
            return results
        except SkepError as error:
            log.warning("%d messages could not be settled and will come again: %s", len(acks), error)
            return [None] * len(acks)


def _tell(batch: list[WaitingAck], results: Sequence[AckResult | None]) -> None:
    for one, result in zip(batch, results, strict=True):
        if result is not None and one.left is not None:
            settled(one.left, one.message.seq, one.ack.status, result.status)
        if not one.told.done():
            one.told.set_result(result)


def _log(ack: Ack, failure: FailedMessage | None, result: AckResult | None) -> None:
    if result is not None and result.status is SettleStatus.REFUSED:
        log.warning("a message was not settled: seq %d is %s, said was %s", ack.seq, result.code, ack.status)
    if failure is not None:
        failure.log(result)
