"""`/api/v1/dlq…/replay…`: replay dead letters, and see the outcomes of replays."""

from __future__ import annotations

import msgspec

from skep.engine import Engine
from skep.engine.replaying import Replay
from skep.http import dead_letter_requests
from skep.http.request import parameters
from skep.http.request.call import Answer, Call, json_answer
from skep.http.request.paging import AFTER_SEQ, LIMIT, next_after, page_limit
from skep.http.request.permission import ADMIN, ADMIN_TO_PUSH, READ
from skep.http.routes.dead_letters import LETTER_PARAMETERS, LIST_PARAMETERS, TAG
from skep.http.routes.route_table import RouteTable
from skep.http.views import replay_view
from skep.ids import id_text
from skep.model import DeadLetterFilter, QueueKey, Seq
from skep.wire.dead_letters import (
    DeadLetterSelection,
    ReplayEditedRequest,
    ReplayedMessage,
    ReplayResponse,
    ReplaysResponse,
)

_decode_edited = msgspec.json.Decoder(ReplayEditedRequest)
_decode_selection = msgspec.json.Decoder(DeadLetterSelection)


ROUTES: RouteTable[Engine] = RouteTable(TAG)


@ROUTES.route(
    "GET", "/api/v1/dlq/replays", READ, "List replayed dead letters, the newest letters first",
    parameters=(*LIST_PARAMETERS[:2], AFTER_SEQ, LIMIT), answers={200: ReplaysResponse},
    description="Each row has the new message, and the state of that message for its group.",
)  # fmt: skip
async def list_replays(engine: Engine, call: Call) -> Answer:
    query = call.query
    limit, after = page_limit(query), parameters.position(query, "after")
    named = QueueKey(parameters.needed(query, "queue"), call.tenant)
    wanted = DeadLetterFilter(queue=named, source_queue=query.get("sourceQueue"))
    meant = await dead_letter_requests.meant(engine, wanted, call)
    if meant is None:
        return json_answer(ReplaysResponse([], None))
    found = await engine.dead_letters.replays(
        meant.queue, source_queue=meant.source_queue, before=None if after is None else Seq(after), limit=limit
    )
    shown = [replay_view(meant.queue.name, record, state) for record, state in found]
    return json_answer(ReplaysResponse(shown, next_after(shown, limit, lambda one: one.dead_seq)))


@ROUTES.route(
    "POST", "/api/v1/dlq/replay", ADMIN, "Send dead letters back to their queues, in order",
    request=DeadLetterSelection, answers={200: ReplayResponse},
    description="Each becomes a new message for the group that gave it up, and for no other. Its attempts start again.",
    example={"queue": "orders.dead", "reason": "max_attempts", "dryRun": True},
)  # fmt: skip
async def replay(engine: Engine, call: Call) -> Answer:
    selection = await call.json(_decode_selection)
    wanted = await dead_letter_requests.meant(engine, dead_letter_requests.of_selection(selection, call.tenant), call)
    call.note(count=0, dry_run=selection.dry_run)
    if wanted is None:
        return json_answer(ReplayResponse(selection.dry_run, 0, []))
    if selection.dry_run:
        wanted = await dead_letter_requests.marked(engine, wanted)
    done = await engine.dead_letters.replay(wanted, dry_run=selection.dry_run)
    letters = dead_letter_requests.named_letters(wanted.queue, [one.dead_seq for one in done.replayed])
    call.note(count=done.count, dry_run=selection.dry_run, target=letters)
    return json_answer(ReplayResponse(selection.dry_run, done.count, _named(done), wanted.up_to))


@ROUTES.route(
    "POST", "/api/v1/dlq/{queue}/{letter}/replay", ADMIN_TO_PUSH, "Send a dead letter back with another payload",
    parameters=LETTER_PARAMETERS, request=ReplayEditedRequest, answers={200: ReplayResponse},
    description="This is a replay of one letter. It also needs the right to push to the queue, and the payload must fit the "
    "queue's schema. The caller becomes the producer of the message.",
    example={"payload": {"customer": 7}},
)  # fmt: skip
async def replay_edited(engine: Engine, call: Call) -> Answer:
    changed = await call.json(_decode_edited)
    key, name = QueueKey(call.path("queue"), call.tenant), call.path("letter")
    letter = await dead_letter_requests.one(engine, key, name, call)
    done = await dead_letter_requests.replay_edited(engine, letter, bytes(changed.payload), call)
    if not done.count:  # somebody else replayed or purged it meanwhile
        raise dead_letter_requests.missing(key, name)
    return json_answer(ReplayResponse(False, done.count, _named(done)))


def _named(done: Replay) -> list[ReplayedMessage]:
    return [ReplayedMessage(one.dead_seq, one.queue.name, one.seq, id_text(one.id)) for one in done.replayed]
