"""The work of one subscription: it pops for a function, calls it, and settles. A message is settled once: by the worker when its
function ends, or by the function itself.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from concurrent.futures import Executor

from skep.client import calls
from skep.client.async_message import read_messages as read_async_messages
from skep.client.exchange import ApiCall
from skep.client.message import read_messages
from skep.client.message_data import MessageData, held
from skep.client.tracing import working_on
from skep.client.worker.failing import FailedMessage
from skep.client.worker.loop import Chain, ConsumerLoop
from skep.client.worker.source import Source
from skep.client.worker.subscription import Subscription
from skep.client.worker.verdict import verdict
from skep.wire.messages import AckStatus

_AGAIN = (AckStatus.FAILED, AckStatus.RETRY)


class Consumer:
    """Hands the messages of a source to the function of a subscription."""

    may_pop = whole = begin = None

    def __init__(self, subscription: Subscription, source: Source, pool: Executor, stopping: asyncio.Event) -> None:
        self._subscription = subscription
        self._clock = source.client.clock
        self._pool = pool
        self._stopping = stopping
        self.loop: ConsumerLoop[MessageData] = ConsumerLoop(
            self, subscription.queue, subscription.concurrency, self._clock, stopping
        )
        self.loop.rotation.add(source)

    async def pop(self, source: Source, free: int, wait_seconds: float) -> Sequence[MessageData]:
        """Pop messages for the function; it may settle them itself."""
        asked = calls.pop(source.queue, self._subscription.pop_options(free, wait_seconds)).request
        if self._subscription.is_async:
            return held(await source.pop(ApiCall(asked, read_async_messages)), source.client, source.leases)
        return held(await source.pop(ApiCall(asked, read_messages)), source.blocking(), source.leases)

    def chain_key(self, message: MessageData) -> object:
        """Messages of a lease are in order, unless each stands for itself."""
        return message.lease_id if self._subscription.ordered else (message.lease_id, message.seq)

    async def run(self, chain: Chain[MessageData], message: MessageData) -> bool:
        """Call the function. The next message does not wait for this one's settlement, unless it failed."""
        error: BaseException | None = None
        try:
            with working_on(chain.source.client.settings.urls[0], message):
                await self._subscription.call(message, self._pool)
        except asyncio.CancelledError as raised:
            if (task := asyncio.current_task()) is None or task.cancelling():
                raise
            error = raised  # the worker was not cancelled: something that the function waited for was
        except GeneratorExit:
            raise  # the loop is gone
        except BaseException as raised:
            error = raised  # also of `sys.exit()`: it ends the function, and no other message has to wait for its lease to run out
            if isinstance(raised, KeyboardInterrupt):
                self._stopping.set()
        failure = None if error is None else FailedMessage(message, error)
        if message.settled is None:
            ack = verdict(message, self._clock, error)
            message.settled = ack.status
            chain.told.append(chain.source.settle(message, ack, failure))
        elif failure is not None:
            failure.log_settled(message.settled)
        return message.settled in _AGAIN and message is not chain.messages[-1] and await _has_ended(chain)


async def _has_ended(chain: Chain[MessageData]) -> bool:
    """Whether a message that comes again ended its lease. In an ordered queue it did, in an unordered one it did not: ask."""
    await asyncio.gather(*chain.told)
    lease, keeping = chain.messages[0].lease_id, chain.source.keeping
    await keeping.renew([lease])
    return keeping.lost(lease)
