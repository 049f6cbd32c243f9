"""Who makes the queues of a run, and at its end works off what is left, in fair weather, and looks whether all of it could be had."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Awaitable, Callable
from typing import TypeVar

from skep.engine import Engine
from skep.errors import Code, SkepError
from skep.model import PopRequest, QueueChanges, QueueKey, QueueSettings
from tests.simulation.clients import Client
from tests.simulation.network import NoAnswerError
from tests.simulation.plan import GROUPS, Plan
from torture.history import Violation

T = TypeVar("T")

LOOK_SECONDS = 7.0
"""Longer than any lease, any backoff, any schedule, and the wait for a signal that was lost."""
OPERATIONS_SECONDS = 60
TRIES = 100
"""How often it pops from one queue for one group, at most."""
WAITING_OPERATIONS = "SELECT count(*) FROM operation WHERE processed_at IS NULL"


class Observer(Client):
    """Makes, drains and looks."""

    found: list[Violation]

    async def make(self, queues: dict[QueueKey, QueueSettings]) -> None:
        """Make the queues, and groups where they must be there before the first push."""
        self.found = []
        for queue, settings in queues.items():
            await self.surely(functools.partial(_made, queue, settings))
            if settings.retention_seconds or settings.completed_retention_seconds:
                # A group that comes late does not see what retention took.
                for group in GROUPS:
                    await self.surely(functools.partial(_looked, queue, group))

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

    async def drain(self, plan: Plan) -> None:
        """Work everything off, for every group; then look at figures and logs."""
        for queue in plan.queues:
            await self.surely(functools.partial(_resumed, queue))
        if plan.queues_operations:
            await self.operations_end()
        await asyncio.gather(*(self.drain_one(queue, group) for queue in plan.queues for group in GROUPS))
        for queue in plan.queues:
            # Nothing is left to do there, or it was not handed out.
            stats = await self.look(queue, self.surely)
            if stats.scheduled:
                self.found.append(Violation("I9", f"{queue.name} keeps {stats.scheduled} scheduled messages for ever"))

    async def operations_end(self) -> None:
        """Wait until all that was queued has been done."""
        for _ in range(OPERATIONS_SECONDS):
            if self.world.disk.db.execute(WAITING_OPERATIONS).fetchall() == [(0,)]:
                return
            await self.world.loop.passed(1)
        self.found.append(Violation("I13", "an operation is never performed"))

    async def drain_one(self, queue: QueueKey, group: str) -> None:
        """Pop and ack until a long poll gives nothing, though it outlasts all leases."""
        request = PopRequest(queue, group=group, batch=100, lease_seconds=2.0)
        for _ in range(TRIES):
            deliveries = await self.pop(request, LOOK_SECONDS)
            if deliveries == []:
                return
            if deliveries:
                await self.settle([delivery.settlement() for delivery in deliveries])
        self.found.append(Violation("I9", f"{queue.name} does not become empty for {group}"))


async def _made(queue: QueueKey, settings: QueueSettings, engine: Engine) -> None:
    """Make a queue, unless an earlier try did."""
    try:
        await engine.create_queue(queue, settings)
    except SkepError as error:
        if error.code is not Code.QUEUE_EXISTS:
            raise


async def _looked(queue: QueueKey, group: str, engine: Engine) -> None:
    await engine.pop(PopRequest(queue, group=group))


async def _resumed(queue: QueueKey, engine: Engine) -> None:
    await engine.update_queue(queue, QueueChanges(paused=False))
