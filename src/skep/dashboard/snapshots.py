"""Figures of all queues of a tenant, or of those that a caller may read. Everyone who asks within a moment shares one look.

Ten people with the overview open cost one look in every `FRESH_SECONDS`. Where a look takes long, as with very many queues, it
is taken in the background while pages show the last one, and say so when that is old; so a page does not wait for it. The first
one is taken when the server starts.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from time import perf_counter

from msgspec import Struct

from skep.clock import Instant, seconds
from skep.engine import Engine
from skep.errors import Code, SkepError
from skep.http.tenant_scan import Scanned, Sees, TenantScan, all_seen, listed, survey
from skep.model import QueueKey
from skep.model.key import Grant

FRESH_SECONDS = 1.0
"""A look that is no older than this is as good as a new one."""
RESTS = 10
"""After a look that took long there is none for so many times as long, so that looking never keeps the store busy."""
OLD_SECONDS = 30.0
"""A page says how old an older look is, and asks for the next one at once."""
QUICK_SECONDS = 0.05
"""A look that takes no longer is taken while the page waits."""
MANY_QUEUES = 200
"""From so many queues on a page does not wait for the first look, which may take long."""
PATIENCE_SECONDS = 0.06
"""How long a page with many queues waits for the first look."""
PREPARED_TENANTS = 4
"""Tenants that are looked at when the server starts."""
REMEMBERED = 32
"""Looks that are remembered: one for each tenant, and one for each way of seeing only some of its queues."""

Seen = tuple[str, tuple[Grant, ...]]
"""A tenant, and the grants of who sees only some of its queues."""


class StillLooking(Exception):  # noqa: N818 - it is a state of affairs, not an error
    """The first look at very many queues is not done yet: come again in a moment."""


class QueuesSnapshot(Struct, frozen=True):
    """A tenant's queues as they stood at an instant."""

    seen: TenantScan
    at: Instant
    took_seconds: float

    def is_old(self, now: Instant) -> bool:
        """Whether a page should say how old it is."""
        return now - self.at > seconds(OLD_SECONDS)


class Snapshots:
    """The last look at each tenant, and those under way."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._last: OrderedDict[Seen, QueuesSnapshot] = OrderedDict()
        self._under_way: dict[Seen, asyncio.Task[QueuesSnapshot]] = {}
        self._changed: dict[Seen, set[str]] = {}

    async def prepare(self) -> None:
        """Look at some tenants before anyone asks, so that nobody waits for the first look."""
        for tenant in await self._engine.tenants(limit=PREPARED_TENANTS):
            await self._look((tenant, ()), all_seen)

    async def of(
        self, tenant: str, scope: tuple[Grant, ...] = (), sees: Sees = all_seen, *, patient: bool = False
    ) -> QueuesSnapshot:
        """A look that is fresh, or the last one while the next is taken. ``scope`` are the grants that ``sees`` goes by.

        Who is not ``patient`` is told by `StillLooking` that the first one takes long.
        """
        seen = (tenant, scope)
        last = await self._renewed(seen, sees)
        age = None if last is None else self._engine.now() - last.at
        fresh = FRESH_SECONDS if last is None else max(FRESH_SECONDS, last.took_seconds * RESTS)
        if last is not None and age is not None and 0 <= age < seconds(fresh):
            return last
        looking = self._look(seen, sees)
        if last is not None and last.took_seconds > QUICK_SECONDS and not (patient and last.is_old(self._engine.now())):
            return last
        if not patient and last is None:
            await asyncio.wait([looking], timeout=PATIENCE_SECONDS)
            if not looking.done() and await self._are_many(tenant, sees):
                raise StillLooking
        return await asyncio.shield(looking)

    def forget(self, tenant: str, queue: str | None = None) -> None:
        """Forget the looks at a tenant after a change, so that the next page shows it. Where a look takes long, only the queue is looked at again."""
        for seen in [seen for seen in self._under_way if seen[0] == tenant]:
            del self._under_way[seen]
        for seen, last in [(seen, last) for seen, last in self._last.items() if seen[0] == tenant]:
            if queue is not None and last.took_seconds > QUICK_SECONDS:
                self._changed.setdefault(seen, set()).add(queue)
            else:
                del self._last[seen]

    async def _renewed(self, seen: Seen, sees: Sees) -> QueuesSnapshot | None:
        """The last look, with those queues as they are now that were changed since."""
        last = self._last.get(seen)
        changed = [key for name in self._changed.pop(seen, ()) if sees(key := QueueKey(name, seen[0]))]
        if last is None or not changed:
            return last
        kept = [one for one in last.seen.queues if one.queue.key not in changed]
        for key in changed:
            try:
                kept.append(Scanned(await self._engine.get_queue(key), await self._engine.browse.queue_stats(key)))
            except SkepError as error:
                if error.code is not Code.QUEUE_NOT_FOUND:
                    raise
        kept.sort(key=lambda one: one.queue.key.name)
        renewed = QueuesSnapshot(TenantScan(kept, last.seen.complete), last.at, last.took_seconds)
        self._last[seen] = renewed
        return renewed

    async def _are_many(self, tenant: str, sees: Sees) -> bool:
        return len(await listed(self._engine, tenant, limit=MANY_QUEUES + 1, sees=sees)) > MANY_QUEUES

    def _look(self, seen: Seen, sees: Sees) -> asyncio.Task[QueuesSnapshot]:
        looking = self._under_way.get(seen)
        if looking is None:
            looking = asyncio.create_task(self._take(seen, sees))
            looking.add_done_callback(_heard)
            self._under_way[seen] = looking
        return looking

    async def _take(self, seen: Seen, sees: Sees) -> QueuesSnapshot:
        started, at = perf_counter(), self._engine.now()
        try:
            found = QueuesSnapshot(await survey(self._engine, seen[0], sees=sees), at, perf_counter() - started)
            # A change meanwhile has dropped this look, and its caller waits for the next.
            if self._under_way.get(seen) is asyncio.current_task():
                self._last[seen] = found
                self._last.move_to_end(seen)
                while len(self._last) > REMEMBERED:
                    self._last.popitem(last=False)
                self._changed.pop(seen, None)
            return found
        finally:
            if self._under_way.get(seen) is asyncio.current_task():
                del self._under_way[seen]


def _heard(looking: asyncio.Task[QueuesSnapshot]) -> None:
    """An error is told to whoever waits for the look; when nobody does, the next look tells."""
    if not looking.cancelled():
        looking.exception()
