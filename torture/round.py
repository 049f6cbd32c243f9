"""One round: new queues, a load of many clients with faults, a drain, a look at everything, and the verdict of the checker."""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import suppress
from functools import partial

from msgspec import Struct, field

from skep.errors import SkepError
from torture import lives, looks
from torture.app_round import RoundApp
from torture.caller import Caller
from torture.check import check, occasions
from torture.client_process import ClientOrder, ClientProcess
from torture.faults import LOSING, OF_ONE_SERVER, OF_SPARK, Fault, Prepared
from torture.history import Call, History, Violation
from torture.load_client import LoadClient
from torture.lost import lost_messages, unpromised
from torture.queues import Queues, RoundQueue, groups_of
from torture.resolve import resolved
from torture.site import NotBackError, Site
from torture.spark_round import RoundSpark
from torture.steps import do_step

DRAIN_SECONDS = 90.0
"""How long everything may take to be delivered once the faults are over, beside a second for every `DRAINED_A_SECOND` messages; what is left then is stranded."""
DRAINED_A_SECOND = 100
"""Far less than any machine does."""
MOST_PUSHES_MEANWHILE = 6
FIRST_PAUSE_SECONDS = 0.02
"""After the first push of an outage; each further pause is twice as long, so that pushes come early in the outage and late."""
PAUSE_SECONDS = 0.05


Step = Callable[[int], Awaitable[str]]
PushMeanwhile = Callable[[int, int], Awaitable[None]]


class Plan(Struct, frozen=True):
    """What a round does; the same plan makes the same calls with the same faults at the same points."""

    seed: int
    number: int
    clients: int = 6
    steps: int = 60
    faults: tuple[str, ...] = ()
    injections: int = 3
    processes: int = 0
    """So many of the clients are processes of their own."""
    bulk: int = 1
    spark: bool = False
    """A Spark job takes part; with a fault of Spark in any case."""

    @property
    def name(self) -> str:
        return f"{self.seed}/{self.number}"

    @property
    def may_lose(self) -> bool:
        return not LOSING.isdisjoint(self.faults)

    @property
    def has_spark(self) -> bool:
        return self.spark or not OF_SPARK.isdisjoint(self.faults)


class Outcome(Struct):
    """What a round did, and what it showed."""

    plan: Plan
    steps: Counter[str] = field(default_factory=Counter)
    faults: Counter[str] = field(default_factory=Counter)
    injected: list[str] = field(default_factory=list)
    calls: int = 0
    unanswered: int = 0
    pushed: int = 0
    delivered: int = 0
    settled: int = 0
    lost: int = 0
    """Messages that a failover lost to an asynchronous standby, which is not promised otherwise."""
    tried: Counter[str] = field(default_factory=Counter)
    violations: list[Violation] = field(default_factory=list)


