"""Figures of all queues of a tenant, or of those that someone may read, looked up once for everyone who looks within a moment.

Ten people with the overview open cost one look in every `FRESH_SECONDS`. Where a look takes long, as with very many queues, it
is taken in the background while pages show the last one, which says how old it is; so a page does not wait for it.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from time import perf_counter

from msgspec import Struct

from skep.clock import Instant, seconds
from skep.engine import Engine
from skep.http.survey import Sees, Survey, all_seen, survey
from skep.keys import Grant

FRESH_SECONDS = 1.0
"""A look that is no older than this is as good as a new one."""
RESTS = 10
"""After a look that took long there is none for so many times as long, so that looking never keeps the store busy."""
SHOWN_SECONDS = 30.0
"""One that is older than this is not shown any more: the page waits for the next."""
QUICK_SECONDS = 0.05
"""A look that takes no longer is taken while the page waits."""
MANY_QUEUES = 200
"""From so many queues on a page does not wait for the first look, which may take long."""
PATIENCE_SECONDS = 0.06
"""Or only so long."""
REMEMBERED = 32
"""Looks that are remembered: one for each tenant, and one for each way of seeing only some of its queues."""

Seen = tuple[str, tuple[Grant, ...]]
"""A tenant, and the grants of who sees only some of its queues."""


class StillLooking(Exception):  # noqa: N818 - it is a state of affairs, not an error
    """The first look at very many queues is not done yet: come again in a moment."""


class Snapshot(Struct, frozen=True):
    """A tenant's queues as they stood at an instant."""

    seen: Survey
    at: Instant
    took_seconds: float


class Snapshots:
    """The last look at each tenant, and those under way."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._last: OrderedDict[Seen, Snapshot] = OrderedDict()
        self._under_way: dict[Seen, asyncio.Task[Snapshot]] = {}

    async def of(
        self, tenant: str, scope: tuple[Grant, ...] = (), sees: Sees = all_seen, *, patient: bool = False
    ) -> Snapshot:
        """A look that is fresh, or the last one while the next is taken. ``scope`` are the grants that ``sees`` goes by.

        Who is not ``patient`` is told by `StillLooking` that the first one takes long.
        """
        seen = (tenant, scope)
        last = self._last.get(seen)
        age = None if last is None else self._engine.now() - last.at
        fresh = FRESH_SECONDS if last is None else max(FRESH_SECONDS, last.took_seconds * RESTS)
        if last is not None and age is not None and 0 <= age < seconds(fresh):
            return last
        looking = self._look(seen, sees)
        if last is not None and age is not None and age < seconds(SHOWN_SECONDS) and last.took_seconds > QUICK_SECONDS:
            return last
        if not patient and self._engine.known_queues > MANY_QUEUES:
            await asyncio.wait([looking], timeout=PATIENCE_SECONDS)
            if not looking.done():
                raise StillLooking
        return await asyncio.shield(looking)

    def forget(self, tenant: str) -> None:
        """Something was changed: who looks next sees it."""
        for known in (self._last, self._under_way):
            for seen in [seen for seen in known if seen[0] == tenant]:
                del known[seen]

    def _look(self, seen: Seen, sees: Sees) -> asyncio.Task[Snapshot]:
        looking = self._under_way.get(seen)
        if looking is None:
            looking = asyncio.create_task(self._take(seen, sees))
            looking.add_done_callback(_heard)
            self._under_way[seen] = looking
        return looking

    async def _take(self, seen: Seen, sees: Sees) -> Snapshot:
        started, at = perf_counter(), self._engine.now()
        try:
            found = Snapshot(await survey(self._engine, seen[0], sees=sees), at, perf_counter() - started)
            # Whoever changed something meanwhile has forgotten this look, and waits for the next.
            if self._under_way.get(seen) is asyncio.current_task():
                self._last[seen] = found
                self._last.move_to_end(seen)
                while len(self._last) > REMEMBERED:
                    self._last.popitem(last=False)
            return found
        finally:
            if self._under_way.get(seen) is asyncio.current_task():
                del self._under_way[seen]


def _heard(looking: asyncio.Task[Snapshot]) -> None:
    """An error is told to whoever waits for the look; when nobody does, the next look tells."""
    if not looking.cancelled():
        looking.exception()
