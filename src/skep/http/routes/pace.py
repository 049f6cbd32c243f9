"""`/api/v1/status/queues/{queue}/pace` and `/api/v1/status/consumers`: how a queue keeps up, and its consumers."""

from __future__ import annotations

from skep.engine import Engine
from skep.engine.pace import Pace, Percentiles, Timing, pace
from skep.engine.pop.consumers import Connected
from skep.http.request.call import Answer, Call, json_answer
from skep.http.request.permission import READ, READ_LIST
from skep.http.request.route import Parameter
from skep.http.routes.route_table import RouteTable
from skep.http.views import consumer_view
from skep.model import QueueKey, QueueStats
from skep.wire.pace import ConnectedConsumer, ConsumersResponse, DurationsView, GroupTiming, PaceResponse
from skep.wire.times import to_datetime

LEASES = 1_000
"""The most live leases that are searched for consumers. Those that end first come first."""


async def pace_of(engine: Engine, stats: QueueStats, *, paused: bool) -> tuple[Pace, dict[str, Timing]]:
    """How a queue keeps up, and its wait and handler times by group."""
    key = stats.queue
    times = await engine.history.timings(key)
    return pace(stats, paused=paused, times=times, waiting=lambda group: engine.consumers.waiting(key, group)), times


async def connected(engine: Engine, call: Call, key: QueueKey | None) -> list[Connected]:
    """The consumers that the caller may see, of a queue or of all queues."""
    leases = await engine.browse.leases(call.tenant, key=key, limit=LEASES)
    sees, sees_all = call.visible, call.sees_all
    return [
        one
        for one in engine.consumers.of(call.tenant, leases)
        if (key is None or one.queue == key) and (sees(one.queue) if one.queue.name else sees_all)
    ]


ROUTES: RouteTable[Engine] = RouteTable("Status")


@ROUTES.route(
    "GET", "/api/v1/status/queues/{queue}/pace", READ,
    "See how a queue keeps up: wait and handler times, and why it is slow", answers={200: PaceResponse},
)  # fmt: skip
async def keeps_up(engine: Engine, call: Call) -> Answer:
    key = call.queue(call.path("queue"))
    found = await engine.get_queue(key)
    told, times = await pace_of(engine, await engine.browse.queue_stats(key), paused=found.settings.paused)
    shown = [GroupTiming(group, _durations(one.wait), _durations(one.handler)) for group, one in times.items()]
    return json_answer(PaceResponse(key.name, told.sentence, told.trend, told.cause, told.group, shown))


@ROUTES.route(
    "GET", "/api/v1/status/consumers", READ_LIST, "See which consumers wait for messages, popped lately, or hold leases",
    parameters=(Parameter("queue", str, "only of this queue"),), answers={200: ConsumersResponse},
    description="Waiting and recent consumers are those of the server process that answers; leases are those of all servers.",
)  # fmt: skip
async def consumers(engine: Engine, call: Call) -> Answer:
    key = call.queue(call.query["queue"]) if "queue" in call.query else None
    return json_answer(ConsumersResponse([_shown(one) for one in await connected(engine, call, key)]))


def _durations(one: Percentiles | None) -> DurationsView | None:
    return None if one is None else DurationsView(one.count, one.p50, one.p95, one.p99)


def _shown(one: Connected) -> ConnectedConsumer:
    return ConnectedConsumer(
        one.queue.name or None, one.group, consumer_view(one.consumer), one.waiting, one.leases, one.messages,
        to_datetime(one.last_at),
    )  # fmt: skip
