"""`/api/v1/dlq…`: look at dead letters, replay and purge them."""

from __future__ import annotations

import msgspec

from skep.http import dead_letter_requests
from skep.http.request import parameters
from skep.http.request.call import Answer, Call, json_answer
from skep.http.request.paging import AFTER_SEQ, LIMIT, page_limit
from skep.http.request.permission import ADMIN, PUSH, READ
from skep.http.request.route import Parameter
from skep.http.routes.messages import PREVIEW, largest_message, preview_bytes
from skep.http.routes.route_table import RouteTable, Served
from skep.http.views import dead_letter_view
from skep.model import DeadReason, QueueKey, Seq
from skep.model.record import Buried, Unfit
from skep.wire.dead_letters import (
    BuryRequest,
    DeadLetterSelection,
    DeadLettersResponse,
    DeadLetterView,
    PurgeResponse,
)

TAG = "Dead letters"
LIST_PARAMETERS = (
    Parameter("queue", str, "a dead-letter queue, or a queue whose own dead letters are meant", required=True),
    Parameter("sourceQueue", str, "only from this queue"),
    Parameter("partition", str, "only of this partition"),
    Parameter("consumerGroup", str, "only those that this group gave up on"),
    Parameter("reason", DeadReason, "only those with this reason"),
    Parameter("error", str, "only those whose error contains this text"),
    Parameter("since", str, "only those that died at or after this time"),
    Parameter("until", str, "only those that died before this time"),
    PREVIEW,
    AFTER_SEQ,
    LIMIT,
)

LETTER_PARAMETERS = (
    Parameter("queue", str, "a dead-letter queue, or a queue whose own dead letters are meant"),
    Parameter("letter", str, "the dead letter's seq or id"),
)

_decode_burial = msgspec.json.Decoder(BuryRequest)
_decode_selection = msgspec.json.Decoder(DeadLetterSelection)


ROUTES: RouteTable[Served] = RouteTable(TAG)


@ROUTES.route(
    "GET", "/api/v1/dlq", READ, "List dead letters in the order in which they died", parameters=LIST_PARAMETERS,
    answers={200: DeadLettersResponse},
    description="A page ends with the letter whose payload reaches `page_bytes`, so it may be short with `after` set.",
)  # fmt: skip
async def list_letters(served: Served, call: Call) -> Answer:
    query = call.query
    limit, preview = page_limit(query), preview_bytes(query)
    after = parameters.position(query, "after")
    wanted = dead_letter_requests.of_query(query, call.tenant)
    await call.hold(served.answers, dead_letter_requests.page_bytes(served.engine))
    letters, follows = await dead_letter_requests.found(
        served.engine, wanted, None if after is None else Seq(after), limit, call
    )
    return json_answer(DeadLettersResponse([dead_letter_view(letter, preview) for letter in letters], follows))


@ROUTES.route(
    "GET", "/api/v1/dlq/{queue}/{letter}", READ, "Show a dead letter with its payload", parameters=LETTER_PARAMETERS,
    answers={200: DeadLetterView},
)  # fmt: skip
async def show(served: Served, call: Call) -> Answer:
    key = QueueKey(call.path("queue"), call.tenant)
    await call.hold(served.answers, largest_message(served.engine))
    return json_answer(dead_letter_view(await dead_letter_requests.one(served.engine, key, call.path("letter"), call)))


@ROUTES.route(
    "POST", "/api/v1/dlq/bury", PUSH, "Put messages of a log among its queue's dead letters, once",
    request=BuryRequest, answers={200: Buried},
    description="For readers of the log without leases, such as pipelines. The log and its groups keep the messages. A repeat "
    "with the same name gets the same answer and changes nothing.",
    example={"queue": "orders", "name": "billing-7", "letters": [{"seq": 5, "error": "there is no such customer"}]},
)  # fmt: skip
async def bury(served: Served, call: Call) -> Answer:
    wanted = await call.json(_decode_burial)
    unfit = [Unfit(one.seq, one.error) for one in wanted.letters]
    return json_answer(await served.engine.dead_letters.bury(call.queue(wanted.queue), unfit, wanted.name))


@ROUTES.route(
    "POST", "/api/v1/dlq/purge", ADMIN, "Delete dead letters for good", request=DeadLetterSelection,
    answers={200: PurgeResponse}, example={"queue": "orders.dead", "until": "2026-01-01T00:00:00Z", "dryRun": True},
)  # fmt: skip
async def purge(served: Served, call: Call) -> Answer:
    selection = await call.json(_decode_selection)
    wanted = await dead_letter_requests.meant(
        served.engine, dead_letter_requests.of_selection(selection, call.tenant), call
    )
    call.note(count=0, dry_run=selection.dry_run)
    if wanted is None:
        return json_answer(PurgeResponse(selection.dry_run, 0))
    if selection.dry_run:
        wanted = await dead_letter_requests.marked(served.engine, wanted)
    count = await served.engine.dead_letters.purge(wanted, dry_run=selection.dry_run)
    named = [*(selection.seqs or ()), *(selection.ids or ())]
    call.note(count=count, dry_run=selection.dry_run, target=dead_letter_requests.named_letters(wanted.queue, named))
    return json_answer(PurgeResponse(selection.dry_run, count, wanted.up_to))
