"""A client of the simulated servers. Every call goes over the network, and what the client sees of it goes into the history."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from random import Random
from typing import Any, TypeVar

from msgspec import structs

from skep.clock import Instant, seconds
from skep.engine import Engine
from skep.errors import Code, SkepError
from skep.ids import Id
from skep.model import (
    ClearScope,
    Delivery,
    MessageFilter,
    NewMessage,
    PopRequest,
    PopResult,
    PushBatch,
    PushOutcome,
    PushResult,
    PushStatus,
    QueueKey,
    QueueSettings,
    QueueStats,
    Renewal,
    RenewResult,
    Settlement,
    SettleResult,
    SettleStatus,
    Start,
)
from skep.model.transaction import Transaction, TransactionOutcome
from tests.simulation.expiry import may_remove
from tests.simulation.lives import renamed
from tests.simulation.network import ClientCall, NoAnswerError
from tests.simulation.plan import GROUPS
from tests.simulation.world import EPOCH_NS, MINTED, World
from torture.history import Call, Violation

T = TypeVar("T")

OPEN = (Code.STORE_UNAVAILABLE, Code.INTERNAL)
"""After these errors nobody knows whether the call took effect."""
PATIENCE_SECONDS = 2.0


Asking = Callable[[Callable[[Engine], Awaitable[Any]]], Awaitable[Any]]


def _kept(_: object) -> None:
    """What was done stays done."""


class Client:
    """One program that uses the servers."""

    def __init__(self, world: World, name: str, random: Random) -> None:
        self.world = world
        self.name = name
        self.random = random
        self.process = world.loop.process(name)
        world.clients.append(self)
        self.found: list[Violation] = []
        """What only the client sees."""
        self._calls: list[Call] = []
        self._unknown: list[tuple[Call, list[Any], Callable[[list[Id]], Any]]] = []
        self.unanswered: list[str] = []
        self._most_off = seconds(world.plan.most_off_seconds)

    def start(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Let it work, in its own process."""
        return self.world.loop.create_task(work, context=self.process.context())

    def time(self) -> Instant:
        """The right time."""
        return Instant((EPOCH_NS + self.world.loop.nanoseconds()) // 1_000)

    def now(self) -> Instant:
        """The earliest time that a server's clock may show."""
        return Instant(self.time() - self._most_off)

    def latest_now(self) -> Instant:
        """The latest time that a server's clock may show."""
        return Instant(self.time() + self._most_off)

    def tick(self) -> int:
        """A number for the history that rises with every callback of anybody."""
        return self.world.loop.steps

    async def ask(
        self,
        work: Callable[[Engine], Awaitable[T]],
        minted: list[Any] | None = None,
        undo: Callable[[Engine, T], None] | None = None,
        wait_seconds: float = 0.0,
        place: tuple[QueueKey, str] | None = None,
    ) -> T:
        """Ask any server; NoAnswerError when none answers. ``minted`` gets the ids that the server mints for the call.

        What is pushed to a ``place`` goes to one server if servers spool: no server knows what another has in its spool.
        """
        async with self.world.lives.calling():
            return await self.ask_now(work, minted, undo, wait_seconds, place)

    async def ask_now(
        self,
        work: Callable[[Engine], Awaitable[T]],
        minted: list[Any] | None = None,
        undo: Callable[[Engine, T], None] | None = None,
        wait_seconds: float = 0.0,
        place: tuple[QueueKey, str] | None = None,
    ) -> T:
        """Ask, also while others must not."""
        machine = self.random.choice(self.world.servers)
        if place is not None and self.world.plan.spools:
            partitions = self.world.plan.partitions[place[0]]
            machine = self.world.servers[partitions.index(place[1]) % len(self.world.servers)]
        engine = machine.engine
        if engine is None:
            await self.world.loop.passed(self.random.random())
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
        try:
            return await call.answer(PATIENCE_SECONDS + wait_seconds)
        except NoAnswerError:
            self.unanswered.append(f"{machine.process.name} did not answer {self.name} at {self.world.loop.time():.3f}")
            raise

    def note(self, verb: str, started: int, now: Instant, request: Any, answer: Any) -> None:
        """Put a call into the history; without an answer when this is None."""
        ended = None if answer is None else self.tick()
        names = self.world.lives.names
        request, answer = renamed(request, names), renamed(answer, names)
        self._calls.append(Call(self.name, verb, started, ended, now, request, answer, self.latest_now()))

    def note_unknown(
        self, verb: str, started: int, now: Instant, minted: list[Any], request: Callable[[list[Id]], Any]
    ) -> None:
        """Note a call that mints ids, without an answer. Its server may be slow, and mint its ids only later; if it never does, nothing was done."""
        names = self.world.lives.names
        self._unknown.append((
            Call(self.name, verb, started, None, now, None), minted, lambda ids: renamed(request(ids), names)
        ))  # fmt: skip

    @property
    def is_certain(self) -> bool:
        """Whether the outcome of every call is known."""
        return not self.unanswered and not self._unknown

    @property
    def calls(self) -> list[Call]:
        """The history of this client."""
        late = [structs.replace(call, request=request(minted[0])) for call, minted, request in self._unknown if minted]
        return self._calls + late

    # calls

    async def push(self, messages: list[NewMessage], *, buffered: bool = False) -> PushOutcome | None:
        """Push a batch; None when the outcome is unknown. What is only buffered is never sure."""
        started, now, minted = self.tick(), self.now(), list[Any]()
        outcome: PushOutcome | None = None
        try:
            outcome = await self.ask(
                lambda e: e.push_buffered(messages) if buffered else e.push(messages),
                minted,
                place=place_of(messages[0]),
            )
        except NoAnswerError:
            pass
        except SkepError as error:
            if error.code not in OPEN and minted:
                outcome = PushOutcome([PushResult(PushStatus.REFUSED, id_, code=error.code) for id_ in minted[0]], {})
        if outcome is not None and any(result.code is Code.NOT_ENCRYPTED for result in outcome.results):
            self.found.append(Violation("encryption", "a server did not encrypt a push, which was refused"))
        statuses = set() if outcome is None else {result.status for result in outcome.results}
        plain = all(message.transaction_id is None and message.deliver_at is None for message in messages)
        if plain and not buffered and statuses in ({PushStatus.QUEUED}, {PushStatus.BUFFERED}):
            self.note("accept", started, now, [PushBatch(messages, minted[0])], True)
        elif outcome is None or statuses & {PushStatus.BUFFERED, PushStatus.QUEUED}:
            self.note_unknown("push", started, now, minted, lambda ids: [PushBatch(messages, ids)])
        else:
            self.note("push", started, now, [PushBatch(messages, minted[0])], [outcome])
        return outcome

    async def pop(
        self, request: PopRequest, wait_seconds: float = 0.0, namespace: str | None = None
    ) -> list[Delivery] | None:
        """Pop; None when no answer came."""
        started, now = self.tick(), self.now()
        result: PopResult | None = None
        with suppress(NoAnswerError, SkepError):
            result = await self.ask(
                lambda e: (
                    e.pop(request, wait_seconds=wait_seconds)
                    if namespace is None
                    else e.pop_matching(request, namespace=namespace, wait_seconds=wait_seconds)
                ),
                undo=lambda e, answer: (e.lost if request.auto_ack else e.give_back)(answer.deliveries),
                wait_seconds=wait_seconds,
            )
        self.note("pop", started, now, [request], None if result is None else [result])
        return None if result is None else result.deliveries

    async def settle(self, settlements: list[Settlement]) -> list[SettleResult] | None:
        """Settle messages; None when the outcome is unknown."""
        started, now = self.tick(), self.now()
        results: list[SettleResult] | None = None
        with suppress(NoAnswerError, SkepError):
            results = await self.ask(lambda e: e.settle(settlements))
        self._note_settled(started, now, settlements, results)
        return results

    async def settle_and_pop(
        self, settlements: list[Settlement], request: PopRequest, wait_seconds: float = 0.0
    ) -> tuple[list[SettleResult], list[Delivery]] | None:
        """Settle and pop in one call, noted as the two that it stands for; None when no answer came."""
        started, now = self.tick(), self.now()
        answer: tuple[list[SettleResult], PopResult] | None = None
        with suppress(NoAnswerError, SkepError):
            answer = await self.ask(
                lambda e: e.settle_and_pop(settlements, request, wait_seconds=wait_seconds),
                undo=lambda e, found: (e.lost if request.auto_ack else e.give_back)(found[1].deliveries),
                wait_seconds=wait_seconds,
            )
        self._note_settled(started, now, settlements, None if answer is None else answer[0])
        self.note("pop", started, now, [request], None if answer is None else [answer[1]])
        return None if answer is None else (answer[0], answer[1].deliveries)

    def _note_settled(
        self, started: int, now: Instant, settlements: list[Settlement], results: list[SettleResult] | None
    ) -> None:
        queued = results is not None and any(result.status is SettleStatus.QUEUED for result in results)
        self.note("settle", started, now, settlements, None if queued else results)

    async def transact(self, settlements: list[Settlement], messages: list[NewMessage]) -> TransactionOutcome | None:
        """Settle and push together; None when the outcome is unknown."""
        started, now, minted = self.tick(), self.now(), list[Any]()
        outcome: TransactionOutcome | None = None
        try:
            outcome = await self.ask(lambda e: e.transact(settlements, messages), minted, place=place_of(messages[0]))
        except NoAnswerError:
            pass
        except SkepError as error:
            if error.code not in OPEN:
                outcome = TransactionOutcome(False, [], PushOutcome([], {}))
        if outcome is None:
            self.note_unknown(
                "transact", started, now, minted, lambda ids: [Transaction(settlements, PushBatch(messages, ids))]
            )
        elif minted and not outcome.repeated:
            # A repeat did nothing itself: its answer is that of the first try, which had other ids.
            self.note("transact", started, now, [Transaction(settlements, PushBatch(messages, minted[0]))], [outcome])
        return outcome

    async def renew(self, delivery: Delivery, lease_seconds: float) -> None:
        """Keep a lease for longer."""
        started, now = self.tick(), self.now()
        renewal = Renewal(
            queue=delivery.queue,
            partition=delivery.partition,
            token=delivery.token,
            lease_seconds=lease_seconds,
            group=delivery.group,
        )
        results: list[RenewResult] | None = None
        with suppress(NoAnswerError, SkepError):
            results = await self.ask(lambda e: e.renew([renewal]))
        self.note("renew", started, now, [renewal], results)

    async def release(self, delivery: Delivery) -> None:
        """Give a lease back."""
        started, now, done = self.tick(), self.now(), None
        request = (delivery.queue, delivery.group, delivery.partition, delivery.token)
        with suppress(NoAnswerError, SkepError):
            done = await self.ask(lambda e: e.groups.release_lease(*request))
        self.note("release", started, now, request, done)

    async def seek(self, queue: QueueKey, group: str, start: Start) -> None:
        """Move a group."""
        started, now, done = self.tick(), self.now(), None
        with suppress(NoAnswerError, SkepError):
            await self.ask(lambda e: e.groups.seek(queue, group, start))
            done = True
        self.note("seek", started, now, (queue, group, start), done)

    async def look(self, queue: QueueKey, ask: Asking | None = None) -> QueueStats:
        """Note the figures and the log of a queue."""
        ask = self.ask if ask is None else ask
        started, now = self.tick(), self.now()
        stats: QueueStats = await ask(lambda engine: engine.browse.queue_stats(queue))
        self.note("stats", started, now, queue, stats)
        started, now = self.tick(), self.now()
        page = await ask(lambda engine: engine.browse.messages(MessageFilter(queue=queue, limit=1000)))
        self.note("log", started, now, queue, list(page.messages))
        return stats

    async def make(self, queue: QueueKey, settings: QueueSettings, ask: Asking) -> None:
        """Make a queue, and its groups where they must be there before the first push."""
        await ask(functools.partial(_made, queue, settings))
        if may_remove(settings):
            # A group that comes late does not see what retention took.
            for group in GROUPS:
                await ask(functools.partial(_looked, queue, group))

    async def clear(self, queue: QueueKey, scope: ClearScope) -> None:
        """Remove messages of all groups."""
        started, now, done = self.tick(), self.now(), None
        with suppress(NoAnswerError, SkepError):
            done = await self.ask(lambda e: e.clear(queue, scope))
        self.note("clear", started, now, (queue, scope), done)


def place_of(message: NewMessage) -> tuple[QueueKey, str]:
    """Queue and partition of a message."""
    return message.queue, message.partition


async def _made(queue: QueueKey, settings: QueueSettings, engine: Engine) -> None:
    """Make a queue, unless an earlier try did."""
    try:
        await engine.create_queue(queue, settings)
    except SkepError as error:
        if error.code is not Code.QUEUE_EXISTS:
            raise


async def _looked(queue: QueueKey, group: str, engine: Engine) -> None:
    await engine.pop(PopRequest(queue, group=group))
