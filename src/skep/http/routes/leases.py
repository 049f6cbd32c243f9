"""`/api/v1/status/leases` and the histories: live leases, ended leases, and the passes of retention."""

from __future__ import annotations

from skep.clock import Instant, seconds
from skep.engine import Engine
from skep.http.request import parameters
from skep.http.request.call import Answer, Call, json_answer
from skep.http.request.paging import AFTER_SEQ, LIMIT, next_after, page_limit
from skep.http.request.permission import READ, READ_LIST
from skep.http.request.route import Parameter
from skep.http.routes.route_table import RouteTable
from skep.http.views import age_seconds, consumer_view
from skep.model import LeaseInfo
from skep.model.history import FinishedLease
from skep.wire.status import (
    EndedLease,
    LeaseHistoryResponse,
    LeasesResponse,
    LiveLease,
    RetentionResponse,
    RetentionRun,
)
from skep.wire.times import to_datetime

QUEUE = Parameter("queue", str, "the queue", required=True)


ROUTES: RouteTable[Engine] = RouteTable("Status")


@ROUTES.route(
    "GET", "/api/v1/status/leases", READ_LIST, "See who holds leases; those that end first come first",
    parameters=(
        Parameter("queue", str, "only of this queue"),
        Parameter("expiringWithin", float, "only leases that end within this many seconds"),
        LIMIT,
    ),
    answers={200: LeasesResponse},
)  # fmt: skip
async def leases(engine: Engine, call: Call) -> Answer:
    query = call.query
    within = parameters.duration_seconds(query, "expiringWithin")
    now = engine.now()
    limit, sees = page_limit(query), call.visible
    found = await engine.browse.leases(
        call.tenant,
        key=call.queue(query["queue"]) if "queue" in query else None,
        expiring_before=None if within is None else Instant(now + seconds(within)),
        # A caller that may not see all queues sees only its own among the leases that end first.
        limit=limit if call.sees_all else engine.settings.limits.page,
    )
    return json_answer(LeasesResponse([_live(one, now) for one in found if sees(one.queue)][:limit]))


@ROUTES.route(
    "GET", "/api/v1/status/retention", READ, "See what retention removed from a queue, newest first",
    parameters=(QUEUE, LIMIT), answers={200: RetentionResponse},
)  # fmt: skip
async def retention(engine: Engine, call: Call) -> Answer:
    key = call.queue(parameters.needed(call.query, "queue"))
    passes = await engine.browse.retention_history(key, limit=page_limit(call.query))
    shown = [RetentionRun(to_datetime(one.at), one.deleted, one.first_seq, one.settled_seq) for one in passes]
    return json_answer(RetentionResponse(key.name, shown))


@ROUTES.route(
    "GET", "/api/v1/status/lease-history", READ, "See how leases of a queue ended, in order",
    parameters=(QUEUE, AFTER_SEQ, LIMIT), answers={200: LeaseHistoryResponse},
)  # fmt: skip
async def history(engine: Engine, call: Call) -> Answer:
    key = call.queue(parameters.needed(call.query, "queue"))
    limit = page_limit(call.query)
    found = await engine.browse.lease_history(key, after=parameters.position(call.query, "after") or 0, limit=limit)
    after = next_after(found, limit, lambda one: one[0])
    return json_answer(LeaseHistoryResponse(key.name, [_ended(*one) for one in found], after))


def _live(one: LeaseInfo, now: Instant) -> LiveLease:
    return LiveLease(
        queue=one.queue.name, consumer_group=one.group, partition=one.partition, messages=one.messages,
        first_seq=one.first_seq, attempts=one.attempts, leased_at=to_datetime(one.leased_at),
        lease_deadline=to_datetime(one.deadline), remaining_seconds=age_seconds(now, one.deadline),
        last_seq=one.last_seq, consumer=consumer_view(one.consumer),
    )  # fmt: skip


def _ended(position: int, one: FinishedLease) -> EndedLease:
    return EndedLease(
        position=position, consumer_group=one.group, partition=one.partition, first_seq=one.first_seq,
        last_seq=one.last_seq, messages=one.messages, completed=one.completed, attempt=one.attempt,
        leased_at=to_datetime(one.leased_at), settled_at=to_datetime(one.settled_at), outcome=one.outcome,
    )  # fmt: skip
