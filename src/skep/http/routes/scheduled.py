"""`/api/v1/scheduled…`: look at scheduled messages, and change them before they are due."""

from __future__ import annotations

import msgspec

from skep.clock import Instant
from skep.engine import Engine
from skep.http.request.call import Answer, Call, json_answer
from skep.http.request.paging import AFTER_NAME, LIMIT, page_limit
from skep.http.request.permission import ADMIN, READ, READ_LIST
from skep.http.request.route import Parameter
from skep.http.routes.messages import PREVIEW, largest_message, preview_bytes
from skep.http.routes.route_table import RouteTable, Served
from skep.http.scheduled import of_query, of_selection, place_of, place_text, scheduled_view
from skep.http.views import wanted_id
from skep.ids import id_text
from skep.model.scheduled import Change
from skep.wire.scheduled import (
    ChangedMessage,
    ScheduledChanged,
    ScheduledMove,
    ScheduledResponse,
    ScheduledSelection,
    ScheduledView,
)
from skep.wire.times import to_datetime, to_instant

LIST_PARAMETERS = (
    Parameter("queue", str, "only of this queue"),
    Parameter("partition", str, "only of this partition"),
    Parameter("transactionId", str, "only with this transaction id"),
    Parameter("traceId", str, "only of this trace"),
    Parameter("dueAfter", str, "only those that are due at or after this time"),
    Parameter("dueBefore", str, "only those that are due before this time"),
    PREVIEW,
    AFTER_NAME,
    LIMIT,
)
MEANING = (
    "It is for the messages that match every given field; without any, for all of the queue. With `dryRun` they are only counted. "
    "Give the `mark` of that answer to the next call to limit it to the counted messages: messages that were scheduled or moved "
    "later are not touched."
)

_decode_selection = msgspec.json.Decoder(ScheduledSelection)
_decode_move = msgspec.json.Decoder(ScheduledMove)


ROUTES: RouteTable[Served] = RouteTable("Scheduled messages")


@ROUTES.route(
    "GET", "/api/v1/scheduled", READ_LIST,
    "List scheduled messages of a queue, or of all queues, in the order of their time",
    parameters=LIST_PARAMETERS, answers={200: ScheduledResponse},
    description="The walk per page is bounded, so a page may be short, or empty with `after` set.",
)  # fmt: skip
async def list_scheduled(served: Served, call: Call) -> Answer:
    query, sees = call.query, call.visible
    queue = call.queue(query["queue"]).name if "queue" in query else None
    limit, preview, after = page_limit(query), preview_bytes(query), place_of(query.get("after"))
    taken = min(limit * preview, served.answers.largest)
    room = await call.hold(served.answers, taken)
    wanted = of_query(query, call.tenant, queue)
    page = await served.engine.scheduled.page(wanted, after=after, limit=limit, preview_bytes=preview)
    room.keep(taken, sum(len(message.payload) for message in page.messages), at_any_rate=True)
    shown = [scheduled_view(message) for message in page.messages if sees(message.queue)]
    return json_answer(ScheduledResponse(shown, place_text(page.after)))


@ROUTES.route(
    "GET", "/api/v1/scheduled/{queue}/{messageId}", READ, "Show a scheduled message with its payload",
    parameters=(Parameter("queue", str, "the queue"), Parameter("messageId", str, "the message's id, a UUID")),
    answers={200: ScheduledView},
)  # fmt: skip
async def show(served: Served, call: Call) -> Answer:
    key = call.queue(call.path("queue"))
    await call.hold(served.answers, largest_message(served.engine))
    return json_answer(scheduled_view(await served.engine.scheduled.message(key, wanted_id(call.path("messageId")))))


@ROUTES.route(
    "POST", "/api/v1/scheduled/cancel", ADMIN, "Cancel scheduled messages: they never enter the log",
    request=ScheduledSelection, answers={200: ScheduledChanged},
    description=f"{MEANING} A transaction id stays taken until its deduplication window ends.",
    example={"queue": "orders", "partition": "customer-1", "dryRun": True},
)  # fmt: skip
async def cancel(served: Served, call: Call) -> Answer:
    return await _changed(served.engine, call, await call.json(_decode_selection), Change.CANCEL)


async def _changed(
    engine: Engine, call: Call, selection: ScheduledSelection, what: Change, deliver_at: Instant | None = None
) -> Answer:
    call.queue(selection.queue)
    call.note(dry_run=selection.dry_run)
    wanted = of_selection(selection, call.tenant)
    if selection.dry_run:
        done = await engine.scheduled.count(wanted)
    else:
        done = await engine.scheduled.change(wanted, what, deliver_at)
    call.note(
        count=done.count,
        dry_run=selection.dry_run,
        after=None if deliver_at is None else str(to_datetime(deliver_at)),
    )
    named = [ChangedMessage(id_text(one.id), one.seq) for one in done.changed]
    return json_answer(ScheduledChanged(selection.dry_run, done.count, done.mark, named))


@ROUTES.route(
    "POST", "/api/v1/scheduled/run", ADMIN, "Let scheduled messages enter the log now, in the order of their time",
    request=ScheduledSelection, answers={200: ScheduledChanged}, description=MEANING,
    example={"queue": "orders", "dueBefore": "2026-12-01T00:00:00Z", "dryRun": True},
)  # fmt: skip
async def run(served: Served, call: Call) -> Answer:
    return await _changed(served.engine, call, await call.json(_decode_selection), Change.RUN)


@ROUTES.route(
    "POST", "/api/v1/scheduled/move", ADMIN, "Move scheduled messages to another time", request=ScheduledMove,
    answers={200: ScheduledChanged},
    description=f"{MEANING} Among messages that are due at the same time, moved ones come last.",
    example={"queue": "orders", "transactionId": "order-1", "deliverAt": "2026-12-24T08:00:00Z"},
)  # fmt: skip
async def move(served: Served, call: Call) -> Answer:
    wanted = await call.json(_decode_move)
    call.queue(wanted.queue)
    return await _changed(served.engine, call, wanted, Change.MOVE, to_instant(wanted.deliver_at))
