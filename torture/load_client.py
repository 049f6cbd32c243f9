"""A client of the load: what it can do in a step, on a server or a store, and the messages that it keeps from one step to another."""

from __future__ import annotations

import random
from typing import Any, Generic, NamedTuple, TypeVar

from skep.model import ClearScope, Delivery, NewMessage, QueueKey, Start, StartMode
from skep.wire.messages import AckStatus
from torture.load_caller import LoadCaller
from torture.queues import GROUPS, LEASE_SECONDS, Queues, RoundQueue, payload_of

PARTITIONS = 6
MOST_AT_RISK = 50
"""How many messages of a batch a handler may fail with."""
MOST_HELD = 40
"""How many messages a client keeps for later before it forgets the oldest."""
C = TypeVar("C", bound=LoadCaller)


class Held(NamedTuple):
    """A message that was popped, as its caller knows it, and as the history does."""

    message: Any
    delivery: Delivery
    queue: RoundQueue


class LoadClient(Generic[C]):
    """One client of the load. It keeps some of the messages that it pops, to settle, renew or release them later or never."""

    def __init__(self, caller: C, queues: Queues, seed: str) -> None:
        self.caller = caller
        self.queues = queues
        self.seed = seed
        self.chance = random.Random(seed)
        self.held: list[Held] = []
        self.name = ""
        """Of the step, part of the payloads that it pushes."""

    def begin(self, name: str) -> None:
        """Begin a step: chance is its own, so that any part of a plan can be run again."""
        self.name = f"{self.seed}/{name}"
        self.chance = random.Random(self.name)
        del self.held[:-MOST_HELD]

    async def push_meanwhile(self, number: int, turn: int) -> None:
        """A push before a step, while the store is away: the server takes it for later."""
        self.begin(f"{number}.{turn}")
        await self._push(self.chance.randint(1, 10))

    # pushes

    def some_queue(self, *kinds: str) -> RoundQueue:
        return self.queues.of_kind[self.chance.choice(kinds or list(self.queues.of_kind))]

    def messages(self, key: QueueKey, count: int, *, plain: bool = False) -> list[NewMessage]:
        """New messages, each with a payload that no other has; some share a transaction id with others of all clients."""
        partition = f"p{self.chance.randrange(PARTITIONS)}"
        found = []
        for place in range(count):
            name = f"{self.name}/{place}"
            transaction_id: str | None = name
            if plain:
                transaction_id = None
            elif self.chance.random() < 0.1:
                transaction_id = f"{key.name}/shared{self.chance.randrange(20)}"
            one_by_one = partition if self.chance.random() < 0.7 else f"p{self.chance.randrange(PARTITIONS)}"
            found.append(NewMessage(key, payload_of(key, name, one_by_one), one_by_one, transaction_id))
        return found

    async def _push(self, count: int) -> None:
        """Without transaction ids, with them, and with repeats of the client in doubt."""
        queue, fate = self.some_queue(), self.chance.random()
        async with queue.calling() as key:
            await self.caller.push(key, self.messages(key, count, plain=fate < 0.3), repeats=fate > 0.5)

    async def push_one(self) -> None:
        await self._push(1)

    async def push_batch(self) -> None:
        await self._push(self.chance.randint(2, 40 * self.queues.bulk))

    async def push_scheduled(self) -> None:
        async with self.some_queue("keyed", "loose", "single", "swept").calling() as key:
            due = self.caller.clock.now() + self.chance.randint(0, 800_000)
            messages = [
                NewMessage(m.queue, m.payload, m.partition, m.transaction_id, deliver_at=due)  # type: ignore[arg-type] # an instant
                for m in self.messages(key, self.chance.randint(1, 5))
            ]
            await self.caller.push(key, messages, repeats=True)

    async def transact(self) -> None:
        source = self.some_queue("keyed", "loose", "single")
        async with source.calling(), self.some_queue("keyed", "loose", "single").calling() as target:
            popped = await self._pop(source, batch=self.chance.randint(1, 5))
            if popped:
                one = popped[0].delivery
                mine = [held for held in popped if held.delivery.token == one.token]
                messages = self.messages(target, self.chance.randint(1, 5))
                await self.caller.transact([h.message for h in mine], [h.delivery for h in mine], target, messages)

    # pops

    async def _pop(self, queue: RoundQueue, **options: Any) -> list[Held]:
        group = self.chance.choice(GROUPS)
        found = await self.caller.pop(queue.key, group, keys=self.queues.key_of, lease_seconds=LEASE_SECONDS, **options)
        return [Held(message, delivery, queue) for message, delivery in found]

    async def pop(self) -> None:
        queue = self.some_queue()
        async with queue.calling():
            options: dict[str, Any] = {"batch": self.queues.bulk * self.chance.choice((1, 5, 20, 50))}
            if self.chance.random() < 0.3:
                options["partitions"] = 1
            if self.chance.random() < 0.3:
                options["wait_seconds"] = self.chance.choice((0.05, 0.3))
            if self.chance.random() < 0.1:
                options["partition"] = f"p{self.chance.randrange(PARTITIONS)}"
            await self.treat(await self._pop(queue, **options))

    async def pop_auto_ack(self) -> None:
        async with self.some_queue("loose", "swept").calling() as key:
            await self.caller.pop(key, "auto", keys=self.queues.key_of, batch=20 * self.queues.bulk, auto_ack=True)

    async def treat(self, popped: list[Held]) -> None:
        """What a handler does: all well, some of it, a crash, or later. Of a large batch all but the last messages go well.

        What is delivered again comes alone, so a whole large batch that comes again would take a call for each message.
        """
        done, popped = popped[:-MOST_AT_RISK], popped[-MOST_AT_RISK:]
        if done:
            await self.caller.ack([(held.message, held.delivery) for held in done])
        if not popped:
            return
        fate = self.chance.random()
        if fate < 0.45:
            await self.caller.ack([(held.message, held.delivery) for held in popped])
        elif fate < 0.8:
            await self._settle(popped)
        elif fate < 0.9:
            self.held += popped

    async def _settle(self, some: list[Held]) -> None:
        """A part of them, each with an outcome of its own."""
        said = []
        for held in some:
            fate = self.chance.random()
            if fate < 0.1:
                continue
            status = AckStatus.COMPLETED
            if fate < 0.25:
                status = AckStatus.RETRY
            elif fate < 0.3:
                status = AckStatus.FAILED
            elif fate < 0.36:
                status = AckStatus.DLQ
            said.append((held.message, held.delivery, status))
        if said:
            await self.caller.settle(said, repeats=self.chance.random() < 0.5)

    # later

    async def settle_late(self) -> None:
        """What was kept: perhaps in time, perhaps with a stale token, perhaps for the second time."""
        some, self.held = self.held[:10], self.held[10:]
        for held in some[:1]:
            async with held.queue.calling():
                await self._settle([one for one in some if one.queue is held.queue])

    async def settle_twice(self) -> None:
        queue = self.some_queue("keyed", "loose")
        async with queue.calling():
            popped = await self._pop(queue, batch=3)
            for _ in range(2 if popped else 0):
                await self.caller.ack([(held.message, held.delivery) for held in popped])

    async def renew(self) -> None:
        queue = self.some_queue()
        async with queue.calling():
            popped = await self._pop(queue, batch=5)
            for held in popped[:1]:
                await self.caller.renew(held.message, held.delivery, 2 * LEASE_SECONDS)
            self.held += popped

    async def release(self) -> None:
        queue = self.some_queue()
        async with queue.calling():
            popped = await self._pop(queue, batch=5)
            for held in popped[:1]:
                await self.caller.release(held.message, held.delivery)
            self.held += popped

    # by hand

    async def seek(self) -> None:
        async with self.some_queue("moved", "strewn").calling() as key:
            mode = self.chance.choice(list(StartMode))
            value = {StartMode.SEQ: self.chance.randint(1, 100), StartMode.TIME: self.caller.clock.now() - 1_000_000}
            await self.caller.seek(key, self.chance.choice(GROUPS), Start(mode, value.get(mode, 0)))

    async def clear(self) -> None:
        async with self.some_queue("moved", "strewn").calling() as key:
            await self.caller.clear(key, self.chance.choice(list(ClearScope)))

    async def delete_group(self) -> None:
        async with self.some_queue("moved", "strewn").calling() as key:
            await self.caller.delete_group(key, self.chance.choice(GROUPS))

    async def delete_message(self) -> None:
        async with self.some_queue("moved", "strewn").calling() as key:
            await self.caller.delete_message(key, self.chance.randint(1, 60))

    async def forget(self) -> None:
        """Erase a message that was popped: while its lease lives, or when it is settled or among the dead letters."""
        queue = self.some_queue("moved", "strewn")
        async with queue.calling() as key:
            popped = await self._pop(queue, batch=3)
            if self.chance.random() < 0.6:
                await self._settle(popped)
            else:
                self.held += popped
            for held in popped[:1]:
                await self.caller.forget(key, held.delivery.seq)
