"""`push`: an array of results, and messages that are stored all or none."""

from __future__ import annotations

from collections.abc import Sequence
from http import HTTPStatus

import msgspec

from skep.errors import SkepError
from skep.http import pushing
from skep.http.queen.door import QueenDoor
from skep.http.queen.shapes import QueenItem, QueenPush, QueenPushed
from skep.http.request.call import Answer, Call, json_answer
from skep.ids import id_text
from skep.model import DEFAULT_PARTITION, NewMessage, PushResult, PushStatus
from skep.model.key import Verb
from skep.wire.messages import PushItem

QUEUED, DUPLICATE = "queued", "duplicate"

_decode = msgspec.json.Decoder(QueenPush)


async def push(door: QueenDoor, call: Call) -> Answer:
    """Push messages, whole or not at all."""
    body = await call.json_body()
    engine = door.engine
    admission = engine.admission
    if not admission.lets_push_in():
        await admission.wait_to_push()
    try:
        request = await call.read_json(body, _decode, pushing.LEVELS_ABOVE_PAYLOADS)
        if not request.items:
            call.check_tenant(Verb.PUSH)
            return json_answer([], HTTPStatus.CREATED)
        messages = new_messages(request.items, call)
        try:
            outcome = await engine.push(messages, json_checked=True)
        except SkepError as error:
            pushing.count_misfits(door.meter, messages, error)
            raise
        pushing.count_pushed(door.meter, messages, outcome)
        if outcome.refused:
            raise pushing.refusal(outcome)
        return json_answer(results(messages, list(outcome.results)), HTTPStatus.CREATED)
    finally:
        admission.leave_push()


def new_messages(items: Sequence[QueenItem], call: Call) -> list[NewMessage]:
    """The messages of the items, if the caller may push them."""
    return pushing.new_messages(
        [
            PushItem(
                item.queue, item.payload, item.partition or DEFAULT_PARTITION, item.transaction_id or None,
                item.trace_id or None,
            )
            for item in items
        ],
        call,
    )  # fmt: skip


def results(messages: Sequence[NewMessage], pushed: Sequence[PushResult]) -> list[QueenPushed]:
    """The results as Queen tells them. A message without a transaction id is named by its id."""
    told = []
    for index, (message, result) in enumerate(zip(messages, pushed, strict=True)):
        id_ = id_text(result.id)
        name = message.transaction_id or id_
        status = DUPLICATE if result.status is PushStatus.DUPLICATE else QUEUED
        trace_id = id_ if result.trace_id is None else id_text(result.trace_id)
        told.append(QueenPushed(index, status, id_, name, trace_id, name))
    return told
