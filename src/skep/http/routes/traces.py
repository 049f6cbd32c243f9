"""`/api/v1/traces…`: follow a trace across queues, with the events of workers."""

from __future__ import annotations

import msgspec
from msgspec import Raw

from skep.clock import Instant
from skep.engine.history import DATA_BYTES
from skep.errors import Code
from skep.http.request import parameters
from skep.http.request.call import Answer, Call, json_answer
from skep.http.request.paging import AFTER_NAME, AFTER_SEQ, LIMIT, next_after, page_limit
from skep.http.request.permission import POP, READ_LIST, READ_TENANT
from skep.http.request.route import Parameter
from skep.http.routes.route_table import RouteTable, Served
from skep.http.scheduled import browsed_scheduled
from skep.http.views import browsed_message, wanted_id
from skep.ids import id_text
from skep.model import QueueKey
from skep.model.history import TraceEvent
from skep.model.key import Verb
from skep.model.scheduled import ScheduledFilter, ScheduledMessage
from skep.wire.browsing import TraceResponse
from skep.wire.times import to_datetime
from skep.wire.traces import (
    NamedTrace,
    NewTraceEvent,
    TellRequest,
    TellResponse,
    TraceEventsResponse,
    TraceEventView,
    TraceNamesResponse,
)

TRACE_MESSAGES = 1_000

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(TellRequest)


ROUTES: RouteTable[Served] = RouteTable("Traces")


@ROUTES.route(
    "POST", "/api/v1/traces", POP, "Report events of a trace", request=TellRequest,
    answers={201: TellResponse}, description="Each event gets the time of this call. Events are kept for a week.",
    example={"events": [{"traceId": "01a1de2f-4a86-75f1-89bd-cf7336a85775", "name": "charged card",
                         "data": {"amount": 99.5}}]},
)  # fmt: skip
async def tell(served: Served, call: Call) -> Answer:
    request = await call.json(_decode)
    for event in request.events:
        if event.queue is None:
            call.check_tenant(Verb.POP)
        else:
            call.queue(event.queue)
    await served.engine.history.tell([_event(event) for event in request.events], call.tenant)
    return json_answer(TellResponse(len(request.events)), 201)


@ROUTES.route(
    "GET", "/api/v1/traces/names", READ_TENANT, "List the names of events, and when each last happened",
    parameters=(AFTER_NAME, LIMIT), answers={200: TraceNamesResponse},
)  # fmt: skip
async def names(served: Served, call: Call) -> Answer:
    limit = page_limit(call.query)
    found = await served.engine.history.names(call.tenant, after=call.query.get("after", ""), limit=limit)
    shown = [NamedTrace(one.name, to_datetime(one.last_at)) for one in found]
    return json_answer(TraceNamesResponse(shown, next_after(found, limit, lambda one: one.name)))


@ROUTES.route(
    "GET", "/api/v1/traces/by-name", READ_LIST, "Find events, and so their traces, by the name of the event, newest first",
    parameters=(
        Parameter("name", str, "the name of the events", required=True), AFTER_SEQ, LIMIT,
    ),
    answers={200: TraceEventsResponse},
)  # fmt: skip
async def by_name(served: Served, call: Call) -> Answer:
    limit = page_limit(call.query)
    before = parameters.position(call.query, "after")
    name = parameters.needed(call.query, "name")
    call.visible  # noqa: B018 - it may find nothing to ask it for
    taken = min(limit * DATA_BYTES, served.answers.largest)
    room = await call.hold(served.answers, taken)
    found = await served.engine.history.events_named(name, call.tenant, before=before, limit=limit)
    room.keep(taken, sum(len(event.data) for event in found), at_any_rate=True)
    told = [_view(event) for event in found if is_seen(event, call)]
    return json_answer(TraceEventsResponse(told, next_after(found, limit, lambda one: one.position)))


@ROUTES.route(
    "GET", "/api/v1/traces/{traceId}", READ_LIST,
    "Follow a trace across queues, oldest message first, then scheduled ones, with its events",
    parameters=(
        Parameter("traceId", str, "the trace's id, a UUID"),
        Parameter("limit", int, f"how many messages at most; {TRACE_MESSAGES} by default"),
    ),
    answers={200: TraceResponse},
    description="Payloads are whole up to `page_bytes` together, oldest message first; of further messages `payload` and `preview` are empty. "
    "Show such a message by its seq.",
)  # fmt: skip
async def trace(served: Served, call: Call) -> Answer:
    trace_id = wanted_id(call.path("traceId"), Code.INVALID_TRACE_ID)
    limit = page_limit(call.query) if "limit" in call.query else TRACE_MESSAGES
    most = served.engine.settings.limits.page_bytes
    taken = min(most + limit * DATA_BYTES, served.answers.largest)
    room = await call.hold(served.answers, taken)
    found = await served.engine.browse.trace(trace_id, call.tenant, limit=limit)
    events = await served.engine.history.events(trace_id, call.tenant, limit=limit)
    size = sum(len(message.payload) for message in found)
    waiting: list[ScheduledMessage] = []
    if len(found) < limit:
        rows = limit - len(found)
        wanted = ScheduledFilter(tenant=call.tenant, trace_id=trace_id)
        share = max(0, most - size) // rows
        waiting = (await served.engine.scheduled.page(wanted, limit=rows, preview_bytes=share)).messages
    size += sum(len(message.payload) for message in waiting) + sum(len(event.data) for event in events)
    room.keep(taken, size, at_any_rate=True)
    sees = call.visible
    shown = [browsed_message(message) for message in found if sees(message.queue)]
    shown += [browsed_scheduled(message) for message in waiting if sees(message.queue)]
    told = [_view(event) for event in events if is_seen(event, call)]
    return json_answer(TraceResponse(id_text(trace_id), shown, told))


def is_seen(event: TraceEvent, call: Call) -> bool:
    """Whether an event may be in an answer. An event of no queue is only for callers who see all queues."""
    sees = call.visible
    return call.sees_all if event.queue is None else sees(QueueKey(event.queue, call.tenant))


def _event(told: NewTraceEvent) -> TraceEvent:
    return TraceEvent(
        trace_id=wanted_id(told.trace_id, Code.INVALID_TRACE_ID), name=told.name, data=_encode(told.data), at=Instant(0),
        message_id=None if told.message_id is None else wanted_id(told.message_id), queue=told.queue,
    )  # fmt: skip


def _view(event: TraceEvent) -> TraceEventView:
    return TraceEventView(
        id_text(event.trace_id), event.name, Raw(event.data), to_datetime(event.at),
        None if event.message_id is None else id_text(event.message_id), event.queue,
    )  # fmt: skip
