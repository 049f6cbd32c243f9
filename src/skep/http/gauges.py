"""The gauges of the metrics. A reading is bounded and cached for a while, so that scraping cannot hurt."""

from __future__ import annotations

import asyncio

import msgspec

from skep.clock import Instant, seconds
from skep.config import HttpLimits
from skep.engine import Engine
from skep.engine.answers import Answers
from skep.engine.push.spool.spool import SpoolFigures
from skep.errors import SkepError
from skep.http.tenant_scan import Scanned, survey
from skep.http.views import held_by
from skep.observe.exposition import AnswerGauges, ArchiveGauges, Gauges, GroupGauges, OperationGauges, QueueGauges

GROUPS_PER_QUEUE = 5
"""The most groups with gauges of their own, as a multiple of the most queues."""
READ_SECONDS = 5.0
"""A store that is slower than this counts as unreachable."""
TENANTS = 100


class GaugeReader:
    """Reads the figures of queues and groups."""

    def __init__(self, engine: Engine, limits: HttpLimits, answers: Answers) -> None:
        self._engine = engine
        self._answers = answers
        self._queues = limits.metrics_queues
        self._keep = seconds(limits.metrics_seconds)
        self._read_at: Instant | None = None
        self._last = Gauges()
        self._reading = asyncio.Lock()

    async def read(self) -> Gauges:
        """The figures, not older than allowed. Callers that ask at the same time share one reading."""
        async with self._reading:
            now = self._engine.steady()
            if self._read_at is None or now - self._read_at >= self._keep:
                self._last = await self._read()
                self._read_at = now
        connections = self._engine.connections()
        return msgspec.structs.replace(
            self._last,
            parked_polls=self._engine.parked_polls,
            connections_active=connections.active,
            connections_idle=connections.idle,
            operations=_operations(self._engine),
            answers=_answers(self._answers),
            **_buffered(self._engine),
        )

    async def _read(self) -> Gauges:
        try:
            async with asyncio.timeout(READ_SECONDS):
                gauges = await self._look()
        except (SkepError, TimeoutError):
            return Gauges(store_up=False, complete=False)
        return msgspec.structs.replace(gauges, store_up=await self._takes_writes())

    async def _takes_writes(self) -> bool:
        try:
            async with asyncio.timeout(READ_SECONDS):
                await self._engine.check_writable()
        except (SkepError, TimeoutError):
            return False
        return True

    async def _look(self) -> Gauges:
        tenants = await self._engine.tenants(limit=TENANTS)
        complete = len(tenants) < TENANTS
        seen: list[Scanned] = []
        for tenant in tenants:
            left = self._queues - len(seen)
            if left <= 0:
                complete = False
                break
            found = await survey(self._engine, tenant, left)
            seen += found.queues
            complete = complete and found.complete
        most = GROUPS_PER_QUEUE * self._queues
        groups = _group_gauges(seen)
        return Gauges(
            queues=[_queue_gauges(one) for one in seen],
            groups=groups[:most],
            complete=complete and len(groups) <= most,
        )


def _queue_gauges(one: Scanned) -> QueueGauges:
    key, stats = one.queue.key, one.stats
    waits = stats.archive
    archive = None if waits is None else ArchiveGauges(waits.unarchived, waits.unarchived_seconds)
    return QueueGauges(
        key.tenant, key.name, stats.depth, stats.in_flight, stats.dead_letters, stats.oldest_age_seconds, archive
    )


def _operations(engine: Engine) -> OperationGauges:
    """Calls that were queued, as this process knows of them."""
    kept = engine.operations
    return OperationGauges(
        {kind.value: depth for kind, depth in kept.depth_by_kind.items()},
        {kind.value: kept.completed[kind] for kind in kept.depth_by_kind},
        {kind.value: kept.failed[kind] for kind in kept.depth_by_kind},
        0.0 if kept.oldest_at is None else max(0, engine.now() - kept.oldest_at) / 1_000_000,
        kept.stuck,
        kept.blocked,
    )


def _answers(held: Answers) -> AnswerGauges:
    """Payloads of answers that this process holds."""
    return AnswerGauges(
        held.held_bytes, held.peak_bytes, held.most_bytes, len(held.line), held.waited, held.refused, held.cut_off
    )


def _buffered(engine: Engine) -> dict[str, int | bool]:
    """Messages that this process has taken and not stored yet."""
    spool = SpoolFigures() if engine.spool is None else engine.spool.figures()
    held = engine.buffer.figures()
    return {
        "spool_pending": spool.pending, "spool_flushed": spool.flushed, "spool_failed": spool.failed,
        "spool_bytes": spool.size_bytes, "store_away": engine.store_away,
        "buffer_pending": held.pending, "buffer_flushed": held.flushed, "buffer_lost": held.lost,
    }  # fmt: skip


def _group_gauges(seen: list[Scanned]) -> list[GroupGauges]:
    return [
        GroupGauges(
            group.queue.tenant, group.queue.name, group.group, group.lag_messages, group.lag_seconds, group.inactive_seconds,
            group.idle, *held_by(group, one.stats), group.in_flight / max(1, group.lag_messages),
        )
        for one in seen
        for group in one.stats.groups
    ]  # fmt: skip
