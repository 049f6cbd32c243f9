"""Where a test's worker works: a server, a tenant, and what a test wants to know of it."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec

import skep
from skep.clock import Clock
from skep.spec import load, settings_of
from skep.wire.dead_letters import DeadLetterView
from skep.worker.working import Working, WorkOptions


class Place:
    """A tenant of a server."""

    def __init__(self, url: str, client: skep.Client, clock: Clock | None = None) -> None:
        self.url = url
        self.client = client
        self.clock = clock

    def app(self, text: str) -> skep.App:
        """An app whose queues are there."""
        app = skep.App(load(text, "test.skep"))
        for name in app.spec.queues:
            given = msgspec.to_builtins(settings_of(app.spec, name))
            self.client.configure(name, **given)
        return app

    async def work(self, app: skep.App, *, at_least: int = 0, **options: Any) -> int:
        """Work until nothing is left, and until so many are done: a pop that meets a chore of the server may find nothing."""
        done = 0
        async with asyncio.timeout(60):
            while True:
                done += await self.working(app, until_empty=True, **options).run()
                if done >= at_least:
                    return done

    def working(self, app: skep.App, **options: Any) -> Working:
        """A worker of this place, not yet begun."""
        given = WorkOptions(clock=self.clock, allow_private=options.pop("allow_private", True), **options)
        return Working(app.spec, app.functions, self.client.settings, given)

    def depth(self, queue: str) -> int:
        """What is left in a queue."""
        return self.client.stats(queue).stats.depth

    def dead(self, queue: str) -> list[DeadLetterView]:
        """The dead letters of a queue."""
        return list(self.client.dead_letters(queue))

    def payloads(self, queue: str) -> list[Any]:
        """What is in a queue's log."""
        return [msgspec.json.decode(bytes(one.payload)) for one in self.client.messages(queue)]
