"""Read all queues of a tenant, up to a bound. An answer that saw only some of them says so."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from skep.engine import Engine
from skep.engine.browse import LOOKED_AT_ONCE
from skep.http.request.call import Call
from skep.http.request.paging import next_after, page_limit
from skep.model import Queue, QueueKey, QueueStats, Rates
from skep.wire.queues import Overview
from skep.wire.status import FailedCalls

ALL_QUEUES = 100_000
"""The most queues that one scan reads. Nobody has so many, so sums are over all queues of the tenant."""
_PAGE = 1_000


class Scanned(NamedTuple):
    """A queue and its figures."""

    queue: Queue
    stats: QueueStats


class TenantScan(NamedTuple):
    """The queues of one scan; not complete when there are more."""

    queues: list[Scanned]
    complete: bool


Sees = Callable[[QueueKey], bool]
"""Whether a queue may be in an answer: `Call.visible`."""


def all_seen(key: QueueKey) -> bool:  # noqa: ARG001 - it is the same for every queue
    """Let every queue into an answer."""
    return True


async def survey(engine: Engine, tenant: str, most: int = ALL_QUEUES, sees: Sees = all_seen) -> TenantScan:
    """A tenant's visible queues with their figures, by name."""
    queues, complete = await all_listed(engine, tenant, most, sees)
    return TenantScan(await figures(engine, queues), complete)


async def all_listed(engine: Engine, tenant: str, most: int, sees: Sees) -> tuple[list[Queue], bool]:
    """All visible queues by name, read page by page, and whether these are all."""
    found: list[Queue] = []
    while True:
        limit = min(_PAGE, most + 1 - len(found))
        page = await listed(engine, tenant, limit=limit, sees=sees, after=found[-1].key.name if found else "")
        found += page
        if len(page) < limit or len(found) > most:
            return found[:most], len(found) <= most


async def listed(
    engine: Engine,
    tenant: str,
    *,
    limit: int,
    sees: Sees,
    after: str = "",
    namespace: str | None = None,
    task: str | None = None,
) -> list[Queue]:
    """A page of the visible queues, by name. It is full while there are more, as the next page begins after its last name; the name of
    a queue that may not be seen must not tell that.
    """
    found: list[Queue] = []
    while True:
        page = await engine.list_queues(tenant, after=after, limit=limit, namespace=namespace, task=task)
        found += [queue for queue in page if sees(queue.key)]
        if len(page) < limit or len(found) >= limit:
            return found[:limit]
        after = page[-1].key.name


async def asked_page(engine: Engine, call: Call) -> tuple[list[Queue], str | None]:
    """The page of queues that a call asks for by its query, and the name after which the next page begins."""
    query, limit = call.query, page_limit(call.query)
    labels = {"namespace": query.get("namespace"), "task": query.get("task")}
    found = await listed(engine, call.tenant, after=query.get("after", ""), limit=limit, sees=call.visible, **labels)
    return found, next_after(found, limit, lambda queue: queue.key.name)


async def known_tenants(engine: Engine, call: Call, after: str, limit: int) -> list[str]:
    """A page of the tenants that the caller has a grant for, by name; full as long as there are more, as `listed` is."""
    found: list[str] = []
    while len(found) < limit:
        page = await engine.tenants(after=after, limit=limit)
        found += [name for name in page if call.principal is None or call.principal.knows(name)]
        if len(page) < limit:
            break
        after = page[-1]
    return found[:limit]


async def figures(engine: Engine, queues: Sequence[Queue]) -> list[Scanned]:
    """The queues with their figures, without those that were deleted meanwhile."""
    found = []
    for start in range(0, len(queues), LOOKED_AT_ONCE):
        some = queues[start : start + LOOKED_AT_ONCE]
        for queue, stats in zip(some, await engine.browse.stats_of(some), strict=True):
            if stats is not None:
                found.append(Scanned(queue, stats))
    return found


def totals(seen: TenantScan, failed: Sequence[FailedCalls] = ()) -> Overview:
    """The sums over all queues. The messages of a dead-letter queue count as dead letters, not as depth."""
    working = [one.stats for one in seen.queues if not one.queue.holds_dead_letters]
    return Overview(
        queues=len(seen.queues),
        groups=sum(len(stats.groups) for stats in working),
        depth=sum(stats.depth for stats in working),
        scheduled=sum(stats.scheduled for stats in working),
        in_flight=sum(stats.in_flight for stats in working),
        dead_letters=sum(stats.dead_letters for stats in working),
        oldest_age_seconds=max((stats.oldest_age_seconds for stats in working), default=0.0),
        rates=Rates(
            sum(stats.rates.pushed for stats in working),
            sum(stats.rates.completed for stats in working),
            sum(stats.rates.retried for stats in working),
            sum(stats.rates.dead for stats in working),
        ),
        complete=seen.complete,
        failed_calls=sum(one.calls for one in failed),
    )
