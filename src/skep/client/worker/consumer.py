"""One subscription at work: it pops what it can begin at once, works through each partition in order, and settles.

Messages of one lease are a chain: handled one after the other. Chains run side by side, at most `concurrency` of them. A message
is settled once: by the worker when its function ends, or by the function itself.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine, Iterable, Sequence
from concurrent.futures import Executor
from contextlib import suppress
from typing import Any

from skep.client import calls, message_data
from skep.client.async_client import AsyncClient
from skep.client.async_message import read_messages as read_async_messages
from skep.client.async_popping import popped
from skep.client.client import Client
from skep.client.exchange import ApiCall
from skep.client.message import read_messages
from skep.client.message_data import MessageData
from skep.client.tracing import processing
from skep.client.worker.failing import Failure
from skep.client.worker.keeping import Keeping
from skep.client.worker.settling import Settling
from skep.client.worker.subscription import Subscription
from skep.client.worker.verdict import verdict
from skep.errors import Code, SkepError
from skep.wire.messages import AckResult, AckStatus

WAIT_SECONDS = 2.0
"""How long one long poll lasts, and so how long a stop may have to wait for one. A poll is not cancelled: the
server may have answered it already, and would have leased messages to nobody."""
PAUSE_SECONDS = 1.0
"""How long to wait before asking again for a queue that is not there yet, or a server that is away."""

log = logging.getLogger("skep.worker")


class Consumer:
    """Pops for one subscription and hands out."""

    def __init__(
        self, subscription: Subscription, client: AsyncClient, blocking: Client, pool: Executor, stopping: asyncio.Event
    ) -> None:
        self._subscription = subscription
        self._client = client
        self._blocking = blocking
        self._pool = pool
        self._stopping = stopping
        self._settling = Settling(client)
        self._keeping = Keeping(client, subscription.lease_seconds)
        self._chains: set[asyncio.Task[None]] = set()
        self._popping_ended = asyncio.Event()
        self.handled = 0
        """Messages whose function has ended, well or not."""

    async def run(self) -> None:
        """Work until it is time to stop; then finish what was begun."""
        await self._kept(self._work(WAIT_SECONDS))

    async def until_empty(self) -> int:
        """Work until nothing is left to be had now; returns how many messages that was."""
        before = self.handled
        await self._kept(self._work(0))
        return self.handled - before

    async def _kept(self, work: Coroutine[Any, Any, None]) -> None:
        keeper = asyncio.create_task(self._keeping.run())
        try:
            await work
        finally:
            await asyncio.gather(*self._chains)
            keeper.cancel()
            await asyncio.gather(keeper, return_exceptions=True)

    async def _work(self, wait_seconds: float) -> None:
        self._popping_ended.clear()
        stopped = asyncio.create_task(self._stopping.wait())
        try:
            await self._pop_and_begin(wait_seconds, stopped)
        finally:
            self._popping_ended.set()
            stopped.cancel()

    async def _pop_and_begin(self, wait_seconds: float, stopped: asyncio.Task[Any]) -> None:
        while not self._stopping.is_set():
            free = self._subscription.concurrency - len(self._chains)
            if free <= 0:
                await asyncio.wait({stopped, *self._chains}, return_when=asyncio.FIRST_COMPLETED)
                continue
            popped = await self._popped(free, wait_seconds)
            for chain in self._grouped(popped):
                task = asyncio.create_task(self._work_through(chain))
                self._chains.add(task)
                task.add_done_callback(self._chains.discard)
            if not popped and not wait_seconds:
                if not self._chains:
                    return
                await asyncio.wait({stopped, *self._chains}, return_when=asyncio.FIRST_COMPLETED)

    async def _popped(self, free: int, wait_seconds: float) -> Sequence[MessageData]:
        """What the function gets: something it can settle by itself if it wants to."""
        queue = self._subscription.queue
        asked = calls.pop(queue, self._subscription.pop_options(free, wait_seconds)).request
        try:
            if self._subscription.is_async:
                found = await popped(self._client, queue, ApiCall(asked, read_async_messages))
                return message_data.held(found, self._client)
            return message_data.held(await popped(self._client, queue, ApiCall(asked, read_messages)), self._blocking)
        except SkepError as error:
            missing = error.code is Code.QUEUE_NOT_FOUND
            if not missing and not (error.retryable and wait_seconds):
                raise
            await self._pause(error, wait_seconds)
            return []

    async def _pause(self, error: SkepError, wait_seconds: float) -> None:
        if error.code is not Code.QUEUE_NOT_FOUND:
            log.warning("popping %s failed and is tried again: %s", self._subscription.queue, error)
        if wait_seconds:
            with suppress(TimeoutError):
                await asyncio.wait_for(self._stopping.wait(), PAUSE_SECONDS)

    def _grouped(self, messages: Sequence[MessageData]) -> Iterable[list[MessageData]]:
        chains: dict[object, list[MessageData]] = {}
        for one in messages:
            key = one.lease_id if self._subscription.ordered else (one.lease_id, one.seq)
            chains.setdefault(key, []).append(one)
        return chains.values()

    async def _work_through(self, chain: list[MessageData]) -> None:
        lease_id = chain[0].lease_id
        told: list[asyncio.Future[AckResult | None]] = []
        self._keeping.hold(lease_id)
        try:
            for position, message in enumerate(chain):
                if self._keeping.lost(lease_id):
                    log.warning("a lease was lost: %d messages of %s are not begun", len(chain) - position, message)
                    break
                # What came alone may be on its last attempt, and given back it would be a dead letter that nobody worked on.
                if self._stopping.is_set() and len(chain) > 1:
                    # Or the poll that is still under way would be handed what is given back.
                    await self._popping_ended.wait()
                    told += [self._give_back(rest) for rest in chain[position:]]
                    break
                await self._handle(message, told)
                if message.settled in (AckStatus.FAILED, AckStatus.RETRY) and message is not chain[-1]:
                    # In an ordered queue that ended the lease, in an unordered one it did not: ask.
                    await asyncio.gather(*told)
                    await self._keeping.renew([lease_id])
                    if self._keeping.lost(lease_id):
                        break
            await asyncio.gather(*told)
        finally:
            self._keeping.release(lease_id)

    async def _handle(self, message: MessageData, told: list[asyncio.Future[AckResult | None]]) -> None:
        error: BaseException | None = None
        try:
            with processing(message.queue, message.headers, message.id, message.attempt):
                await self._subscription.call(message, self._pool)
        except asyncio.CancelledError as raised:
            if (task := asyncio.current_task()) is None or task.cancelling():
                raise
            error = raised  # not the worker was cancelled, but something that the function waited for
        except GeneratorExit:
            raise  # the loop is gone
        except BaseException as raised:
            error = raised  # also of `sys.exit()`: it ends the function, and no other message has to wait for its lease to run out
            if isinstance(raised, KeyboardInterrupt):
                self._stopping.set()
        self.handled += 1
        failure = None if error is None else Failure(message, error)
        if message.settled is None:
            ack = verdict(message, self._client.clock, error)
            message.settled = ack.status
            told.append(self._settling.settle(message, ack, failure, message.left))
        elif failure is not None:
            failure.log_settled(message.settled)

    def _give_back(self, message: MessageData) -> asyncio.Future[AckResult | None]:
        ack = message_data.failed(message, self._client.clock, delay=0)
        return self._settling.settle(message, ack, left=message.left)
