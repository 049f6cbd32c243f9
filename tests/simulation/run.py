"""One simulated run: everything about it follows from its seed."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from random import Random
from typing import TypeVar

from skep.config import EngineSettings
from skep.config.settings import AdmissionSettings, OperationSettings
from skep.engine import Engine
from skep.errors import Code, SkepError
from skep.model import MessageFilter, Ordering, PopRequest, QueueKey, QueueSettings
from tests.simulation.clients import Client, Popper, Pusher
from tests.simulation.loop import SimulatedLoop
from tests.simulation.network import NoAnswerError, Weather
from tests.simulation.world import World, empty_image, simulated
from torture.check import check
from torture.history import History, Violation

T = TypeVar("T")

GROUPS = ("g", "h")
DRAIN_WAIT_SECONDS = 12.0
"""Longer than any lease, any backoff, and any wait for a signal that was lost."""

ENGINE = EngineSettings(
    shared=True,
    safety_poll_seconds=5.0,
    follow_seconds=5.0,
    maintain_seconds=60.0,
    sample_seconds=30.0,
    admission=AdmissionSettings(enabled=False),
    operations=OperationSettings(look_seconds=10.0),
)


@dataclass(frozen=True)
class Run:
    """What a run showed."""

    seed: int
    violations: list[Violation]
    calls: int
    steps: int
    trace: int

    @property
    def line(self) -> str:
        """The run in one line, which is the same in every process."""
        return f"seed {self.seed}: {self.calls} calls, {self.steps} steps, trace {self.trace:016x}, {len(self.violations)} violations"


disk = functools.cache(empty_image)


def run(seed: int) -> Run:
    """The run of a seed."""
    loop = SimulatedLoop(Random(seed))
    try:
        with simulated(loop) as errors:
            history, stranded = loop.play(_play(loop))
            violations = [*check(history), *stranded]
            violations += [Violation("sound", text) for text in (*loop.failures, *errors)]
            return Run(seed, violations, len(history.calls), loop.steps, loop.trace)
    finally:
        loop.bury()


async def _play(loop: SimulatedLoop) -> tuple[History, list[Violation]]:
    random = Random(loop.random.random())
    weather = Weather(
        lost_requests=random.choice((0.0, 0.05)),
        lost_answers=random.choice((0.0, 0.1, 0.3)),
        slow=random.choice((0.0, 0.05)),
    )
    world = World(loop, random.choice((1, 2, 2, 3)), weather, ENGINE, disk())
    queues = {
        QueueKey(f"q{number}"): QueueSettings(
            ordering=random.choice((Ordering.PER_KEY, Ordering.FIFO, Ordering.UNORDERED)),
            max_attempts=random.choice((0, 0, 3)),
            initial_backoff_ms=100,
        )
        for number in range(random.choice((1, 2)))
    }
    observer = Drainer(world, "observer", Random(random.random()))
    await observer.start(observer.make(queues))
    clients: list[Client] = []
    working: list[asyncio.Task[None]] = []
    for number in range(random.choice((1, 2))):
        pusher = Pusher(world, f"pusher {number}", Random(random.random()))
        clients.append(pusher)
        working.append(pusher.start(pusher.work(list(queues), random.randrange(2, 8), random.choice((1, 2, 4)))))
    for number in range(random.choice((1, 2, 3))):
        popper = Popper(world, f"popper {number}", Random(random.random()))
        clients.append(popper)
        working.append(popper.start(popper.work(list(queues), GROUPS[number % 2], random.randrange(4, 12))))
    for task in working:
        await task
    weather.clear_up()
    await observer.start(observer.drain(queues))
    calls = [call for client in (*clients, observer) for call in client.calls]
    return History(calls, queues), observer.stranded


async def _made(queue: QueueKey, settings: QueueSettings, engine: Engine) -> None:
    """Make a queue, unless an earlier try did."""
    try:
        await engine.create_queue(queue, settings)
    except SkepError as error:
        if error.code is not Code.QUEUE_EXISTS:
            raise


class Drainer(Client):
    """Makes the queues; at the end works off what is left, and looks at everything."""

    stranded: list[Violation]

    async def make(self, queues: dict[QueueKey, QueueSettings]) -> None:
        """Make the queues."""
        for queue, settings in queues.items():
            await self.surely(functools.partial(_made, queue, settings))

    async def surely(self, work: Callable[[Engine], Awaitable[T]]) -> T:
        """Ask until there is an answer."""
        while True:
            try:
                return await self.ask(work)
            except NoAnswerError:
                continue
            except SkepError as error:
                if not error.retryable:
                    raise

    async def drain(self, queues: dict[QueueKey, QueueSettings]) -> None:
        """Pop and ack until nothing is left, for every group; then look at figures and logs."""
        self.stranded = []
        await asyncio.gather(*(self.drain_one(queue, group) for queue in queues for group in GROUPS))
        for queue in queues:
            await self.look(queue)

    async def drain_one(self, queue: QueueKey, group: str) -> None:
        """Pop and ack until a long poll gives nothing, though it outlasts all leases."""
        request = PopRequest(queue, group=group, batch=100, lease_seconds=5.0)
        while deliveries := await self.pop(request, DRAIN_WAIT_SECONDS):
            await self.settle([delivery.settlement() for delivery in deliveries])

    async def look(self, queue: QueueKey) -> None:
        """Note the figures and the log of a queue, with nothing left to do."""
        started, now = self.tick(), self.now()
        stats = await self.surely(lambda engine: engine.browse.queue_stats(queue))
        self._note("stats", started, now, queue, stats)
        for group in stats.groups:
            if group.pending or group.in_flight:
                self.stranded.append(Violation("stranded", f"{queue.name} is empty for {group.group}, and has {group}"))
        started = self.tick()
        page = await self.surely(lambda engine: engine.browse.messages(MessageFilter(queue=queue, limit=1000)))
        self._note("log", started, now, queue, list(page.messages))
