"""The calls of a load client on a store in the same process, without a server between them; each is noted with its answer."""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeVar

from msgspec import structs

from skep.clock import SystemClock
from skep.errors import Code, SkepError
from skep.ids import IdMint
from skep.model import (
    WHOLE_LEASE,
    ClearScope,
    Delivery,
    NewMessage,
    Outcome,
    PopRequest,
    PopResult,
    PushBatch,
    QueueKey,
    QueueStats,
    Renewal,
    Seq,
    Start,
    Token,
)
from skep.model.queue import DEAD_LETTER_SUFFIX
from skep.model.transaction import Transaction
from skep.store.protocol import Store
from skep.wire.messages import AckStatus
from torture.history import Call
from torture.load_caller import OUTCOMES, Popped
from torture.queues import GROUPS, LEASE_SECONDS, RoundQueue
from torture.recorder import Recorder

T = TypeVar("T")

CHORE_ROWS = 1_000
NOTHING_HAPPENED = frozenset((Code.MESSAGE_NOT_FOUND, Code.MESSAGE_SETTLED))
"""Of deletions: there was nothing to delete."""
UNKNOWN = frozenset((Code.STORE_BUSY, Code.GROUP_NOT_FOUND))
"""The call may have taken effect: a seek looks at its group afterwards, which somebody may have deleted."""


