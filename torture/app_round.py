"""The part of a round that is about its app: it is applied, worked for by processes of `skep work`, looked at, and removed."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from functools import partial

from skep.errors import SkepError
from skep.model import QUEUE_MODE_GROUP, Start
from skep.spec import load
from torture import looks
from torture.app_of_round import SECRET, SECRET_VARIABLE, app_name, entity_name, spec_of
from torture.caller import Caller
from torture.lives import PAUSE_SECONDS, changed, is_drained, until_done, until_seen
from torture.load_client import PARTITIONS
from torture.process import Process
from torture.queues import Queues
from torture.site import Site

MOST_STARTS = 20


class RoundApp:
    """The app of one round, with its workers."""

    def __init__(self, site: Site, queues: Queues, *, workers: int) -> None:
        self._workers = workers
        self._site = site
        self._queues = queues
        self._spec = site.folder / f"{app_name(queues)}.skep"

    async def begin(self, caller: Caller) -> None:
        """Apply the spec, and start the workers."""
        self._spec.write_text(spec_of(self._queues, self._site.receiver.url), encoding="utf-8")
        app = load(self._spec.read_text(encoding="utf-8"), self._spec.name)
        await until_done(lambda: caller.again.apply(app))
        for queue in self._queues.worked.values():
            await until_done(partial(caller.again.configure, queue.name, **changed(queue)))
        arguments = ["skep", "work", str(self._spec), "--url", ",".join(self._site.urls()), "--allow-private"]
        self._site.workers = [
            Process(arguments, self._site.folder / f"worker{number}.log", {SECRET_VARIABLE: SECRET})
            for number in range(self._workers)
        ]
        for worker in self._site.workers:
            worker.start()

    async def drain(self, caller: Caller) -> None:
        """Wait until workers have done everything."""
        for kind in ("counted", "sent"):
            key = self._queues.worked[kind].key
            while not is_drained(await looks.look_at_figures(caller, key)):
                self._revive()
                await asyncio.sleep(PAUSE_SECONDS)

    async def do_again(self, caller: Caller) -> None:
        """Have all commands delivered once more, and wait: what they did, they do not do again."""
        await caller.seek(self._queues.worked["counted"].key, QUEUE_MODE_GROUP, Start())
        await self.drain(caller)

    def _revive(self) -> None:
        """Start workers again that have ended, as supervisors do: one that is started while the server is away ends."""
        for worker in self._site.workers:
            if worker.has_ended:
                if worker.starts == MOST_STARTS:
                    raise RuntimeError(f"a worker ended by itself: {worker.last_words()}")
                worker.start()

    async def look(self, caller: Caller) -> None:
        """Look at what the workers did."""
        counted, told = (self._queues.worked[kind].key for kind in ("counted", "told"))
        partitions = [f"p{number}" for number in range(PARTITIONS)]
        for queue in self._queues.worked.values():
            await until_seen(caller, partial(looks.look_at_log, caller, queue.key))
        for kind in ("counted", "sent"):
            key = self._queues.worked[kind].key
            await until_seen(caller, partial(looks.look_at_figures, caller, key))
        await until_seen(caller, lambda: looks.look_at_events(caller, counted, entity_name(self._queues), partitions))
        await until_seen(caller, lambda: looks.look_at_follow_ups(caller, counted, told))

    def stop(self) -> None:
        for worker in self._site.workers:
            worker.kill()
        self._site.workers = []

    async def remove(self, caller: Caller) -> None:
        self.stop()
        with suppress(SkepError):
            await caller.again.remove_app(app_name(self._queues))
        self._spec.unlink()
