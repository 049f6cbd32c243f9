"""`/api/v1/dlq…`: messages given up on, and what becomes of them."""

from __future__ import annotations

import msgspec

from skep.engine import Engine
from skep.engine.answers import Answers
from skep.http import dead_letters
from skep.http.request import parameters
from skep.http.request.call import Answer, Call, json_answer
from skep.http.request.paging import AFTER_SEQ, LIMIT, page_limit
from skep.http.request.permission import ADMIN, PUSH, READ
from skep.http.request.route import Parameter, Route
from skep.http.routes.messages import PREVIEW, preview_bytes
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
    Parameter("reason", DeadReason, "only those that died of this"),
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


def routes(engine: Engine, answers: Answers) -> list[Route]:
    """Dead letters. What is shown of payloads is held in the room of ``answers``."""
    limits = engine.settings.limits
    largest = limits.payload_bytes + limits.headers_bytes

    async def list_letters(call: Call) -> Answer:
        query = call.query
        limit, preview = page_limit(query), preview_bytes(query)
        after = parameters.position(query, "after")
        wanted = dead_letters.of_query(query, call.tenant)
        await call.hold(answers, dead_letters.page_bytes(engine))
        letters, follows = await dead_letters.found(engine, wanted, None if after is None else Seq(after), limit, call)
        return json_answer(DeadLettersResponse([dead_letter_view(letter, preview) for letter in letters], follows))

    async def show(call: Call) -> Answer:
        key = QueueKey(call.path("queue"), call.tenant)
        await call.hold(answers, largest)
        return json_answer(dead_letter_view(await dead_letters.one(engine, key, call.path("letter"), call)))

    async def bury(call: Call) -> Answer:
        wanted = await call.json(_decode_burial)
        unfit = [Unfit(one.seq, one.error) for one in wanted.letters]
        return json_answer(await engine.dead_letters.bury(call.queue(wanted.queue), unfit, wanted.name))

    async def purge(call: Call) -> Answer:
        selection = await call.json(_decode_selection)
        wanted = await dead_letters.meant(engine, dead_letters.of_selection(selection, call.tenant), call)
        call.note(count=0, dry_run=selection.dry_run)
        if wanted is None:
            return json_answer(PurgeResponse(selection.dry_run, 0))
        if selection.dry_run:
            wanted = await dead_letters.marked(engine, wanted)
        count = await engine.dead_letters.purge(wanted, dry_run=selection.dry_run)
        named = [*(selection.seqs or ()), *(selection.ids or ())]
        call.note(count=count, dry_run=selection.dry_run, target=dead_letters.named_letters(wanted.queue, named))
        return json_answer(PurgeResponse(selection.dry_run, count, wanted.up_to))

    return [
        Route(
            method="GET", path="/api/v1/dlq", access=READ, handler=list_letters, tag=TAG, parameters=LIST_PARAMETERS,
            answers={200: DeadLettersResponse}, summary="List dead letters in the order of dying",
            description="A page ends with the letter whose payload reaches `page_bytes`, so it may be short with `after` set.",
        ),
        Route(
            method="GET", path="/api/v1/dlq/{queue}/{letter}", access=READ, handler=show, tag=TAG,
            parameters=LETTER_PARAMETERS, answers={200: DeadLetterView}, summary="Show a dead letter with its payload",
        ),
        Route(
            method="POST", path="/api/v1/dlq/bury", access=PUSH, handler=bury, tag=TAG, request=BuryRequest,
            answers={200: Buried}, summary="Put messages of a log among its queue's dead letters, once",
            description="For those who read the log and not by leases, such as pipelines. The log and its groups keep the "
            "messages. Sent again under the same name, it gets the same answer and changes nothing.",
            example={"queue": "orders", "name": "billing-7", "letters": [{"seq": 5, "error": "there is no such customer"}]},
        ),
        Route(
            method="POST", path="/api/v1/dlq/purge", access=ADMIN, handler=purge, tag=TAG, request=DeadLetterSelection,
            answers={200: PurgeResponse}, summary="Delete dead letters for good",
            example={"queue": "orders.dead", "until": "2026-01-01T00:00:00Z", "dryRun": True},
        ),
    ]  # fmt: skip