class StoreCaller:
    """One client of a store. What a push or an ack claims for somebody who waits is what the next pop gets."""

    def __init__(self, store: Store, name: str, seed: str) -> None:
        self.clock = SystemClock()
        self.recorder = Recorder(store, name)
        self._mint = IdMint(self.clock)
        self._chance = random.Random(f"{seed}/store")
        self._claimed: dict[tuple[QueueKey, str], list[Delivery]] = {}

    @property
    def calls(self) -> list[Call]:
        return self.recorder.calls

    async def _ask(self, asked: Awaitable[T]) -> T | None:
        """The answer; None where there was none. A call that certainly did nothing is forgotten."""
        place = len(self.calls)
        try:
            return await asked
        except SkepError as error:
            if error.code in NOTHING_HAPPENED:
                del self.calls[place:]
            elif error.code not in UNKNOWN:
                raise
            return None

    def _request(self, queue: QueueKey, group: str, **options: Any) -> PopRequest:
        return PopRequest(queue, Token(bytes(self._mint.mint())), group, **options)

    def _request_of_who_waits(self, queue: QueueKey) -> PopRequest:
        batch = self._chance.choice((1, 10))
        return self._request(queue, self._chance.choice(GROUPS), batch=batch, lease_seconds=LEASE_SECONDS)

    def _keep(self, request: PopRequest, popped: PopResult | None) -> None:
        if popped is not None and popped.deliveries:
            self._claimed.setdefault((request.queue, request.group), []).extend(popped.deliveries)

    async def push(
        self, queue: QueueKey, messages: Sequence[NewMessage], *, repeats: bool = False, buffered: bool = False
    ) -> None:
        """One push, at times with a claim for somebody who waits; nothing here repeats calls, or buffers them."""
        del repeats, buffered
        batch = PushBatch(list(messages), self._mint.mint_many(len(messages)))
        if self._chance.random() < 0.5:
            await self._ask(self.recorder.push([batch], self.clock.now()))
            return
        request = self._request_of_who_waits(queue)
        answer = await self._ask(self.recorder.push_and_pop([batch], [request], self.clock.now()))
        if answer is not None:
            self._keep(request, answer[1][0])

    async def transact(
        self, acked: Sequence[Any], delivered: Sequence[Delivery], to: QueueKey, messages: Sequence[NewMessage]
    ) -> None:
        del acked, to
        batch = PushBatch(list(messages), self._mint.mint_many(len(messages)))
        transaction = Transaction([one.settlement() for one in delivered], batch)
        await self._ask(self.recorder.transact([transaction], self.clock.now()))

    async def pop(
        self, queue: QueueKey, group: str, *, keys: Callable[[str], QueueKey], **options: Any
    ) -> list[Popped]:
        del keys
        if not options.get("auto_ack") and (claimed := self._claimed.pop((queue, group), None)):
            return [(None, delivery) for delivery in claimed]
        names = {"batch", "partition", "lease_seconds", "auto_ack"}
        given = {name: value for name, value in options.items() if name in names}
        request = self._request(queue, group, max_partitions=options.get("partitions", 0), **given)
        answer = await self._ask(self.recorder.pop([request], self.clock.now()))
        return [] if answer is None else [(None, delivery) for delivery in answer[0].deliveries]

    async def settle(self, said: Sequence[tuple[Any, Delivery, AckStatus]], *, repeats: bool = True) -> None:
        del repeats
        settlements = [delivery.settlement(OUTCOMES[status]) for _, delivery, status in said]
        await self._ask(self.recorder.settle(settlements, self.clock.now()))

    async def ack(self, held: Sequence[Popped]) -> None:
        """Whole leases, or each message, at times with a claim for somebody who waits."""
        fate, deliveries = self._chance.random(), [delivery for _, delivery in held]
        if fate < 0.3:
            leases = {(one.queue, one.partition, one.token): one.settlement(Outcome.ACK_THROUGH) for one in deliveries}
            whole = [structs.replace(lease, seq=WHOLE_LEASE) for lease in leases.values()]
            await self._ask(self.recorder.settle(whole, self.clock.now()))
            return
        settlements = [one.settlement() for one in deliveries]
        if fate < 0.6:
            await self._ask(self.recorder.settle(settlements, self.clock.now()))
            return
        request = self._request_of_who_waits(deliveries[0].queue)
        answer = await self._ask(self.recorder.settle_and_pop(settlements, [request], self.clock.now()))
        if answer is not None:
            self._keep(request, answer[1][0])

    async def renew(self, message: Any, delivery: Delivery, lease_seconds: float) -> None:
        del message
        request = Renewal(
            queue=delivery.queue, partition=delivery.partition, token=delivery.token, lease_seconds=lease_seconds,
            group=delivery.group,
        )  # fmt: skip
        await self._ask(self.recorder.renew([request], self.clock.now()))

    async def release(self, message: Any, delivery: Delivery) -> None:
        del message
        await self._ask(self.recorder.release(delivery, self.clock.now()))

    async def seek(self, queue: QueueKey, group: str, start: Start) -> None:
        await self._ask(self.recorder.seek(queue, group, start, self.clock.now()))

    async def clear(self, queue: QueueKey, scope: ClearScope) -> None:
        await self._ask(self.recorder.clear(queue, scope, self.clock.now()))

    async def delete_group(self, queue: QueueKey, group: str) -> None:
        await self._ask(self.recorder.delete_group(queue, group, self.clock.now()))

    async def delete_message(self, queue: QueueKey, seq: int) -> None:
        await self._ask(self.recorder.delete_message(queue, Seq(seq), self.clock.now()))

    async def forget(self, queue: QueueKey, seq: int) -> None:
        await self._ask(self.recorder.forget(queue, Seq(seq), self.clock.now()))

    async def figures(self, queue: QueueKey) -> QueueStats | None:
        return await self._ask(self.recorder.stats(queue, self.clock.now()))

    async def look_at_dead_letters(self, queue: QueueKey) -> None:
        """Note the dead letters of a queue; the first one makes the queue that holds them."""
        try:
            await self.recorder.dead(queue, QueueKey(f"{queue.name}{DEAD_LETTER_SUFFIX}"), self.clock.now())
        except SkepError as error:
            if error.code is not Code.QUEUE_NOT_FOUND:
                raise
            self.calls[-1] = structs.replace(self.calls[-1], ended=self.recorder.tick(), answer=[])

    async def do_chores(self, queue: RoundQueue) -> None:
        """What an engine's timers do; no call of a client."""
        store = self.recorder.store
        for chore in (store.promote, store.expire, store.retain):
            try:
                await chore(queue.key, self.clock.now(), CHORE_ROWS)
            except SkepError as error:
                if error.code is not Code.STORE_BUSY:
                    raise
