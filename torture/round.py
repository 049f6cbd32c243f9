"""One round: new queues, a load of many clients with faults, a drain, a look at everything, and the verdict of the checker."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from contextlib import suppress
from typing import Any

from msgspec import Struct, field

from skep.errors import SkepError
from skep.model import QueueStats
from torture import looks
from torture.caller import Caller
from torture.check import check, occasions
from torture.faults import Fault
from torture.history import History, Violation
from torture.queues import GROUPS, LEASE_SECONDS, Queues, RoundQueue
from torture.resolve import resolved
from torture.site import Site
from torture.steps import Worker, changed

DRAIN_SECONDS = 90.0
"""How long everything may take to be delivered once the faults are over; what is left then is stranded."""
AUTO_ACKED = ("loose", "swept")
MOST_TRIES = 200
MOST_PUSHES_MEANWHILE = 6
FIRST_PAUSE_SECONDS = 0.02
"""After the first push of an outage; each further pause is twice as long, so that pushes come early in the outage and late."""
PAUSE_SECONDS = 0.05


class Plan(Struct, frozen=True):
    """What a round does; the same plan makes the same calls with the same faults at the same points."""

    seed: int
    number: int
    clients: int = 6
    steps: int = 60
    faults: tuple[str, ...] = ()
    injections: int = 3

    @property
    def name(self) -> str:
        return f"{self.seed}/{self.number}"


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
    tried: Counter[str] = field(default_factory=Counter)
    violations: list[Violation] = field(default_factory=list)


class Round:
    """A round while it runs."""

    def __init__(self, site: Site, plan: Plan, menu: dict[str, Fault]) -> None:
        self.site = site
        self.plan = plan
        self.menu = menu
        self.queues = Queues.of_round(plan.number)
        self.callers = [Caller(site.url, f"client{n}") for n in range(plan.clients + 1)]
        self.outcome = Outcome(plan)
        self._done = 0
        self._moved = asyncio.Condition()
        self._well = asyncio.Event()
        """Cleared during an outage."""
        self._well.set()
        self._takes_pushes = False

    async def run(self) -> Outcome:
        """The round from its queues to its verdict."""
        try:
            await self._prepare()
            async with asyncio.TaskGroup() as tasks:
                for number, caller in enumerate(self.callers[:-1]):
                    tasks.create_task(self._work(Worker(caller, self.queues, f"{self.plan.name}/{number}")))
                tasks.create_task(self._inject())
            await self._drain()
            history = await self._look()
            self._judge(history)
            await self._clean_up()
        finally:
            for caller in self.callers:
                await caller.close()
        return self.outcome

    @property
    def _observer(self) -> Caller:
        return self.callers[-1]

    async def _prepare(self) -> None:
        """Queues and groups before the first push: a group that comes late does not see what retention took."""
        for queue in self.queues.of_kind.values():
            await self._observer.again.configure(queue.name, **changed(queue))
            for group in groups_of(queue):
                await self._observer.pop(queue.key, group, keys=self.queues.key_of)

    async def _work(self, worker: Worker) -> None:
        for number in range(self.plan.steps):
            await self._outage_over(worker, number)
            self.outcome.steps[await worker.step(number)] += 1
            async with self._moved:
                self._done += 1
                self._moved.notify_all()

    async def _outage_over(self, worker: Worker, number: int) -> None:
        """Wait for the end of an outage; meanwhile push where pushes are taken."""
        for turn in range(MOST_PUSHES_MEANWHILE):
            if not self._well.is_set() and self._takes_pushes:
                await worker.push_meanwhile(number, turn)
                await asyncio.sleep(FIRST_PAUSE_SECONDS * 2**turn)
        await self._well.wait()

    async def _inject(self) -> None:
        """Faults at points of the plan, counted in steps of all clients."""
        chance = random.Random(f"{self.plan.name}/faults")
        total = self.plan.clients * self.plan.steps
        points = sorted(chance.randrange(total) for _ in range(self.plan.injections if self.plan.faults else 0))
        for point in points:
            async with self._moved:
                while self._done < point:
                    await self._moved.wait()
            name = chance.choice(self.plan.faults)
            fault = self.menu[name]
            self._takes_pushes = fault.takes_pushes
            if fault.is_outage:
                self._well.clear()
            try:
                self.outcome.injected.append(await fault.inject(self.site, chance))
            finally:
                self._well.set()
            self.outcome.faults[name] += 1

    # the end

    async def _drain(self) -> None:
        """Pop and ack until nothing is left, in the queues or on its way to them, or it takes far too long."""
        with suppress(TimeoutError):
            async with asyncio.timeout(DRAIN_SECONDS):
                while True:
                    # What was taken for later first, so that the queues are empty after it; a full queue takes it only when it has room.
                    is_stored = await self._is_stored()
                    await asyncio.gather(*(self._drain_queue(queue, caller) for queue, caller in self._shared_out()))
                    if is_stored:
                        return
                    await asyncio.sleep(PAUSE_SECONDS)

    async def _is_stored(self) -> bool:
        """Whether the server has stored all that it took for later."""
        with suppress(SkepError):
            found = await self._observer.again.buffers()
            return found.spool.pending == found.qos0.pending == 0
        return False

    def _shared_out(self) -> list[tuple[RoundQueue, Caller]]:
        queues = list(self.queues.of_kind.values())
        return [(queue, self.callers[place % self.plan.clients]) for place, queue in enumerate(queues)]

    async def _drain_queue(self, queue: RoundQueue, caller: Caller) -> None:
        with suppress(SkepError):
            await caller.again.resume(queue.name)
        while not is_drained(await looks.look_at_figures(caller, queue.key)):
            for group in groups_of(queue):
                options: dict[str, Any] = {"batch": 100, "wait_seconds": 0.1, "lease_seconds": 10 * LEASE_SECONDS}
                popped = await caller.pop(queue.key, group, keys=self.queues.key_of, **options)
                if popped:
                    await caller.ack(popped)

    async def _look(self) -> History:
        for queue in self.queues.of_kind.values():
            await self._insist(queue)
        calls = [call for caller in self.callers for call in caller.calls]
        return self.site.time.steadied(History(resolved(calls), self.queues.settings(), drained=True))

    async def _insist(self, queue: RoundQueue) -> None:
        """Look at a queue at rest, until each look has an answer."""
        for look in (looks.look_at_figures, looks.look_at_log, looks.look_at_dead_letters):
            for _ in range(MOST_TRIES):
                await look(self._observer, queue.key)
                if self._observer.calls[-1].ended is not None:
                    break
                await asyncio.sleep(PAUSE_SECONDS)

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
        for queue in self.queues.of_kind.values():
            for name in (queue.name, f"{queue.name}.dead"):
                with suppress(SkepError):
                    await self._observer.again.delete_queue(name)


def groups_of(queue: RoundQueue) -> tuple[str, ...]:
    return (*GROUPS, "auto") if queue.kind in AUTO_ACKED else GROUPS


def is_drained(stats: QueueStats | None) -> bool:
    return (
        stats is not None
        and stats.scheduled == 0
        and bool(stats.groups)
        and all(group.pending == group.in_flight == 0 for group in stats.groups)
    )
