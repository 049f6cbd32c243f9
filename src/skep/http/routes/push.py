"""`POST /api/v1/push`."""

from __future__ import annotations

import msgspec

from skep.engine import Engine
from skep.errors import SkepError
from skep.http import pushing
from skep.http.labels import has_labels, label_queues
from skep.http.pushing import count_misfits, count_pushed
from skep.http.request.call import Answer, Call
from skep.http.request.permission import PUSH
from skep.http.request.route import Media, Parameter, Route
from skep.http.routes import bulk
from skep.observe.metrics import Meter
from skep.wire.log import ARROW, BulkPushResponse
from skep.wire.messages import PushRequest, PushResponse
from skep.wire.operations import QueuedPushResponse

_decode = msgspec.json.Decoder(PushRequest)


def routes(engine: Engine, meter: Meter) -> list[Route]:
    """Pushing."""

    async def push(call: Call) -> Answer:
        in_columns = call.header(b"content-type") == ARROW.encode()
        # Before the door: a client that is slow to send its body takes no place from others.
        body = await (bulk.read_body(engine, call) if in_columns else call.json_body())
        admission = engine.admission
        if not admission.lets_push_in():
            await admission.wait_to_push()
        try:
            if in_columns:
                return await bulk.push(engine, meter, call, body)
            request = await call.read_json(body, _decode, pushing.LEVELS_ABOVE_PAYLOADS)
            messages = pushing.new_messages(request.items, call, engine.now)
            if has_labels(request.items):
                await label_queues(engine, request.items, call.tenant)
            qos0 = request.buffer_ms is not None or request.buffer_max is not None
            try:
                if qos0:
                    outcome = await engine.push_buffered(
                        messages, wait_ms=request.buffer_ms, most=request.buffer_max, json_checked=True
                    )
                else:
                    outcome = await engine.push(messages, json_checked=True)
            except SkepError as error:
                count_misfits(meter, messages, error)
                raise
            count_pushed(meter, messages, outcome)
            return pushing.buffered_answer(outcome, engine.store_away) if qos0 else pushing.answer(outcome)
        finally:
            admission.leave_push()

    return [
        Route(
            method="POST",
            path="/api/v1/push",
            handler=push,
            summary="Push messages, whole or not at all",
            description="201 when something was stored, 200 when all were duplicates, 202 when it was queued as operations"
            " (see there). With bufferMs or bufferMax the answer does not wait for that (QoS 0). The body may be an Arrow"
            " stream, which is the fast way for very many.",
            parameters=(Parameter("queue", str, "the queue of an Arrow stream without a column queue"),),
            request=(PushRequest, Media(ARROW)),
            answers={201: (PushResponse, BulkPushResponse), 200: PushResponse, 202: QueuedPushResponse},
            tag="Messages",
            verb="push",
            access=PUSH,
            example={
                "items": [
                    {
                        "queue": "orders",
                        "partition": "customer-42",
                        "transactionId": "order-1001",
                        "payload": {"total": 99.5},
                    }
                ]
            },
        )
    ]