class Round:
    """A round while it runs."""

    def __init__(self, site: Site, plan: Plan, menu: dict[str, Fault]) -> None:
        self.site = site
        self.plan = plan
        self.menu = menu
        self.queues = Queues.of_round(plan.number, plan.bulk, may_lose=plan.may_lose, has_spark=plan.has_spark)
        self.app = RoundApp(site, self.queues, workers=2 if "worker" in plan.faults else 1)
        has_executors = "executor" in plan.faults
        self.spark = RoundSpark(site, self.queues, has_executors=has_executors) if plan.has_spark else None
        self.callers = [Caller(site.urls(n), f"client{n}") for n in range(plan.clients + 1)]
        self.outcome = Outcome(plan)
        self._processes = min(plan.processes, plan.clients)
        self._received: list[Call] = []
        self._done = 0
        self._moved = asyncio.Condition()
        self._takes_pushes = False

    async def run(self) -> Outcome:
        """The round from its queues to its verdict."""
        try:
            await self._prepare()
            async with asyncio.TaskGroup() as tasks:
                for number, caller in enumerate(self.callers[self._processes : -1], self._processes):
                    client = LoadClient(caller, self.queues, self._seed(number))
                    tasks.create_task(self._work(partial(do_step, client), client.push_meanwhile))
                for process in self.site.clients:
                    tasks.create_task(self._work(process.step, process.push_meanwhile))
                tasks.create_task(self._inject())
            self._judge(await self._drained_history())
            await self._clean_up()
        except* NotBackError as lost:
            self.outcome.violations = [
                Violation("I1", f"the store did not come back after a fault: {lost.exceptions[0]}")
            ]
        finally:
            self.app.stop()
            if self.spark is not None:
                self.spark.stop()
            for process in self.site.clients:
                await process.close()
            for caller in self.callers:
                await caller.close()
        return self.outcome

    @property
    def _observer(self) -> Caller:
        return self.callers[-1]

    async def _prepare(self) -> None:
        """Queues and groups before the first push: a group that comes late does not see what retention took."""
        self.site.losses.clear()
        await self.app.begin(self._observer)
        if self.spark is not None:
            await self.spark.begin(self._observer)
        orders = [
            ClientOrder(
                self.site.urls(number),
                f"process{number}",
                self.plan.number,
                self._seed(number),
                self.plan.bulk,
                self.plan.may_lose,
                self.plan.has_spark,
            )
            for number in range(self._processes)
        ]
        self.site.clients = [ClientProcess(order, self.site.folder / f"{order.name}.log") for order in orders]
        for queue in self.queues.of_kind.values():
            await self._observer.again.configure(queue.name, **lives.changed(queue))
            for group in groups_of(queue):
                await self._observer.pop(queue.key, group, keys=self.queues.key_of)

    def _seed(self, client: int) -> str:
        return f"{self.plan.name}/{client}"

    async def _work(self, step: Step, push_meanwhile: PushMeanwhile) -> None:
        for number in range(self.plan.steps):
            await self._outage_over(push_meanwhile, number)
            self.outcome.steps[await step(number)] += 1
            async with self._moved:
                self._done += 1
                self._moved.notify_all()

    async def _outage_over(self, push_meanwhile: PushMeanwhile, number: int) -> None:
        """Wait for the end of an outage; meanwhile push where pushes are taken."""
        for turn in range(MOST_PUSHES_MEANWHILE):
            if not self.site.well.is_set() and self._takes_pushes:
                await push_meanwhile(number, turn)
                await asyncio.sleep(FIRST_PAUSE_SECONDS * 2**turn)
        await self.site.well.wait()

    async def _inject(self) -> None:
        """Faults at points of the plan, counted in steps of all clients."""
        chance = random.Random(f"{self.plan.name}/faults")
        total = self.plan.clients * self.plan.steps
        points = sorted(chance.randrange(total) for _ in range(self.plan.injections if self.plan.faults else 0))
        for point, name in zip(points, in_turn(self.plan.faults, chance), strict=False):
            fault = self.menu[name]
            if isinstance(fault, Prepared):
                await fault.prepare(self.site)
            async with self._moved:
                while self._done < point:
                    await self._moved.wait()
            self._takes_pushes = fault.takes_pushes
            if fault.is_outage and not (name in OF_ONE_SERVER and len(self.site.servers) > 1):
                self.site.well.clear()
            try:
                self.outcome.injected.append(await fault.inject(self.site, chance))
            finally:
                self.site.well.set()
            self.outcome.faults[name] += 1

    # the end

    async def _drain(self) -> None:
        """Pop and ack until nothing is left, in the queues or on its way to them, or it takes far too long."""
        with suppress(TimeoutError):
            async with asyncio.timeout(DRAIN_SECONDS + self._asked() / DRAINED_A_SECOND):
                while True:
                    # What was taken for later first, so that the queues are empty after it; a full queue takes it only when it has room.
                    is_stored = await self._is_stored()
                    await asyncio.gather(*(self._drain_queue(queue, caller) for queue, caller in self._shared_out()))
                    await self.app.drain(self._observer)
                    if is_stored:
                        await self.app.do_again(self._observer)
                        return
                    await asyncio.sleep(PAUSE_SECONDS)

    async def _drained_history(self) -> History:
        """The history once everything is drained and looked at.

        A server with several processes cannot tell whether one of them still has something to store. Then what is missing shows it.
        """
        over = time.monotonic() + DRAIN_SECONDS
        while True:
            await self._drain()
            if self.spark is not None:
                await self.spark.drain(self._observer)
            history = await self._look()
            if self.site.server_workers == 1 or time.monotonic() > over or not is_waited_for(history):
                return history

    async def _is_stored(self) -> bool:
        """Whether the servers have stored all that they took for later."""
        with suppress(SkepError):
            for server in self._observer.each:
                found = await server.buffers()
                operations = await server.operation_stats()
                if found.spool.pending or found.qos0.pending or operations.depth:
                    return False
            return True
        return False

    def _asked(self) -> int:
        """How many messages the clients asked the server to store."""
        calls = [call for caller in self.callers for call in caller.calls]
        calls += [call for process in self.site.clients for call in process.calls]
        pushes = (call for call in calls if call.verb in ("push", "accept"))
        return sum(len(call.request[0].messages) for call in pushes)

    def _shared_out(self) -> list[tuple[RoundQueue, Caller]]:
        queues = list(self.queues.of_kind.values())
        return [(queue, self.callers[place % self.plan.clients]) for place, queue in enumerate(queues)]

    async def _drain_queue(self, queue: RoundQueue, caller: Caller) -> None:
        with suppress(SkepError):
            await caller.again.resume(queue.name)
        while not lives.is_drained(await looks.look_at_figures(caller, queue.key)):
            await lives.empty(caller, queue, self.queues)

    async def _look(self) -> History:
        for queue in self.queues.of_kind.values():
            await self._insist(queue)
        await self.app.look(self._observer)
        if self.spark is not None:
            await self.spark.look(self._observer)
        calls = [call for caller in self.callers for call in caller.calls]
        calls += [call for process in self.site.clients for call in process.calls]
        self._received += self.site.receiver.calls()
        calls += self._received
        worked = frozenset(queue.key for queue in (*self.queues.worked.values(), *self.queues.streamed.values()))
        settings, losses = self.queues.settings(), self.site.losses
        self.outcome.lost = lost_messages(calls, losses, settings)
        history = History(resolved(unpromised(calls, losses)), settings, drained=True, worked=worked)
        history.spools_apart = self.site.has_spools_apart
        return self.site.time.steadied(history)

    async def _insist(self, queue: RoundQueue) -> None:
        """Look at a queue at rest, until each look has an answer."""
        observer = self._observer
        await lives.until_seen(observer, lambda: looks.look_at_figures(observer, queue.key))
        await lives.until_seen(observer, lambda: looks.look_at_log(observer, queue.key, after=queue.floor))
        await lives.until_seen(observer, lambda: looks.look_at_dead_letters(observer, queue.key))

    def _judge(self, history: History) -> None:
        outcome = self.outcome
        outcome.calls = len(history.calls)
        outcome.unanswered = sum(call.ended is None for call in history.calls)
        outcome.pushed = sum(len(entries) for entries in history.entries.values())
        outcome.delivered = len(history.gives)
        outcome.settled = sum(settled.is_final for settled in history.settles)
        outcome.tried.update(occasions(history))
        outcome.violations = check(history)

    async def _clean_up(self) -> None:
        await self.app.remove(self._observer)
        for queue in self.queues.all:
            for name in (queue.name, f"{queue.name}.dead"):
                with suppress(SkepError):
                    await self._observer.again.delete_queue(name)


def in_turn(names: Sequence[str], chance: random.Random) -> Iterator[str]:
    """All names in an order of chance, again and again: none comes twice before each has come once."""
    while names:
        yield from chance.sample(names, len(names))


def is_waited_for(history: History) -> bool:
    """Whether a message that was accepted for later is not there."""
    return any(violation.promise == "I13" for violation in check(history))
