"""The queues of a namespace or task, in the order in which a pop looks at them.

Higher priority comes first. Among queues of equal priority the first one changes with each pop, so that none starves.
"""

from __future__ import annotations

from itertools import groupby
from typing import NamedTuple

import structlog

from skep.clock import Clock, Instant, seconds
from skep.config import EngineSettings
from skep.model import Queue, QueueKey
from skep.store.protocol.queues import QueueVerbs

PAGE = 100
REMEMBERED = 1_000

log = structlog.get_logger("skep.engine")


class Match(NamedTuple):
    """A tenant's queues of a namespace, a task, or both."""

    tenant: str
    namespace: str | None
    task: str | None


class Matching:
    """Finds queues by namespace and task, and remembers them for a while."""

    def __init__(self, store: QueueVerbs, clock: Clock, settings: EngineSettings) -> None:
        self._store = store
        self._clock = clock
        self._believed = seconds(settings.matching_seconds)
        self._most = settings.limits.matching_queues
        self._known: dict[Match, tuple[Instant, list[list[QueueKey]]]] = {}
        self._turns: dict[Match, int] = {}

    def forget(self) -> None:
        """Forget all lists, as queues have come, gone or changed. A list that is being read now is not remembered."""
        self._known = {}

    async def queues(self, match: Match) -> list[QueueKey]:
        """The queues to look at, in order; the next call begins with another one of each priority."""
        now = self._clock.steady()
        remembered = self._known
        known = remembered.get(match)
        if known is None or known[0] <= now:
            if len(remembered) >= REMEMBERED:
                remembered.clear()
            known = remembered[match] = (Instant(now + self._believed), await self._look(match))
        turn = self._turns.get(match, 0)
        if not turn and len(self._turns) >= REMEMBERED:
            self._turns.clear()
        self._turns[match] = turn + 1
        ordered: list[QueueKey] = []
        for equals in known[1]:
            start = turn % len(equals)
            ordered += equals[start:]
            ordered += equals[:start]
        return ordered

    async def _look(self, match: Match) -> list[list[QueueKey]]:
        found: list[Queue] = []
        after = ""
        while page := await self._store.list_queues(
            match.tenant, after=after, limit=PAGE, namespace=match.namespace, task=match.task
        ):
            found += page
            after = page[-1].key.name
            if len(found) >= self._most:
                log.warning("too many queues match; the others are left out", most=self._most, match=match)
                break
        found.sort(key=lambda queue: (-queue.settings.priority, queue.key))
        by_priority = groupby(found[: self._most], key=lambda queue: queue.settings.priority)
        return [[queue.key for queue in equals] for _, equals in by_priority]
