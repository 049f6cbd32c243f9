"""`/api/v1/status…`: the status of the tenant, and of each queue."""

from __future__ import annotations

from skep.clock import Instant
from skep.engine.push.spool.spool import Spool, SpoolFigures
from skep.http.concerns import OLD_SECONDS, concerns, failed_calls
from skep.http.request import parameters
from skep.http.request.call import Answer, Call, json_answer
from skep.http.request.paging import AFTER_NAME, LIMIT, next_after, page_limit
from skep.http.request.permission import READ, READ_LIST, READ_SERVER
from skep.http.request.route import Parameter
from skep.http.routes.queues import queue_key
from skep.http.routes.route_table import RouteTable, Served
from skep.http.stuck import stuck_partitions
from skep.http.tenant_scan import Scanned, TenantScan, asked_page, figures, survey, totals
from skep.http.views import age_seconds, group_figures
from skep.model import QUEUE_MODE_GROUP, PartitionStats
from skep.wire.status import (
    BuffersResponse,
    BufferStatus,
    PartitionsResponse,
    PartitionStatus,
    QueueStatus,
    QueueStatusDetail,
    QueueStatusesResponse,
    SpoolStatus,
    StatusResponse,
    StuckResponse,
    Utilisation,
    UtilisationResponse,
    Verdict,
)
from skep.wire.times import to_datetime

WARNINGS = 100
OLDER_THAN = Parameter("olderThan", float, f"how many seconds a message may wait; {OLD_SECONDS:g} by default")


ROUTES: RouteTable[Served] = RouteTable("Status")


@ROUTES.route(
    "GET", "/api/v1/status/buffers", READ_SERVER, "See the messages that this server process has accepted and not stored yet",
    answers={200: BuffersResponse}, description="This is answered also while the store is away.",
)  # fmt: skip
async def buffers(served: Served, call: Call) -> Answer:  # noqa: ARG001 - they are of the process, and of no tenant
    held = served.engine.buffer.figures()
    qos0 = BufferStatus(held.pending, held.size_bytes, held.flushed, held.lost)
    return json_answer(BuffersResponse(_spool_status(served.engine.spool, served.engine.now()), qos0))


@ROUTES.route(
    "GET", "/api/v1/status", READ_LIST, "See the status of a tenant, with warnings",
    parameters=(OLDER_THAN,), answers={200: StatusResponse},
)  # fmt: skip
async def status(served: Served, call: Call) -> Answer:
    old = parameters.duration_seconds(call.query, "olderThan")
    seen = await survey(served.engine, call.tenant, sees=call.visible)
    warned = concerns(seen, OLD_SECONDS if old is None else old)
    failed = failed_calls(served.total(), call, served.engine.now())
    verdict = Verdict.ATTENTION if warned or failed else Verdict.OK
    return json_answer(StatusResponse(verdict, warned[:WARNINGS], totals(seen, failed), failed))


@ROUTES.route(
    "GET", "/api/v1/status/queues", READ_LIST, "See the status of queues", parameters=(AFTER_NAME, LIMIT),
    answers={200: QueueStatusesResponse},
)  # fmt: skip
async def queues(served: Served, call: Call) -> Answer:
    found, after = await asked_page(served.engine, call)
    return json_answer(
        QueueStatusesResponse([_queue_status(one) for one in await figures(served.engine, found)], after)
    )


@ROUTES.route(
    "GET", "/api/v1/status/queues/{queue}", READ, "See a queue and each of its groups",
    answers={200: QueueStatusDetail},
)  # fmt: skip
async def queue(served: Served, call: Call) -> Answer:
    key = queue_key(call)
    one = Scanned(await served.engine.get_queue(key), await served.engine.browse.queue_stats(key))
    groups = [group_figures(group) for group in one.stats.groups]
    return json_answer(QueueStatusDetail(_queue_status(one), groups))


