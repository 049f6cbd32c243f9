"""`/api/v1/dlq…`: messages given up on, and what becomes of them."""

from __future__ import annotations

import msgspec

from skep.engine import Engine
from skep.http import dead_letters, parameters
from skep.http.exchange import Answer, Call, json_answer
from skep.http.need import ADMIN, PUSH, READ
from skep.http.operation import Operation, Parameter
from skep.http.paging import AFTER_SEQ, LIMIT, next_after, page_limit
from skep.http.routes.messages import PREVIEW, preview_bytes
from skep.http.shown import dead_letter_view, replay_view
from skep.ids import id_text
from skep.model import DeadLetterFilter, DeadReason, QueueKey, Seq
from skep.records import Buried, Unfit
from skep.wire.dead_letters import (
    BuryRequest,
    DeadLetterSelection,
    DeadLettersResponse,
    DeadLetterView,
    PurgeResponse,
    ReplayedMessage,
    ReplayResponse,
    ReplaysResponse,
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

_decode_burial = msgspec.json.Decoder(BuryRequest)
_decode_selection = msgspec.json.Decoder(DeadLetterSelection)


def operations(engine: Engine) -> list[Operation]:
    """Dead letters."""

    async def list_letters(call: Call) -> Answer:
        query = call.query
        limit, preview = page_limit(query), preview_bytes(query)
        after = parameters.position(query, "after")
        letters = await dead_letters.found(
            engine, dead_letters.of_query(query, call.tenant), None if after is None else Seq(after), limit, call
        )
        shown = [dead_letter_view(letter, preview) for letter in letters]
        return json_answer(DeadLettersResponse(shown, next_after(letters, limit, lambda letter: letter.seq)))

    async def show(call: Call) -> Answer:
        key = QueueKey(call.path("queue"), call.tenant)
        return json_answer(dead_letter_view(await dead_letters.one(engine, key, call.path("letter"), call)))

    async def replay(call: Call) -> Answer:
        selection = await call.json(_decode_selection)
        wanted = await dead_letters.meant(engine, dead_letters.of_selection(selection, call.tenant), call)
        call.note(count=0, dry_run=selection.dry_run)
        if wanted is None:
            return json_answer(ReplayResponse(selection.dry_run, 0, []))
        if selection.dry_run:
            wanted = await dead_letters.marked(engine, wanted)
        done = await engine.dead_letters.replay(wanted, dry_run=selection.dry_run)
        letters = dead_letters.named_letters(wanted.queue, [one.dead_seq for one in done.replayed])
        call.note(count=done.count, dry_run=selection.dry_run, target=letters)
        replayed = [ReplayedMessage(one.dead_seq, one.queue.name, one.seq, id_text(one.id)) for one in done.replayed]
        return json_answer(ReplayResponse(selection.dry_run, done.count, replayed, wanted.up_to))

    async def list_replays(call: Call) -> Answer:
        query = call.query
        limit, after = page_limit(query), parameters.position(query, "after")
        named = QueueKey(parameters.needed(query, "queue"), call.tenant)
        wanted = DeadLetterFilter(queue=named, source_queue=query.get("sourceQueue"))
        meant = await dead_letters.meant(engine, wanted, call)
        if meant is None:
            return json_answer(ReplaysResponse([], None))
        found = await engine.dead_letters.replays(
            meant.queue, source_queue=meant.source_queue, before=None if after is None else Seq(after), limit=limit
        )
        shown = [replay_view(meant.queue.name, record, state) for record, state in found]
        return json_answer(ReplaysResponse(shown, next_after(shown, limit, lambda one: one.dead_seq)))

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
        Operation(
            method="GET", path="/api/v1/dlq", access=READ, handler=list_letters, tag=TAG, parameters=LIST_PARAMETERS,
            answers={200: DeadLettersResponse}, summary="List dead letters in the order of dying",
        ),
        Operation(
            method="GET", path="/api/v1/dlq/replays", access=READ, handler=list_replays, tag=TAG,
            parameters=(*LIST_PARAMETERS[:2], AFTER_SEQ, LIMIT), answers={200: ReplaysResponse},
            summary="List replayed dead letters, the newest letters first",
            description="Each with the message that it became, and how far its group has come with that.",
        ),
        Operation(
            method="GET", path="/api/v1/dlq/{queue}/{letter}", access=READ, handler=show, tag=TAG,
            parameters=(
                Parameter("queue", str, "a dead-letter queue, or a queue whose own dead letters are meant"),
                Parameter("letter", str, "the dead letter's seq or id"),
            ),
            answers={200: DeadLetterView}, summary="Show a dead letter with its payload",
        ),
        Operation(
            method="POST", path="/api/v1/dlq/replay", access=ADMIN, handler=replay, tag=TAG, request=DeadLetterSelection,
            answers={200: ReplayResponse}, summary="Send dead letters back to their queues, in order",
            description="Each goes to the group that gave it up and to no other, as a new message with attempts anew.",
            example={"queue": "orders.dead", "reason": "max_attempts", "dryRun": True},
        ),
        Operation(
            method="POST", path="/api/v1/dlq/bury", access=PUSH, handler=bury, tag=TAG, request=BuryRequest,
            answers={200: Buried}, summary="Put messages of a log among its queue's dead letters, once",
            description="For those who read the log and not by leases, such as pipelines. The log and its groups keep the "
            "messages. Sent again under the same name, it gets the same answer and changes nothing.",
            example={"queue": "orders", "name": "billing-7", "letters": [{"seq": 5, "error": "there is no such customer"}]},
        ),
        Operation(
            method="POST", path="/api/v1/dlq/purge", access=ADMIN, handler=purge, tag=TAG, request=DeadLetterSelection,
            answers={200: PurgeResponse}, summary="Delete dead letters for good",
            example={"queue": "orders.dead", "until": "2026-01-01T00:00:00Z", "dryRun": True},
        ),
    ]  # fmt: skip
