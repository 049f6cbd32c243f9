"""Who makes the queues of a run, and at its end works off what is left, in fair weather, and looks whether all of it could be had."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Awaitable, Callable
from typing import TypeVar

from skep.engine import Engine
from skep.errors import SkepError
from skep.model import PopRequest, QueueChanges, QueueKey, QueueSettings
from tests.simulation.clients import Client
from tests.simulation.network import NoAnswerError
from tests.simulation.plan import GROUPS, SAMPLE_SECONDS, Fault, Plan
from torture.history import Violation

T = TypeVar("T")

LOOK_SECONDS = 7.0
"""Longer than any lease, any backoff, any schedule, and the wait for a signal that was lost."""
OPERATIONS_SECONDS = 60
TRIES = 100
"""How often it pops from one queue for one group, at most."""
WAITING_OPERATIONS = "SELECT count(*) FROM operation WHERE processed_at IS NULL"
PLAIN = "SELECT 1 FROM message JOIN queue ON queue.id = queue_id WHERE name = ? AND substr(payload, 1, 1) = CAST('\"' AS BLOB)"


class Observer(Client):
    """Makes, drains and looks."""

    async def make_all(self, queues: dict[QueueKey, QueueSettings]) -> None:
        """Make the queues."""
        for queue, settings in queues.items():
            await self.make(queue, settings, self.surely)

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
        if Fault.CLOCK in plan.faults:
            # Until the store has noticed that the clock was set back, and what was leased ahead of time has run out.
            await self.world.loop.passed(SAMPLE_SECONDS + LOOK_SECONDS)
        if plan.spools:
            await self.spools_end()
        if plan.queues_operations:
            await self.operations_end()
        await asyncio.gather(*(self.drain_one(queue, group) for queue in plan.queues for group in GROUPS))
        for queue in plan.queues:
            # Nothing is left to do there, or it was not handed out.
            stats = await self.look(queue, self.surely)
            # Expiry makes the group of those who name none.
            for group in stats.groups:
                if group.group not in GROUPS and group.pending:
                    await self.drain_one(queue, group.group)
                    stats = await self.look(queue, self.surely)
            if plan.queues[queue].encryption_enabled and self.world.disk.db.execute(PLAIN, (queue.name,)).fetchall():
                self.found.append(Violation("encryption", f"a payload of {queue.name} is in the file as it was pushed"))
            if stats.scheduled:
                self.found.append(Violation("I9", f"{queue.name} keeps {stats.scheduled} scheduled messages for ever"))

    async def operations_end(self) -> None:
        """Wait until all that was queued has been done."""
        for _ in range(OPERATIONS_SECONDS):
            if self.world.disk.db.execute(WAITING_OPERATIONS).fetchall() == [(0,)]:
                return
            await self.world.loop.passed(1)
        self.found.append(Violation("I13", "an operation is never performed"))

    async def spools_end(self) -> None:
        """Wait until all that was spooled is stored."""
        for _ in range(OPERATIONS_SECONDS):
            spools = [None if server.engine is None else server.engine.spool for server in self.world.servers]
            if all(spool is not None and spool.figures().pending == 0 for spool in spools):
                return
            await self.world.loop.passed(1)
        self.found.append(Violation("I13", "a spooled push is never stored"))

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


async def _resumed(queue: QueueKey, engine: Engine) -> None:
    await engine.update_queue(queue, QueueChanges(paused=False))
