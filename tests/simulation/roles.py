"""What the clients of a run do: pushing, popping, and looking after queues."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import suppress
from itertools import count
from typing import TypeVar

from msgspec import structs

from skep.clock import Instant, seconds
from skep.engine import Engine
from skep.errors import SkepError
from skep.model import (
    FROM_BEGINNING,
    FROM_NOW,
    WHOLE_LEASE,
    ClearScope,
    DeadLetterFilter,
    Delivery,
    NewMessage,
    Outcome,
    PopRequest,
    QueueChanges,
    QueueKey,
    Retry,
    Settlement,
    Start,
    StartMode,
)
from tests.simulation.clients import Client
from tests.simulation.expiry import may_remove
from tests.simulation.network import NoAnswerError
from tests.simulation.plan import GROUPS, NAMESPACE, Ability, Plan

T = TypeVar("T")

TRIES = 3
"""How often a client tries again without an answer."""


OVER_SECONDS = 15.0
"""So long after it was sent, nothing becomes of a call any more."""


class Worker(Client):
    """A client that follows a plan."""

    plan: Plan

    def can(self, ability: Ability, share: float) -> bool:
        """Whether it does that now: in this share of the cases, if the run has it at all."""
        return ability in self.plan.abilities and self.random.random() < share

    def message(
        self, queue: QueueKey, text: str, transaction_id: str | None = None, partition: str | None = None
    ) -> NewMessage:
        """A message for any partition, perhaps for later."""
        later = self.can(Ability.SCHEDULE, 0.2)
        return NewMessage(
            queue,
            f'"{text}"'.encode(),
            partition or self.random.choice(self.plan.partitions[queue]),
            transaction_id=transaction_id,
            deliver_at=Instant(self.time() + seconds(self.random.random() * 3)) if later else None,
        )


class Pusher(Worker):
    """Pushes batches, and pushes again what got no answer, if that is safe."""

    async def work(self) -> None:
        """Push a few times."""
        for number in range(self.random.randrange(2, 8)):
            await self.world.loop.passed(self.random.random() * 0.6)
            queue = self.random.choice(list(self.plan.queues))
            repeats = self.can(Ability.REPEAT, 0.5)
            # Both pushers use the same ids.
            name = f"shared/{number}" if repeats and self.random.random() < 0.3 else f"{self.name}/{number}"
            partition = self.random.choice(self.plan.partitions[queue]) if self.plan.spools else None
            messages = [
                self.message(queue, f"{self.name}/{number}/{place}", f"{name}/{place}" if repeats else None, partition)
                for place in range(self.random.choice((1, 1, 2, 3)))
            ]
            buffered = not repeats and self.can(Ability.BUFFER, 0.3)
            for _ in range(TRIES):
                if await self.push(messages, buffered=buffered) is not None or not repeats:
                    break


class Popper(Worker):
    """Pops for one group, and settles; or fails, forgets, or comes too late."""

    group: str

    async def work(self) -> None:
        """Pop and settle a few times."""
        late: list[Delivery] = []
        self._numbers = count()
        self._said: list[Settlement] = []
        """What it settles with its next pop."""
        for _ in range(self.random.randrange(4, 12)):
            deliveries = await self.pop_some()
            if not deliveries:
                await self.world.loop.passed(self.random.random() * 0.4)
            elif self.can(Ability.FORGET, 0.25):
                late += deliveries
            else:
                await self.treat(deliveries)
            if late and self.random.random() < 0.3:
                await self.settle_surely([late.pop(self.random.randrange(len(late))).settlement()])
        await self.settle_surely(self._said)

    async def pop_some(self) -> list[Delivery] | None:
        """Pop in one of the ways there are; returns what is left to settle."""
        queue = self.random.choice(list(self.plan.queues))
        wait_seconds = self.random.choice((0.5, 1.0, 3.0)) if self.can(Ability.LONG_POLL, 0.6) else 0.0
        request = PopRequest(
            queue,
            group=self.group,
            batch=self.random.choice((1, 2, 5)),
            lease_seconds=self.random.choice((None, 0.5, 1.0)),
            auto_ack=self.can(Ability.AUTO_ACK, 0.3),
        )
        namespace = None
        if self.can(Ability.NAMESPACE, 0.2):
            request, namespace = structs.replace(request, queue=QueueKey("")), NAMESPACE
        elif self.can(Ability.PARTITION, 0.3):
            request = structs.replace(request, partition=self.random.choice(self.plan.partitions[queue]))
        if self._said and namespace is None:
            deliveries = await self.go_on(request, wait_seconds)
        else:
            deliveries = await self.pop(request, wait_seconds, namespace)
        return [] if request.auto_ack else deliveries

    async def go_on(self, request: PopRequest, wait_seconds: float) -> list[Delivery] | None:
        """Pop, and settle in the same call what was kept for it; without an answer it is settled again."""
        said, self._said = self._said, []
        answer = await self.settle_and_pop(said, request, wait_seconds)
        if answer is None:
            await self.settle_surely(said)
            return None
        return answer[1]

    async def treat(self, deliveries: list[Delivery]) -> None:
        """Do something with messages, for a while, and finish them."""
        await self.world.loop.passed(self.random.random() * 0.4)
        if self.can(Ability.RENEW, 0.3):
            await self.renew(self.random.choice(deliveries), self.random.choice((0.5, 2.0)))
            await self.world.loop.passed(self.random.random())
        if self.can(Ability.RELEASE, 0.15):
            await self.release(deliveries[0])
        elif self.can(Ability.TRANSACT, 0.3):
            await self.pass_on(deliveries)
        elif self.can(Ability.WHOLE, 0.4):
            leases = {(d.queue, d.partition): d.settlement(Outcome.ACK_THROUGH) for d in deliveries}
            await self.finish([structs.replace(lease, seq=WHOLE_LEASE) for lease in leases.values()])
        else:
            await self.finish([self.settlement(delivery) for delivery in deliveries])

    async def finish(self, settlements: list[Settlement]) -> None:
        """Settle now, or with the next pop."""
        if self.can(Ability.TOGETHER, 0.7):
            self._said += settlements
        else:
            await self.settle_surely(settlements)

    def settlement(self, delivery: Delivery) -> Settlement:
        """Mostly an ack."""
        if self.can(Ability.FAIL, 0.15):
            return delivery.settlement(Outcome.NACK, retry=self.random.choice((Retry.NOW, Retry.BACKOFF)))
        if self.can(Ability.FAIL, 0.1):
            return delivery.settlement(Outcome.REJECT)
        return delivery.settlement()

    async def settle_surely(self, settlements: list[Settlement]) -> None:
        """Settle, and again when there was no answer."""
        for _ in range(TRIES if settlements else 0):
            if await self.settle(settlements) is not None:
                return

    async def pass_on(self, deliveries: list[Delivery]) -> None:
        """Turn messages into one other, in a transaction."""
        queue = self.random.choice(list(self.plan.queues))
        name = f"{self.name}/{next(self._numbers)}"
        message = structs.replace(self.message(queue, name), deliver_at=None)
        for _ in range(TRIES):
            if await self.transact([delivery.settlement() for delivery in deliveries], [message]) is not None:
                return


class Operator(Worker):
    """Moves groups, pauses queues, changes settings, replays dead letters, and looks around."""

    async def work(self) -> None:
        """A few deeds, if the run has any."""
        for _ in range(3):
            await self.world.loop.passed(self.random.random() * 2)
            queue = self.random.choice(list(self.plan.queues))
            # Retention takes what a group was moved past, so that no later seek brings it back.
            if self.can(Ability.SEEK, 0.5) and not may_remove(self.plan.queues[queue]):
                start = self.random.choice(
                    (FROM_BEGINNING, FROM_NOW, Start(StartMode.SEQ, self.random.randrange(1, 9)))
                )
                await self.seek(queue, self.random.choice(GROUPS), start)
            if self.can(Ability.CLEAR, 0.3):
                await self.clear(queue, self.random.choice((ClearScope.PENDING, ClearScope.ALL)))
            if self.can(Ability.CHANGE, 0.5):
                await self.change(queue, QueueChanges(lease_seconds=self.random.choice((0.5, 1.0, 2.0))))
            if self.can(Ability.PAUSE, 0.5):
                await self.change(queue, QueueChanges(paused=True))
                await self.world.loop.passed(self.random.random())
                await self.change(queue, QueueChanges(paused=False))
            if self.can(Ability.REPLAY, 0.7):
                await self.replay(queue)
            if self.plan.encrypts and self.can(Ability.ENCRYPT, 0.7):
                await self.encrypt(queue)
            if self.can(Ability.REMAKE, 0.4):
                await self.remake(queue)
            if self.can(Ability.LOOK, 0.5):
                with suppress(NoAnswerError, SkepError):
                    await self.look(queue)

    async def remake(self, queue: QueueKey) -> None:
        """Delete a queue, and make it again. Whatever was asked before is over then."""
        lives = self.world.lives
        async with lives.alone():
            if not all(client.is_certain for client in self.world.clients):
                await self.world.loop.passed(OVER_SECONDS)
            started, now = self.tick(), self.now()
            await self.certainly(lambda e: e.delete_queue(queue))
            self.note("delete_queue", started, now, (queue,), True)
            lives.begin(queue)
            await self.make(queue, self.plan.queues[queue], self.certainly)

    async def certainly(self, work: Callable[[Engine], Awaitable[T]]) -> T:
        """Ask until there is an answer, and never while an earlier try may still be under way."""
        while True:
            try:
                return await self.ask_now(work)
            except NoAnswerError:
                await self.world.loop.passed(OVER_SECONDS)
            except SkepError as error:
                if not error.retryable:
                    raise
                await self.world.loop.passed(OVER_SECONDS)

    async def encrypt(self, queue: QueueKey) -> None:
        """Let a queue be encrypted, if it is not yet, and give it a new key."""
        await self.change(queue, QueueChanges(encryption_enabled=True))
        with suppress(NoAnswerError, SkepError):
            await self.ask(lambda e: e.encryption.rotate(queue))

    async def change(self, queue: QueueKey, changes: QueueChanges) -> None:
        """Change settings; nobody notes it, since no rule depends on it."""
        with suppress(NoAnswerError, SkepError):
            await self.ask(lambda e: e.update_queue(queue, changes))

    async def replay(self, queue: QueueKey) -> None:
        """Replay the dead letters that there are now."""
        wanted = DeadLetterFilter(queue=QueueKey(f"{queue.name}.dead"))
        started, now, minted = self.tick(), self.now(), list[list[bytes]]()
        groups: dict[int, str] = {}
        answer = None
        with suppress(NoAnswerError, SkepError):
            letters = await self.ask(lambda e: e.dead_letters.page(wanted, limit=1000))
            groups = {letter.seq: letter.group for letter in letters}
            meant = structs.replace(wanted, seqs=[letter.seq for letter in letters])
            if letters:
                answer = (await self.ask(lambda e: e.dead_letters.replay(meant), minted)).replayed
        if answer is None:
            self.note_unknown("replay", started, now, minted, lambda ids: (ids, groups))
        else:
            self.note("replay", started, now, ([id_ for batch in minted for id_ in batch], groups), answer)