@ROUTES.route(
    "GET", "/api/v1/status/queues/{queue}/partitions", READ,
    "See the partitions with unsettled messages of a group",
    parameters=(
        Parameter("consumerGroup", str, f"the group; {QUEUE_MODE_GROUP} by default"), AFTER_NAME, LIMIT,
    ),
    answers={200: PartitionsResponse},
    description="A group discovers partitions when it pops; partitions that it has not discovered yet are missing.",
)  # fmt: skip
async def partitions(served: Served, call: Call) -> Answer:
    limit = page_limit(call.query)
    group = call.query.get("consumerGroup", QUEUE_MODE_GROUP)
    found = await served.engine.browse.partition_stats(
        queue_key(call), group, after=call.query.get("after", ""), limit=limit
    )
    now = served.engine.now()
    after = next_after(found, limit, lambda one: one.partition)
    return json_answer(PartitionsResponse([_partition_status(one, now) for one in found], after))


@ROUTES.route(
    "GET", "/api/v1/status/stuck", READ_LIST,
    "Find partitions that do not move: an old message, or one that failed before; the worst first",
    parameters=(Parameter("queue", str, "only of this queue"), OLDER_THAN, LIMIT), answers={200: StuckResponse},
)  # fmt: skip
async def stuck(served: Served, call: Call) -> Answer:
    old = parameters.duration_seconds(call.query, "olderThan")
    limit = page_limit(call.query)
    if "queue" in call.query:
        named = await served.engine.get_queue(call.queue(call.query["queue"]))
        seen = TenantScan(await figures(served.engine, [named]), True)
    else:
        seen = await survey(served.engine, call.tenant, sees=call.visible)
    found = await stuck_partitions(served.engine, seen, OLD_SECONDS if old is None else old, limit)
    now = served.engine.now()
    return json_answer(StuckResponse([_partition_status(one, now) for one in found.partitions], found.complete))


@ROUTES.route(
    "GET", "/api/v1/status/utilisation", READ_LIST,
    "See how many of the partitions with work are being worked on, by queue and group",
    parameters=(AFTER_NAME, LIMIT), answers={200: UtilisationResponse},
)  # fmt: skip
async def utilisation(served: Served, call: Call) -> Answer:
    found, after = await asked_page(served.engine, call)
    shown = [
        Utilisation(
            group.queue.name, group.group, group.partitions_leased, group.partitions_pending,
            group.partitions_leased / (group.partitions_leased + group.partitions_pending or 1),
        )
        for one in await figures(served.engine, found)
        for group in one.stats.groups
    ]  # fmt: skip
    return json_answer(UtilisationResponse(shown, after))


def _spool_status(spool: Spool | None, now: Instant) -> SpoolStatus:
    found = SpoolFigures() if spool is None else spool.figures()
    oldest_at, away_since = found.oldest_at, found.away_since
    return SpoolStatus(
        enabled=spool is not None, state=found.state, pending=found.pending, flushed=found.flushed, failed=found.failed,
        bytes=found.size_bytes, max_bytes=found.max_bytes,
        oldest_age_seconds=0.0 if oldest_at is None else age_seconds(oldest_at, now),
        away_seconds=0.0 if away_since is None else age_seconds(away_since, now),
    )  # fmt: skip


def _queue_status(one: Scanned) -> QueueStatus:
    settings, stats = one.queue.settings, one.stats
    return QueueStatus(
        queue=one.queue.key.name, paused=settings.paused, holds_dead_letters=one.queue.holds_dead_letters,
        depth=stats.depth, max_depth=settings.max_depth, scheduled=stats.scheduled, in_flight=stats.in_flight,
        dead_letters=stats.dead_letters, oldest_age_seconds=stats.oldest_age_seconds, groups=len(stats.groups),
        rates=stats.rates,
    )  # fmt: skip


def _partition_status(one: PartitionStats, now: Instant) -> PartitionStatus:
    return PartitionStatus(
        queue=one.queue.name, consumer_group=one.group, partition=one.partition, pending=one.pending,
        in_flight=one.in_flight, attempts=one.attempts, oldest_at=to_datetime(one.oldest_at),
        oldest_age_seconds=age_seconds(one.oldest_at, now), ready_at=to_datetime(one.ready_at),
        lease_deadline=None if one.lease_deadline is None else to_datetime(one.lease_deadline), last_error=one.last_error,
    )  # fmt: skip
