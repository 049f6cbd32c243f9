"""Clients of the simulated servers: they push, pop and settle, lose answers, try again, and forget. What they see goes into a history."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from random import Random
from typing import Any, TypeVar

from skep.clock import Instant
from skep.engine import Engine
from skep.errors import Code, SkepError
from skep.model import (
    Delivery,
    NewMessage,
    Outcome,
    PopRequest,
    PopResult,
    PushBatch,
    PushOutcome,
    PushResult,
    PushStatus,
    QueueKey,
    Retry,
    Settlement,
    SettleResult,
)
from tests.simulation.network import ClientCall, NoAnswerError
from tests.simulation.world import EPOCH_NS, MINTED, World
from torture.history import Call

T = TypeVar("T")

OPEN = (Code.STORE_UNAVAILABLE, Code.INTERNAL)
"""After these errors nobody knows whether the call took effect."""


def _kept(_: object) -> None:
    """What was done stays done."""


class Client:
    """One program that uses the servers, one call at a time."""

    def __init__(self, world: World, name: str, random: Random) -> None:
        self.world = world
        self.name = name
        self.random = random
        self.process = world.loop.process(name)
        self.calls: list[Call] = []
        self.patience_seconds = 2.0

    def start(self, work: Awaitable[None]) -> asyncio.Task[None]:
        """Let it work."""
        return self.world.loop.create_task(_awaited(work), context=self.process.context())

    def now(self) -> Instant:
        """The time that the servers' clocks show, too."""
        return Instant((EPOCH_NS + self.world.loop.nanoseconds()) // 1_000)

    def tick(self) -> int:
        """A number for the history that rises with every callback of anybody."""
        return self.world.loop.steps

    async def ask(
        self,
        work: Callable[[Engine], Awaitable[T]],
        minted: list[Any] | None = None,
        undo: Callable[[Engine, T], None] | None = None,
        wait_seconds: float = 0.0,
    ) -> T:
        """Ask any server; NoAnswerError when none answers."""
        machine = self.random.choice(self.world.servers)
        engine = machine.engine
        if engine is None:
            await asyncio.sleep(self.random.random())
            raise NoAnswerError
        context = machine.process.context()
        context.run(MINTED.set, minted if minted is not None else [])
        call = ClientCall(
            self.world.network,
            self.process,
            machine.process,
            lambda: work(engine),
            (lambda answer: undo(engine, answer)) if undo is not None else _kept,
            context,
        )
        return await call.answer(self.patience_seconds + wait_seconds)

    async def push(self, messages: list[NewMessage]) -> PushOutcome | None:
        """Push a batch; None when the outcome is unknown."""
        started, now, minted = self.tick(), self.now(), list[Any]()
        outcome: PushOutcome | None = None
        try:
            outcome = await self.ask(lambda engine: engine.push(messages), minted)
        except NoAnswerError:
            pass
        except SkepError as error:
            if error.code not in OPEN and minted:
                outcome = PushOutcome([PushResult(PushStatus.REFUSED, id_, code=error.code) for id_ in minted[0]], {})
        if minted:
            answer = None if outcome is None else [outcome]
            self._note("push", started, now, [PushBatch(messages, minted[0])], answer)
        return outcome

    async def pop(self, request: PopRequest, wait_seconds: float = 0.0) -> list[Delivery]:
        """Pop; nothing when no answer came."""
        started, now = self.tick(), self.now()
        result: PopResult | None = None
        with suppress(NoAnswerError, SkepError):
            result = await self.ask(
                lambda engine: engine.pop(request, wait_seconds=wait_seconds),
                undo=lambda engine, answer: engine.give_back(answer.deliveries),
                wait_seconds=wait_seconds,
            )
        if result is not None and result.deliveries:
            now = self.now()  # the messages may have been leased as late as this
        self._note("pop", started, now, [request], None if result is None else [result])
        return [] if result is None else result.deliveries

    async def settle(self, settlements: list[Settlement]) -> list[SettleResult] | None:
        """Settle messages; None when the outcome is unknown."""
        started, now = self.tick(), self.now()
        results: list[SettleResult] | None = None
        with suppress(NoAnswerError, SkepError):
            results = await self.ask(lambda engine: engine.settle(settlements))
        self._note("settle", started, now, settlements, results)
        return results

    def _note(self, verb: str, started: int, now: Instant, request: Any, answer: Any) -> None:
        ended = None if answer is None else self.tick()
        self.calls.append(Call(self.name, verb, started, ended, now, request, answer))


async def _awaited(work: Awaitable[None]) -> None:
    await work


class Pusher(Client):
    """Pushes batches, and pushes again what got no answer."""

    async def work(self, queues: list[QueueKey], pushes: int, partitions: int) -> None:
        for number in range(pushes):
            await asyncio.sleep(self.random.random() * 0.5)
            queue = self.random.choice(queues)
            messages = [
                NewMessage(
                    queue,
                    f'"{self.name}/{number}/{place}"'.encode(),
                    f"p{self.random.randrange(partitions)}",
                    transaction_id=f"{self.name}/{number}/{place}" if number % 2 else None,
                )
                for place in range(self.random.randrange(1, 4))
            ]
            for _ in range(4):
                if await self.push(messages) is not None or not number % 2:
                    break


class Popper(Client):
    """Pops for one group and settles, or forgets, or comes too late."""

    async def work(self, queues: list[QueueKey], group: str, pops: int) -> None:
        late: list[Delivery] = []
        for _ in range(pops):
            request = PopRequest(
                self.random.choice(queues),
                group=group,
                batch=self.random.choice((1, 2, 5)),
                lease_seconds=self.random.choice((0.5, 2.0)),
            )
            deliveries = await self.pop(request, self.random.choice((0.0, 0.0, 1.0, 3.0)))
            if not deliveries:
                await asyncio.sleep(self.random.random() * 0.3)
                continue
            fate = self.random.random()
            if fate < 0.15:
                late += deliveries
            else:
                if fate < 0.3:
                    await asyncio.sleep(self.random.random() * 2)
                await self.settle_all(deliveries)
            if late and self.random.random() < 0.3:
                await self.settle_all([late.pop()])

    async def settle_all(self, deliveries: list[Delivery]) -> None:
        """Settle, and again when there was no answer."""
        settlements = [self.settlement(delivery) for delivery in deliveries]
        for _ in range(3):
            if await self.settle(settlements) is not None:
                return

    def settlement(self, delivery: Delivery) -> Settlement:
        """Mostly an ack."""
        fate = self.random.random()
        if fate < 0.1:
            return delivery.settlement(Outcome.NACK, retry=Retry.NOW)
        if fate < 0.15:
            return delivery.settlement(Outcome.REJECT)
        return delivery.settlement()
