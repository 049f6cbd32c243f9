"""`/api/v1/operations…`: queued calls, their states, and the figures of their queue."""

from __future__ import annotations

from datetime import datetime

import msgspec
from msgspec import UNSET, Raw

from skep.clock import Instant
from skep.engine import Engine
from skep.http.pushing import pushed_messages
from skep.http.request import parameters
from skep.http.request.call import Answer, Call, json_answer
from skep.http.request.paging import AFTER_SEQ, LIMIT, page_limit
from skep.http.request.permission import ADMIN, POP_OR_PUSH, READ_LIST, READ_TENANT
from skep.http.request.route import Parameter
from skep.http.routes.ack import lease_result
from skep.http.routes.route_table import RouteTable
from skep.http.views import age_seconds, wanted_id
from skep.ids import id_text
from skep.model.key import Verb
from skep.model.operation import Operation as Kept
from skep.model.operation import OperationFilter, OperationKind, OperationResult, OperationStatus, decode_result
from skep.wire.messages import NULL, AckBatchResponse, AckResult, PushResponse
from skep.wire.operations import (
    OperationFiguresView,
    OperationsResponse,
    OperationStatsResponse,
    OperationView,
    PoolView,
)
from skep.wire.times import to_datetime

OPERATION = Parameter("operation", str, "the id that the call was answered with")

_encode = msgspec.json.Encoder().encode


ROUTES: RouteTable[Engine] = RouteTable("Operations")


@ROUTES.route(
    "GET", "/api/v1/operations", READ_LIST, "List queued calls, newest first", answers={200: OperationsResponse},
    parameters=(
        Parameter("status", OperationStatus, "only with this status"), Parameter("kind", OperationKind, "only of this kind"),
        Parameter("queue", str, "only of this queue"), Parameter("partition", str, "only of this partition"),
        AFTER_SEQ, LIMIT,
    ),
    description="A page may be short, or empty with `after` set.",
)  # fmt: skip
async def list_operations(engine: Engine, call: Call) -> Answer:
    query = call.query
    wanted = OperationFilter(
        tenant=call.tenant,
        status=parameters.choice(query, "status", OperationStatus),
        kind=parameters.choice(query, "kind", OperationKind),
        queue=query.get("queue"),
        partition=query.get("partition"),
    )
    page = await engine.operations.page(wanted, parameters.position(query, "after"), page_limit(query))
    now, visible = engine.now(), call.visible
    shown = [view(one, now) for one in page.operations if visible(one.queue)]
    return json_answer(OperationsResponse(shown, page.after))


@ROUTES.route(
    "GET", "/api/v1/operations/stats", READ_TENANT, "See the figures of the queue of operations",
    answers={200: OperationStatsResponse},
    description="Live operations are counted, and the latest 100,000 ended ones. Figures of all tenants together are null for a "
    "caller who may not read all tenants.",
)  # fmt: skip
async def stats(engine: Engine, call: Call) -> Answer:
    figures = [
        OperationFiguresView(
            one.kind, one.priority, one.status, one.count, to_datetime(one.oldest_at), to_datetime(one.newest_at),
            one.average_seconds,
        )
        for one in await engine.operations.figures(call.tenant)
    ]  # fmt: skip
    if not call.sees_server:
        return json_answer(OperationStatsResponse(figures))
    pool, kept = engine.connections(), engine.operations
    return json_answer(
        OperationStatsResponse(
            figures, kept.depth, _age(engine), kept.stuck, kept.blocked, round(kept.drain_rate, 3),
            PoolView(round(pool.utilisation, 3), pool.active, pool.idle, pool.waiting),
        )
    )  # fmt: skip


@ROUTES.route(
    "GET", "/api/v1/operations/{operation}", POP_OR_PUSH, "Show a queued call, with its result once it is completed",
    parameters=(OPERATION,), answers={200: OperationView},
)  # fmt: skip
async def show(engine: Engine, call: Call) -> Answer:
    found = await engine.operations.find(call.tenant, wanted_id(call.path("operation")))
    call.check(found.queue, Verb.PUSH if found.kind is OperationKind.PUSH else Verb.POP)
    return json_answer(view(found, engine.now()))


@ROUTES.route(
    "DELETE", "/api/v1/operations/{operation}", ADMIN, "Cancel a queued call that nobody performs just now",
    parameters=(OPERATION,), answers={200: OperationView},
    description="409 with OPERATION_NOT_PENDING when it is too late.",
)  # fmt: skip
async def cancel(engine: Engine, call: Call) -> Answer:
    id_ = wanted_id(call.path("operation"))
    call.check((await engine.operations.find(call.tenant, id_)).queue)
    found = await engine.operations.cancel(call.tenant, id_)
    return json_answer(view(found, engine.now()))


def view(one: Kept, now: Instant) -> OperationView:
    """An operation as a struct of the wire."""
    return OperationView(
        id_text(one.id), one.kind, one.queue.name, one.partition, one.priority, one.status, one.messages, one.size_bytes,
        to_datetime(one.created_at), _time(one.started_at), _time(one.processed_at), _time(one.ready_at) if one.live else None,
        _time(one.blocked_at), _time(one.error_at), None if one.processed_at is None else age_seconds(one.created_at, one.processed_at),
        one.worker, one.timeout_seconds, one.tries, one.max_retries, one.stuck(now), one.error, one.code,
        one.dead_letter_queue, NULL if one.result is None else _result(decode_result(one.result)),
    )  # fmt: skip


def _age(engine: Engine) -> float:
    oldest_at = engine.operations.oldest_at
    return 0.0 if oldest_at is None else age_seconds(oldest_at, engine.now())


def _time(at: Instant | None) -> datetime | None:
    return None if at is None else to_datetime(at)


def _result(result: OperationResult) -> Raw:
    """The answer of the call."""
    if result.settled is not None:
        acks = [
            lease_result(one)
            if seq is None
            else AckResult(seq, one.status, one.code, _time(one.retry_at), one.dead_letter_queue, one.repeated or UNSET)
            for seq, one in zip(result.seqs or [], result.settled, strict=True)
        ]
        return Raw(_encode(AckBatchResponse(acks)))
    return Raw(_encode(PushResponse(True, False, True, pushed_messages(result.pushed or []), {})))
